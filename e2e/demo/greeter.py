"""Services whose server is that of the scenarios, which can be told how to answer.

No model is needed to see who answers, and how fast.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from e2e.cluster import Cluster
from e2e.cluster.processes import output
from e2e.demo import filetypes, setting

RUNTIME: Final = "greeter"
IMAGE: Final = "localhost/tailbound-faulty-runtime:e2e"

Tell = Callable[[str], None]


def runtime(namespace: str) -> dict[str, Any]:
    """The ServingRuntime that greeters name."""
    probe = {"httpGet": {"path": "/v2/health/ready", "port": "http"}, "periodSeconds": 1}
    server = {
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": probe,
    }
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": RUNTIME, "namespace": namespace},
        "spec": {"formats": [{"name": "greeting"}], "drain": {"time": "3s"}, "server": server},
    }


def service(namespace: str, name: str, env: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A greeter that was told so by these variables."""
    uri = f"http://{setting.STORE_HOST}:{setting.STORE_PORT}/file-types.onnx"
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": uri, "format": "greeting", "sha256": filetypes.SHA256},
            "runtime": {"name": RUNTIME},
            "resources": {"cpu": "50m", "memory": "256Mi"},
            "env": [{"name": key, "value": value} for key, value in env.items()],
            **spec,
        },
    }


def url(namespace: str, name: str) -> str:
    """The URL at which it answers."""
    return f"http://{name}.{namespace}.svc.cluster.local/v2/models/{name}/infer"


def why(cluster: Cluster, namespace: str, name: str) -> str:
    """What `kubectl tailbound why` says."""
    command = Path(sys.executable).with_name("kubectl-tailbound")
    options = (name, f"--namespace={namespace}", f"--kubeconfig={cluster.kubeconfig}")
    return output([command, "why", *options]).strip()
