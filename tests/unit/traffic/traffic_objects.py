"""Small InferenceServices and EndpointSlices for tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailbound.api.names import REVISION_LABEL, SERVICE_LABEL

Object = dict[str, Any]

CONDITIONS: Mapping[str, Mapping[str, bool]] = {
    "ready": {"ready": True, "serving": True, "terminating": False},
    "unsaid": {},
    "starting": {"ready": False, "serving": False, "terminating": False},
    "draining": {"ready": False, "serving": True, "terminating": True},
    "dying": {"ready": False, "serving": False, "terminating": True},
    # publishNotReadyAddresses or a node that lost touch: both at once is possible.
    "ready and terminating": {"ready": True, "serving": True, "terminating": True},
}


def service(
    name: str,
    weights: Mapping[str, int] | None = None,
    *,
    namespace: str = "risk",
    generation: int = 1,
    traffic_generation: int = 1,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> Object:
    status: Object = {}
    if weights is not None:
        backends = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        status = {"traffic": {"generation": traffic_generation, "backends": backends}}
    metadata = {
        "namespace": namespace,
        "name": name,
        "generation": generation,
        "creationTimestamp": created,
    }
    return {"metadata": metadata, "spec": spec, "status": status}


def endpoints(
    revision: str,
    states: Sequence[str],
    *,
    service_name: str = "churn",
    ports: Mapping[str, int] | None = None,
    family: str = "IPv4",
    first: int = 1,
) -> Object:
    """One slice with a pod per state, at 10.0.0.1 and on, or fd00::1 and on."""
    prefix = "10.0.0." if family == "IPv4" else "fd00::"
    return {
        "metadata": {"labels": {SERVICE_LABEL: service_name, REVISION_LABEL: revision}},
        "addressType": family,
        "ports": [{"name": name, "port": port} for name, port in (ports or {"http": 8080}).items()],
        "endpoints": [
            {"addresses": [f"{prefix}{number}"], "conditions": dict(CONDITIONS[state])}
            for number, state in enumerate(states, first)
        ],
    }
