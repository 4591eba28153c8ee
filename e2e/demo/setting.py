"""What the demo stands on: the chart, a model store and a client pod in the cluster."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from e2e.cluster import OPERATOR_IMAGE, RUNTIME_IMAGE, Cluster, OwnCluster, binaries
from e2e.cluster.building import build
from e2e.cluster.controlplane import POD_RANGE, SERVICE_RANGE
from e2e.cluster.images import project_images
from e2e.cluster.processes import output

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "file-types.yaml"
SYSTEM: Final = "tailbound-system"
STORE_NAMESPACE: Final = "demo-models"
CLIENT_NAMESPACE: Final = "demo-client"
STORE_HOST: Final = f"model-store.{STORE_NAMESPACE}.svc.cluster.local"
STORE_PORT: Final = 8080
CLIENT_POD: Final = "client"
CLIENT_PORT: Final = 8080
PROMETHEUS_IMAGE: Final = "localhost/tailbound-prometheus:e2e"
INSTALL_TIMEOUT_SECONDS: Final = 180


def load_images(cluster: OwnCluster) -> str:
    """Build and load the project's images. The tag that is returned names their content.

    So an upgrade to other images is one for Kubernetes, too: of the tag `e2e` it thinks that it has it.
    """
    cluster.load_images()
    images = [image for image in project_images() if image.reference in (OPERATOR_IMAGE, RUNTIME_IMAGE)]
    contents = "".join(build(image).name for image in images)
    tag = hashlib.sha256(contents.encode()).hexdigest()[:12]
    for image in images:
        cluster.tag_image(image.reference, f"{image.reference.rpartition(':')[0]}:{tag}")
    return tag


def install(cluster: Cluster, tag: str) -> None:
    """Install or upgrade the chart, and wait until operator and gateway are ready."""
    output(
        [
            *(binaries.program("helm"), "--kubeconfig", cluster.kubeconfig),
            *("upgrade", "--install", "tailbound", ROOT / "charts" / "tailbound"),
            *("--namespace", SYSTEM, "--create-namespace"),
            *("--set-string", f"image.registry=localhost,image.tag={tag}"),
            *("--set", f"prometheus.enabled=true,prometheus.image={PROMETHEUS_IMAGE}"),
            *("--set", f"fetch.allowedHosts={{{STORE_HOST}}}"),
            *("--set", f"fetch.deniedCIDRs={{{SERVICE_RANGE},{POD_RANGE}}}"),
            *("--wait", f"--timeout={INSTALL_TIMEOUT_SECONDS}s"),
        ],
        timeout_seconds=INSTALL_TIMEOUT_SECONDS + 30,
    )


def helm_test(cluster: Cluster) -> str:
    """Run the chart's own test and return its log."""
    return output(
        [
            *(binaries.program("helm"), "--kubeconfig", cluster.kubeconfig, "--namespace", SYSTEM),
            *("test", "tailbound", "--logs"),
        ],
        timeout_seconds=120,
    )


def furnish(cluster: Cluster) -> None:
    """Put the model store and the client pod into the cluster and wait until both are ready."""
    objects = [
        *(namespace(name) for name in (STORE_NAMESPACE, CLIENT_NAMESPACE)),
        pod(STORE_NAMESPACE, "model-store", "localhost/tailbound-model-store:e2e", port=STORE_PORT),
        service(STORE_NAMESPACE, "model-store", STORE_PORT),
        pod(CLIENT_NAMESPACE, CLIENT_POD, "localhost/tailbound-client:e2e", port=CLIENT_PORT),
    ]
    apply(cluster, objects)
    for space, name in ((STORE_NAMESPACE, "model-store"), (CLIENT_NAMESPACE, CLIENT_POD)):
        cluster.kubectl(
            "wait", "--for=condition=Ready", f"pod/{name}", f"--namespace={space}", "--timeout=120s"
        )


def apply(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Apply these objects."""
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--filename=-", input=items)


def namespace(name: str) -> dict[str, Any]:
    """A namespace that admits only pods of the restricted standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def service(space: str, name: str, port: int) -> dict[str, Any]:
    """A Service in front of the pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


def pod(space: str, name: str, image: str, port: int | None = None) -> dict[str, Any]:
    """A pod with one container that needs nothing. With a port, it is ready when /_healthz answers there."""
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if port is not None:
        container["readinessProbe"] = {"httpGet": {"path": "/_healthz", "port": port}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }
