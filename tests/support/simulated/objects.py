"""Objects for the tests of decisions: as users write them, and as the API server and kubelet keep them."""

from typing import Any

from tailbound.objects.fields import Object

from tests.support.copies import copied

NAME, NAMESPACE, UID = "churn", "risk", "uid-of-churn"
NO_NODE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        }
    ],
}
STARTING: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "True"}],
}
OVER_QUOTA: dict[str, Any] = {
    "type": "ReplicaFailure",
    "status": "True",
    "message": "pods are forbidden: exceeded quota: devices, requested: requests.nvidia.com/gpu=1",
}


def spec(**fields: Any) -> dict[str, Any]:
    """The smallest valid spec, and these fields."""
    model = {"uri": "https://models.example.com/churn.onnx", "format": "onnx", "sha256": "a" * 64}
    return {"model": model, **fields}


def model(letter: str) -> dict[str, Any]:
    """The model of `spec()` with another digest: another revision."""
    return {**spec()["model"], "sha256": letter * 64}


def service(generation: int = 1, **fields: Any) -> dict[str, Any]:
    """An InferenceService with `spec(**fields)`."""
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "resourceVersion": "1",
            "generation": generation,
        },
        "spec": spec(**fields),
    }


def hardware_class(name: str = "cpu", *, default: bool = True, **fields: Any) -> dict[str, Any]:
    """A HardwareClass."""
    annotations = {"tailbound.dev/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": fields}


def runtime(name: str = "onnxruntime", *, priority: int = 0, **server: Any) -> dict[str, Any]:
    """A ServingRuntime or ClusterServingRuntime for onnx."""
    return {
        "metadata": {"name": name},
        "spec": {
            "formats": [{"name": "onnx"}],
            "priority": priority,
            "server": {
                "image": "registry.example.com/runtime:1",
                "args": ["--model={{ model.path }}", "--revision={{ revision.name }}"],
                "ports": [
                    {"name": "http", "containerPort": 8080},
                    {"name": "metrics", "containerPort": 9090},
                ],
                **server,
            },
        },
    }


def ready_status() -> dict[str, Any]:
    """Status of a pod that is through with everything."""
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [
            {"name": "fetch", "ready": True, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ],
        "containerStatuses": [{"name": "server", "ready": True, "state": {"running": {}}}],
    }


def as_stored(body: Object) -> dict[str, Any]:
    """What the API server makes of a body: empty values are gone, defaults are there."""
    stored: dict[str, Any] = without_empty(copied(dict(body)))
    if body["kind"] == "Deployment":
        stored["spec"].setdefault("replicas", 0)
        stored["spec"]["template"]["spec"].update(
            {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        )
        for container in stored["spec"]["template"]["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if "httpGet" in container.get(probe, {}):
                    container[probe]["httpGet"]["scheme"] = "HTTP"
    if body["kind"] == "Service":
        stored["spec"].update({"sessionAffinity": "None", "internalTrafficPolicy": "Cluster"})
    return stored


def without_empty(value: Any) -> Any:
    """The object without what Go's omitempty leaves out. An emptyDir stays: it is a pointer."""
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {
            key: item for key, item in kept.items() if key == "emptyDir" or item not in ("", [], {}, None)
        }
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value
