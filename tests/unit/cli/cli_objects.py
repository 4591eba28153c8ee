"""A service in the middle of a rollout, and its history, as the API server returns them."""

import json
from typing import Any

from tailbound.api.names import (
    PROMOTED_AT_ANNOTATION,
    REJECTED_AT_ANNOTATION,
    REJECTED_BY_ANNOTATION,
    REJECTED_MESSAGE_ANNOTATION,
    REJECTED_REASON_ANNOTATION,
    REVISION_LABEL,
    SERVICE_LABEL,
    STABLE_ANNOTATION,
)
from tailbound.cli.subject import Subject, subject_of

from tests.api_cases.objects import SERVICE, changed
from tests.support.pods import restricted_pod

R1, R2, R3 = "churn-r1-a", "churn-r2-b", "churn-r3-c"
FINDING: dict[str, Any] = {
    "measure": "latency",
    "outcome": "Wait",
    "allowed": 0.01,
    "unacceptable": 0.02,
    "requests": 412.0,
    "bad": 9.0,
    "absolute": {"value": 2.5, "threshold": 5.0},
    "late": {"value": 0.5, "threshold": 6.7},
    "relative": {"value": -0.2, "threshold": 5.3},
    "passing": {"value": 0.1, "threshold": 3.0},
}
METRIC: dict[str, Any] = {
    "name": "accuracy",
    "outcome": "RollBack",
    "samples": 12.0,
    "mean": 0.7,
    "bound": 0.9,
    "against": {"value": 5.9, "threshold": 5.7},
    "relative": {"value": 5.5, "threshold": 5.3},
    "passing": {"value": -1.0, "threshold": 3.0},
}
ROLLOUT: dict[str, Any] = {
    "state": "Analysing",
    "revision": R3,
    "from": R2,
    "step": 1,
    "weight": 25,
    "reason": "Analysing",
    "message": f"{R3} gets 25 percent of the requests, step 2 of 3",
    "stepStartedAt": "2026-01-02T03:04:05Z",
    "findings": [FINDING],
}


def condition(kind: str, status: str, reason: str, message: str, generation: int = 3) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        "observedGeneration": generation,
    }


def service(
    *,
    rollout: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    promoted: tuple[str, str, str] | None = ("Unknown", "Analysing", "not yet"),
    generation: int = 3,
) -> dict[str, Any]:
    """ROLLOUT with changes; {"state": None} is a service without any."""
    metadata = {
        "name": "churn",
        "namespace": "risk",
        "generation": generation,
        "resourceVersion": "7",
        "annotations": annotations or {},
    }
    conditions = [condition("Ready", "Unknown", "RollingOut", "on its way")]
    if promoted is not None:
        conditions.append(condition("Promoted", *promoted))
    merged = {**ROLLOUT, **(rollout or {})}
    status = {
        "observedGeneration": 3,
        "url": "http://churn.risk.svc.cluster.local",
        "traffic": {
            "generation": 4,
            "backends": [{"revision": R2, "weight": 75}, {"revision": R3, "weight": 25}],
        },
        "stable": {"revision": R2, "replicas": 4, "ready": 4},
        "canary": {"revision": R3, "replicas": 1, "ready": 1},
        "servingPods": "5/5",
        "conditions": conditions,
    }
    if merged["state"] is not None:
        status["rollout"] = merged
    spec = changed(SERVICE, "spec.rollout", {"strategy": "canary"})["spec"]
    return {**SERVICE, "metadata": metadata, "spec": spec, "status": status}


def revision(name: str, annotations: dict[str, str] | None = None, image: str = "server:1") -> dict[str, Any]:
    template = {
        "metadata": {"labels": {REVISION_LABEL: name}},
        "spec": restricted_pod(image=image),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": "risk",
            "labels": {SERVICE_LABEL: "churn"},
            "annotations": annotations or {},
        },
        "revision": int(name.split("-")[1][1:]),
        "data": {
            "spec": json.dumps({"model": {"format": "onnx"}}),
            "runtime": "ServingRuntime onnx",
            "hardwareClass": "cpu",
            "template": json.dumps(template),
        },
    }


def promoted(at: str, *, stable: bool = False) -> dict[str, str]:
    return {PROMOTED_AT_ANNOTATION: at, **({STABLE_ANNOTATION: "true"} if stable else {})}


def rejected(reason: str, message: str, by: str | None = None) -> dict[str, str]:
    return {
        REJECTED_AT_ANNOTATION: "2026-01-02T03:05:00Z",
        REJECTED_REASON_ANNOTATION: reason,
        REJECTED_MESSAGE_ANNOTATION: message,
        **({REJECTED_BY_ANNOTATION: by} if by is not None else {}),
    }


HISTORY = [
    revision(R1, promoted("2026-01-01T00:00:00Z")),
    revision(R2, promoted("2026-01-02T00:00:00Z", stable=True)),
    revision(R3),
]


def subject(raw: dict[str, Any] | None = None, history: list[dict[str, Any]] | None = None) -> Subject:
    return subject_of(raw if raw is not None else service(), HISTORY if history is None else history)
