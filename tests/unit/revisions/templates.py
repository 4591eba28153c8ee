"""Pod templates of revisions, for tests of what they hold."""

from typing import Any

from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.servingruntime import Drain, ServerContainer
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.pod import Ingredients, pod_template

MODEL = {"uri": "https://m.example.com/a.onnx?v=$(HOME)", "format": "onnx", "sha256": "a" * 64}
FETCHER = Fetcher("tailbound:1", "Never", ("chart",), ("models.internal", "b"), ("10.0.0.0/8",))


def template(
    *,
    spec: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    hardware: dict[str, Any] | None = None,
    inference_paths: tuple[str, ...] = DEFAULT_INFERENCE_PATHS,
    mode: str = "server",
    **parts: Any,
) -> dict[str, Any]:
    service = InferenceService.model_validate(
        {"metadata": {"name": "churn", "namespace": "risk"}, "spec": {"model": MODEL, **(spec or {})}}
    )
    container = {"image": "server:1", "ports": [{"name": "http", "containerPort": 8080}], **(server or {})}
    return pod_template(
        Ingredients(
            revision="churn-r1-abcdef",
            service=service,
            server=ServerContainer.model_validate(container),
            drain=Drain.model_validate({"mode": mode}),
            hardware_class=HardwareClass.model_validate(
                {"metadata": {"name": "gpu"}, "spec": hardware or {}}
            ),
            fetcher=FETCHER,
            inference_paths=inference_paths,
            **parts,
        )
    )


def server_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def env_of(pod: dict[str, Any]) -> dict[str, str]:
    pairs = [(variable["name"], variable["value"]) for variable in server_of(pod)["env"]]
    assert len(dict(pairs)) == len(pairs), "server-side apply refuses a name that is there twice"
    return dict(pairs)


def mounts_of(container: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {
        mount["name"]: (mount["mountPath"], mount.get("readOnly", False))
        for mount in container["volumeMounts"]
    }
