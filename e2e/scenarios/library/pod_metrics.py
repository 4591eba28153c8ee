"""What pods use, for HorizontalPodAutoscalers: the metrics-server of the cluster, or ours for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from e2e.scenarios.library import installation
from e2e.scenarios.library.api import Api, Object, conditions
from e2e.scenarios.library.pods import NAMESPACE, USER
from e2e.scenarios.library.waiting import Unmet, pod_lines, wait_for

NAME: Final = "metrics-server"
IMAGE: Final = "tailbound-metrics-server"
API_SERVICE: Final = "v1beta1.metrics.k8s.io"
PORT: Final = 10250
# The least that it takes.
RESOLUTION: Final = "10s"
# It is ready once it has measured every pod twice.
START_SECONDS: Final = 300
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_RBAC: Final = f"{_RBAC_GROUP}/v1"


@contextmanager
def served(api: Api) -> Iterator[None]:
    """The resource metrics API is there during the block. Somebody else's is used as it is."""
    found = api.get("APIService", API_SERVICE)
    if found is not None and found["spec"]["service"]["namespace"] != NAMESPACE:
        yield
        return
    objects = _objects()
    try:
        for each in objects:
            api.apply(each)
        wait_for(f"pod {NAME}", partial(_pod_ready, api), START_SECONDS)
        # Only now, and away first: as long as nobody answers for an API group, no namespace can be deleted.
        api.apply(_api_service())
        wait_for(f"APIService {API_SERVICE}", partial(_available, api), START_SECONDS)
        yield
    finally:
        for each in (_api_service(), *reversed(objects)):
            api.delete(each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))


def _pod_ready(api: Api) -> bool | Unmet:
    if api.need("Deployment", NAME, NAMESPACE).get("status", {}).get("readyReplicas", 0):
        return True
    pods = api.list("Pod", NAMESPACE, f"app={NAME}")
    return Unmet("\n".join(line for pod in pods for line in pod_lines(pod)) or "no pod")


def _available(api: Api) -> bool | Unmet:
    found = conditions(api.need("APIService", API_SERVICE)).get("Available", {})
    return True if found.get("status") == "True" else Unmet(str(found))


def _api_service() -> Object:
    return _object(
        "apiregistration.k8s.io/v1",
        "APIService",
        API_SERVICE,
        spec={
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": NAME, "namespace": NAMESPACE, "port": PORT},
            # It signs its certificate itself.
            "insecureSkipTLSVerify": True,
        },
    )


def _objects() -> list[Object]:
    """The server with its rights, without the APIService that sends people there."""
    reads = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
    ]
    return [
        _object("v1", "ServiceAccount", NAME, NAMESPACE),
        _object(_RBAC, "ClusterRole", f"scenario:{NAME}", rules=reads),
        _binding("ClusterRoleBinding", f"scenario:{NAME}", "ClusterRole", f"scenario:{NAME}"),
        # It serves on behalf of the API server: whom that sends, and what they may, it asks there.
        _binding("ClusterRoleBinding", f"scenario:{NAME}-delegator", "ClusterRole", "system:auth-delegator"),
        _binding(
            "RoleBinding",
            f"scenario-{NAME}",
            "Role",
            "extension-apiserver-authentication-reader",
            "kube-system",
        ),
        _object(
            "v1",
            "Service",
            NAME,
            NAMESPACE,
            spec={"selector": {"app": NAME}, "ports": [{"port": PORT, "targetPort": PORT}]},
        ),
        _object("apps/v1", "Deployment", NAME, NAMESPACE, spec=_deployment()),
    ]


def _container() -> Object:
    return {
        "name": NAME,
        "image": f"{installation.registry()}/{IMAGE}:{installation.TAG}",
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--cert-dir=/tmp",
            f"--secure-port={PORT}",
            f"--metric-resolution={RESOLUTION}",
            # It has to be less.
            "--kubelet-request-timeout=9s",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            # Nothing in a cluster says who signed the kubelets' certificates.
            "--kubelet-insecure-tls",
        ],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _deployment() -> Object:
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container()],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    labels = {"app": NAME}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def _binding(kind: str, name: str, role_kind: str, role: str, namespace: str | None = None) -> Object:
    return _object(
        _RBAC,
        kind,
        name,
        namespace,
        roleRef={"apiGroup": _RBAC_GROUP, "kind": role_kind, "name": role},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    )


def _object(api_version: str, kind: str, name: str, namespace: str | None = None, **fields: Any) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
