"""This server's Prometheus metrics, served at /metrics of the http port.

| name | type | meaning |
|---|---|---|
| tailbound_runtime_requests_total{code} | counter | infer requests answered, by HTTP status |
| tailbound_runtime_request_duration_seconds | histogram | infer requests, from head to answer |
| tailbound_runtime_inference_duration_seconds | histogram | time inside the model, successful runs only |
| tailbound_runtime_requests_in_flight | gauge | infer requests now between head and answer |
| tailbound_runtime_queue_depth | gauge | of these, waiting for the model |
| tailbound_runtime_model_load_seconds | gauge | loading and warm-up; absent until done |
| tailbound_runtime_info{version,model,revision,provider} | gauge | 1, once the model is loaded |

Health checks, metadata and unknown paths are not counted: they say nothing about the model.
"""

from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

# They are one more series for each series, and nothing here reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST.encode()

# From 100 µs (a small model) to 60 s: each bound about 2 to 2.5 times the one before.
BUCKETS_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


class Metrics:
    """One registry per server, so that tests can run many servers in a process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        prefix = "tailbound_runtime"
        self._requests = Counter(
            f"{prefix}_requests",
            "Infer requests answered, by HTTP status.",
            ["code"],
            registry=self._registry,
        )
        # Resolving a label costs more than counting, so the children are kept.
        self._by_code: dict[int, Counter] = {}
        self.request_seconds = Histogram(
            f"{prefix}_request_duration_seconds",
            "Infer requests, from the head read to the answer written.",
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.inference_seconds = Histogram(
            f"{prefix}_inference_duration_seconds",
            "Time inside the model, successful runs only.",
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            f"{prefix}_requests_in_flight", "Infer requests between head and answer.", registry=self._registry
        )
        self.queue_depth = Gauge(
            f"{prefix}_queue_depth", "Infer requests waiting for the model.", registry=self._registry
        )

    def answered(self, code: int, seconds: float) -> None:
        """Count one infer request."""
        child = self._by_code.get(code)
        if child is None:
            child = self._by_code[code] = self._requests.labels(str(code))
        child.inc()
        self.request_seconds.observe(seconds)

    def loaded(self, seconds: float, **info: str) -> None:
        """Publish how long loading took, and what was loaded. Called once."""
        load = Gauge(
            "tailbound_runtime_model_load_seconds",
            "Seconds that loading and warm-up took.",
            registry=self._registry,
        )
        load.set(seconds)
        labels = Gauge("tailbound_runtime_info", "What runs here.", list(info), registry=self._registry)
        labels.labels(**info).set(1)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)
