"""Objects that users write."""

from typing import Any, Final

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.store import Store

API_VERSION: Final = "tailbound.dev/v1alpha1"
# Small enough for many on one node, large enough for onnxruntime to load a tiny model.
CPU: Final = "50m"
MEMORY: Final = "256Mi"


def inference_service(namespace: str, name: str, store: Store, model: Model, /, **spec: Any) -> Object:
    """An InferenceService; further keywords are spec fields and replace the ones chosen here."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": store.uri(model), "format": "onnx", "sha256": model.sha256},
            "resources": {"cpu": CPU, "memory": MEMORY},
            **spec,
        },
    }


def hardware_class(name: str, **spec: Any) -> Object:
    """A HardwareClass."""
    return {"apiVersion": API_VERSION, "kind": "HardwareClass", "metadata": {"name": name}, "spec": spec}


def host_grant(name: str, namespaces: list[str], hosts: list[str]) -> Object:
    """A HostGrant."""
    spec = {"namespaces": namespaces, "hosts": hosts}
    return {"apiVersion": API_VERSION, "kind": "HostGrant", "metadata": {"name": name}, "spec": spec}


def serving_runtime(namespace: str, name: str, spec: Object) -> Object:
    """A ServingRuntime of one namespace."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ServingRuntime",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
