"""The smallest good objects of every kind, and how to change them."""

import copy
from typing import Any

SHA256 = "9f0c" * 16
SERVICE: dict[str, Any] = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "churn", "namespace": "default"},
    "spec": {"model": {"uri": "https://models.example.com/churn.onnx", "format": "onnx", "sha256": SHA256}},
}
HARDWARE_CLASS: dict[str, Any] = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "HardwareClass",
    "metadata": {"name": "gpu-l4"},
    "spec": {"resources": [{"name": "nvidia.com/gpu", "count": 1}]},
}
HOST_GRANT: dict[str, Any] = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "HostGrant",
    "metadata": {"name": "risk"},
    "spec": {"namespaces": ["risk", "risk-*"], "hosts": ["*.risk.example.com", "churn.example.com"]},
}
RUNTIME: dict[str, Any] = {
    "apiVersion": "tailbound.dev/v1alpha1",
    "kind": "ServingRuntime",
    "metadata": {"name": "onnx", "namespace": "default"},
    "spec": {
        "formats": [{"name": "onnx"}],
        "server": {"image": "server:1", "ports": [{"name": "http", "containerPort": 8000}]},
    },
}
CLUSTER_RUNTIME: dict[str, Any] = {
    **RUNTIME,
    "kind": "ClusterServingRuntime",
    "metadata": {"name": "onnx"},
}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `base` with `value` at the dotted path; None removes the field."""
    result = copy.deepcopy(base)
    *parents, last = path.split(".")
    node: Any = result
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    if value is None:
        del node[last]
    else:
        node[last] = value
    return result
