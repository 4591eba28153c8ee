"""What this server says of itself and of its model: metadata, configuration, statistics."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tailbound_runtime import __version__
from tailbound_runtime.batch import Mode
from tailbound_runtime.distribution import Counted
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.metrics import Metrics, Stage
from tailbound_runtime.model import Model
from tailbound_runtime.routes import Route
from tailbound_runtime.signature import Signature

EXTENSIONS: Final = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")
SERVER_NAME: Final = "tailbound-runtime"


def answer(route: Route, models: Iterable[Model], model: Model | None, ready: bool) -> tuple[int, Any]:
    """The status and the body of a GET, or of an index.

    model: that the path names
    ready: whether the server is
    """
    if model is not None and route is not Route.STATISTICS:
        return _of_model(route, model, ready)
    described: Mapping[Route, Callable[[], Any]] = {
        Route.SERVER: server,
        Route.LIVE: lambda: {"live": True, "ready": ready},
        Route.READY: lambda: {"live": True, "ready": ready},
        Route.STATISTICS: lambda: statistics(models if model is None else [model]),
        Route.INDEX: lambda: index(models, ready),
    }
    return 503 if route is Route.READY and not ready else 200, described[route]()


def _of_model(route: Route, model: Model, ready: bool) -> tuple[int, Any]:
    if route is Route.MODEL_READY:
        ready = ready and model.is_open
        return 200 if ready else 503, {"name": model.name, "ready": ready}
    signature = model.loaded()[0]
    return 200, metadata(signature) if route is Route.MODEL else config(signature)


def server() -> dict[str, Any]:
    """The body of GET /v2."""
    return {"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS}


def metadata(signature: Signature) -> dict[str, Any]:
    """The body of GET /v2/models/NAME."""

    def described(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": s.name, "datatype": s.datatype.name, "shape": s.shape} for s in specs.values()]

    return {
        "name": signature.name,
        "versions": [signature.version],
        "platform": signature.platform,
        "inputs": described(signature.inputs),
        "outputs": described(signature.outputs),
    }


def config(signature: Signature) -> dict[str, Any]:
    """The model's configuration in Triton's form: without the first dimension where requests are batched."""
    batching = signature.batching
    first = 1 if batching.shares else 0

    def tensors(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
        return [
            {
                "name": spec.name,
                "data_type": "TYPE_" + ("STRING" if spec.datatype.is_text else spec.datatype.name),
                "dims": spec.shape[first:],
            }
            for spec in specs.values()
        ]

    configured = {
        "name": signature.name,
        "platform": signature.platform,
        "backend": signature.platform.partition("_")[0],
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": batching.max_size if batching.shares else 0,
        "input": tensors(signature.inputs),
        "output": tensors(signature.outputs),
    }
    if batching.mode is Mode.DYNAMIC:
        configured["dynamic_batching"] = {
            "preferred_batch_size": batching.preferred,
            "max_queue_delay_microseconds": round(batching.delay_seconds * 1e6),
        }
    return configured


def index(models: Iterable[Model], ready: bool) -> list[dict[str, str]]:
    """The body of POST /v2/repository/index."""
    return [
        {
            "name": model.name,
            "version": model.version,
            "state": "READY" if ready and model.is_open else "UNAVAILABLE",
            "reason": "",
        }
        for model in models
    ]


def statistics(models: Iterable[Model]) -> dict[str, Any]:
    """The body of GET /v2/models/NAME/stats, in Triton's form."""
    return {"model_stats": [_statistics(model, model.metrics) for model in models]}


def _statistics(model: Model, metrics: Metrics) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": metrics.batches.last_run_milliseconds,
        "inference_count": metrics.batches.rows_run,
        "execution_count": metrics.batches.runs,
        "inference_stats": {
            "success": _duration(metrics.succeeded()),
            "fail": _duration(metrics.failed()),
            "queue": _duration(metrics.stage(Stage.QUEUE)),
            "compute_input": _duration(metrics.stage(Stage.DECODE)),
            "compute_infer": _duration(metrics.stage(Stage.EXECUTE)),
            "compute_output": _duration(metrics.stage(Stage.ENCODE)),
        },
        "batch_stats": [],
    }


def _duration(counted: Counted) -> dict[str, int]:
    return {"count": counted.count, "ns": round(counted.seconds * 1e9)}
