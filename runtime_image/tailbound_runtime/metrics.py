"""This server's Prometheus metrics, served at /metrics of the http port.

| name | type | meaning |
|---|---|---|
| tailbound_runtime_requests_total{code} | counter | infer requests by HTTP status; 499: the client left |
| tailbound_runtime_requests_shed_total | counter | of these, refused as they would have been late |
| tailbound_runtime_request_duration_seconds | histogram | infer requests, from head to answer |
| tailbound_runtime_stage_seconds{stage} | histogram | of a request: parse, queue, inference, serialize |
| tailbound_runtime_requests_in_flight | gauge | infer requests now between head and answer |
| tailbound_runtime_queue_depth | gauge | of these, waiting for the model |
| tailbound_runtime_batch_size | histogram | rows of one run of the model, padding left out |
| tailbound_runtime_batch_duration_seconds | histogram | time of one run |
| tailbound_runtime_batches_total | counter | runs |
| tailbound_runtime_batch_requests_total | counter | requests in these runs; one may bring many rows |
| tailbound_runtime_batch_rows_total | counter | sum of n over all runs, n being the rows of one |
| tailbound_runtime_batch_rows_squared_total | counter | sum of n² |
| tailbound_runtime_batch_seconds_total | counter | sum of s, s being the seconds of one run |
| tailbound_runtime_batch_row_seconds_total | counter | sum of n·s |
| tailbound_runtime_batches_split_total | counter | shared runs that failed and were done again one by one |
| tailbound_runtime_model_load_seconds | gauge | loading and warm-up; absent until done |
| tailbound_runtime_info{version,model,revision,provider} | gauge | 1, once the model is loaded |

Of runs only the successful ones count. The sums give the line s(n) = a + b·n by least squares over any window
of time: a histogram of sizes and one of times cannot, because they do not say which belong together.

Health checks, metadata and unknown paths are not counted: they say nothing about the model.
"""

from enum import StrEnum
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

BUCKETS_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Stage(StrEnum):
    """What happens to a request between head and answer, in this order."""

    PARSE = "parse"
    QUEUE = "queue"
    INFERENCE = "inference"
    SERIALIZE = "serialize"


class BatchMetrics:
    """What is known of the model's runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "tailbound_runtime"

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{prefix}_{name}", text, registry=registry)

        self._size = Histogram(
            f"{prefix}_batch_size", "Rows of one run of the model.", buckets=BUCKETS_ROWS, registry=registry
        )
        self._duration = Histogram(
            f"{prefix}_batch_duration_seconds",
            "Time of one run of the model.",
            buckets=BUCKETS_SECONDS,
            registry=registry,
        )
        self._count = counter("batches", "Runs of the model.")
        self._requests = counter("batch_requests", "Requests that the runs served.")
        self._rows = counter("batch_rows", "Sum of n, the rows of each run.")
        self._rows_squared = counter("batch_rows_squared", "Sum of n².")
        self._seconds = counter("batch_seconds", "Sum of s, the seconds of each run.")
        self._row_seconds = counter("batch_row_seconds", "Sum of n·s.")
        self.split = counter("batches_split", "Shared runs that failed and were done again one by one.")

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Count one successful run."""
        self._size.observe(rows)
        self._duration.observe(seconds)
        self._count.inc()
        self._requests.inc(requests)
        self._rows.inc(rows)
        self._rows_squared.inc(rows * rows)
        self._seconds.inc(seconds)
        self._row_seconds.inc(rows * seconds)


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
        self.shed = Counter(
            f"{prefix}_requests_shed",
            "Infer requests refused because they would have been answered late.",
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
        stages = Histogram(
            f"{prefix}_stage_seconds",
            "Time of a request in one stage.",
            ["stage"],
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        self.stage_seconds = {stage: stages.labels(stage) for stage in Stage}
        self.batches = BatchMetrics(self._registry)
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
