"""What /metrics answers: the figures of a process and of all its models, as Prometheus reads them."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tailbound_runtime import triton_metrics
from tailbound_runtime.metrics import Metrics, Stage
from tailbound_runtime.model import Model

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST.encode()


class Exposition(Collector):
    """One registry per server, so that tests can run many servers in a process. Any thread may use it."""

    def __init__(self, models: Iterable[Model]) -> None:
        """`models` is iterated again each time."""
        self._models = models
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Each family once, with the series of all models."""
        families: dict[str, Metric] = {}
        for model in self._models:
            for family in model.metrics.collect():
                samples = [
                    sample._replace(labels={**model.metrics.labels, **sample.labels})
                    for sample in family.samples
                ]
                known = families.setdefault(family.name, family)
                known.samples = samples if known is family else [*known.samples, *samples]
        return families.values()

    def render(self) -> bytes:
        """The Prometheus text format."""
        figures = [_as_triton(model, model.metrics) for model in self._models if model.is_open]
        return generate_latest(self._registry) + triton_metrics.exposition(figures)


def _as_triton(model: Model, metrics: Metrics) -> triton_metrics.Figures:
    codes, fine = metrics.codes, metrics.succeeded()
    queue, reading, runs, writing = (
        metrics.stage(each).seconds for each in (Stage.QUEUE, Stage.DECODE, Stage.EXECUTE, Stage.ENCODE)
    )
    values = (
        *(("request_success", fine.count), ("count", metrics.batches.rows_run)),
        *(("exec_count", metrics.batches.runs), ("pending_request_count", metrics.queue_depth())),
        *(("request_duration_us", fine.seconds * 1e6), ("queue_duration_us", queue * 1e6)),
        *(("compute_input_duration_us", reading * 1e6), ("compute_infer_duration_us", runs * 1e6)),
        ("compute_output_duration_us", writing * 1e6),
    )
    labels = {"model": model.name, "version": model.version}
    return triton_metrics.Figures(labels, {f"nv_inference_{name}": value for name, value in values}, codes)
