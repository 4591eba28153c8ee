"""InferenceServices of these tests: what is asked of them, and what their status says."""

from collections.abc import Callable
from typing import Any

from tailbound.api.names import API_VERSION
from tailbound.objects.fields import Object

MODEL = {"uri": "http://models.test/model.onnx", "format": "onnx", "sha256": "a" * 64}
NEW_MODEL = {**MODEL, "sha256": "b" * 64}
SLA = {"latency": {"p99": "10ms"}, "errorRate": "1%"}
GOOD, SLOW = {"good": 400}, {"good": 300, "slow": 100}
"""Requests that the gateways count of a revision with each weight."""
CANARY: dict[str, Any] = {
    "strategy": "canary",
    "steps": [{"weight": 20}, {"weight": 50}],
    "minStepTime": "1s",
    "scaleDownDelay": "1s",
    "analysis": {"warmupRequests": 0},
}


def service_body(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    """An InferenceService of the smallest spec."""
    resources = {"cpu": "1", "memory": "1Gi"}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"model": {**MODEL}, "resources": resources, **spec},
    }


def condition(service: Object, name: str) -> dict[str, Any]:
    """One condition of a service; empty if it is not there."""
    for each in (service.get("status") or {}).get("conditions") or ():
        if each["type"] == name:
            return dict(each)
    return {}


def is_ready(service: Object) -> bool:
    """Whether it is Ready as its newest spec asks."""
    ready = condition(service, "Ready")
    return (
        ready.get("status") == "True" and ready.get("observedGeneration") == service["metadata"]["generation"]
    )


def rollout_of(service: Object) -> dict[str, Any]:
    """status.rollout; empty if there is none."""
    return dict((service.get("status") or {}).get("rollout") or {})


def weights_of(service: Object) -> dict[str, int]:
    """status.traffic by the number of the revision."""
    backends = service["status"]["traffic"]["backends"]
    return {backend["revision"].split("-")[-2]: backend["weight"] for backend in backends}


def gives_weight(number: str, weight: int = 1) -> Callable[[Object], bool]:
    """Whether a status sends at least this percentage to the revision with this number."""
    return lambda service: weights_of(service).get(number, 0) >= weight
