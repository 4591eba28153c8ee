"""This server's Prometheus metrics, served at /metrics of the http port.

| name | type | meaning |
|---|---|---|
| tailbound_runtime_requests_total{code} | counter | infer requests by HTTP status; 499: the client left |
| tailbound_runtime_requests_shed_total | counter | of these, refused as they would have been late |
| tailbound_runtime_request_duration_seconds | histogram | infer requests, from head to answer |
| tailbound_runtime_stage_seconds{stage} | histogram | of a request, in each stage that it went through |
| tailbound_runtime_requests_in_flight | gauge | infer requests now between head and answer |
| tailbound_runtime_queue_depth | gauge | of these, waiting for the model |
| tailbound_runtime_cache_hits_total, …_misses_total | counter | requests by remembered answers, if kept |
| tailbound_runtime_cache_bytes | gauge | that the answers of all models take, if they are kept |
| tailbound_runtime_batch_size | histogram | rows of one run of the model, padding left out |
| tailbound_runtime_batch_duration_seconds | histogram | time of one run |
| tailbound_runtime_batches_total | counter | runs |
| tailbound_runtime_batch_requests_total | counter | requests in these runs; one may bring many rows |
| tailbound_runtime_batch_rows_total | counter | sum of n over all runs, n being the rows of one |
| tailbound_runtime_batch_rows_squared_total | counter | sum of n² |
| tailbound_runtime_batch_seconds_total | counter | sum of s, s being the seconds of one run |
| tailbound_runtime_batch_row_seconds_total | counter | sum of n·s |
| tailbound_runtime_batches_split_total | counter | shared runs that failed and were done again in halves |
| tailbound_runtime_warm_run_seconds{rows} | gauge | time of one run as measured at the load, by its rows |
| tailbound_runtime_model_load_seconds | gauge | loading and warm-up; absent until done |
| tailbound_runtime_device_memory_used_bytes, …_total_bytes | gauge | of the device, by all that use it |
| tailbound_runtime_info{version,model,revision,provider} | gauge | 1, once the model is loaded |

Of runs only the successful ones count. The sums give the line s(n) = a + b·n by least squares over any window
of time: a histogram of sizes and one of times cannot, because they do not say which belong together.

The stages, in the order that a request goes through them; what failed counts up to where it failed:

| stage | from |
|---|---|
| receive | the end of the head, until the body is there |
| decode | the body, until its tensors are there |
| queue | the tensors, until a run takes them |
| batch | joining the tensors of the requests of a run, and taking its outputs apart |
| execute | the run itself |
| encode | the outputs, until the answer's bytes are there |
| send | these bytes, until the kernel or the connection's buffer has them |

Health checks, metadata and unknown paths are not counted: they say nothing about the model.

A server of several models, or one whose clients load and unload them, adds the labels model and model_version
to each series. `exposition.py` puts all models together, with Triton's names for the same figures.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from threading import Lock
from typing import Final

from prometheus_client import disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from tailbound_runtime.devices import Memory
from tailbound_runtime.distribution import SETTLE_EVERY, Counted, Distribution
from tailbound_runtime.request_log import RequestLog

# They are one more series for each series, and nothing here reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

PREFIX: Final = "tailbound_runtime"

# From 100 µs (a small model) to 60 s: each bound about 2 to 2.5 times the one before.
BUCKETS_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)

BUCKETS_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Stage(StrEnum):
    """What happens to a request between head and answer, in this order."""

    RECEIVE = "receive"
    DECODE = "decode"
    QUEUE = "queue"
    BATCH = "batch"
    EXECUTE = "execute"
    ENCODE = "encode"
    SEND = "send"


class BatchMetrics:
    """What is known of the model's runs. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._size = Distribution(BUCKETS_ROWS)
        self._duration = Distribution(BUCKETS_SECONDS)
        self.runs = self.rows_run = self.last_run_milliseconds = 0
        self._requests = self._rows_squared = self._splits = 0
        self._row_seconds = 0.0

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        """Count one successful run."""
        with self._lock:
            self.runs += 1
            self.rows_run += rows
            self.last_run_milliseconds = time.time_ns() // 1_000_000
            self._size.add(rows)
            self._duration.add(seconds)
            self._requests += requests
            self._rows_squared += rows * rows
            self._row_seconds += rows * seconds
            if self.runs % SETTLE_EVERY == 0:
                self._size.settle()
                self._duration.settle()

    def split(self) -> None:
        """Count one shared run that failed and is done again in halves."""
        with self._lock:
            self._splits += 1

    def collect(self) -> Iterable[Metric]:
        """In the client library's form."""
        with self._lock:
            yield _histogram("batch_size", "Rows of one run of the model.", {"": self._size})
            yield _histogram("batch_duration_seconds", "Time of one run of the model.", {"": self._duration})
            for name, text, value in (
                ("batches", "Runs of the model.", self.runs),
                ("batch_requests", "Requests that the runs served.", self._requests),
                ("batch_rows", "Sum of n, the rows of each run.", self.rows_run),
                ("batch_rows_squared", "Sum of n².", self._rows_squared),
                ("batch_seconds", "Sum of s, the seconds of each run.", self._duration.counted().seconds),
                ("batch_row_seconds", "Sum of n·s.", self._row_seconds),
                ("batches_split", "Shared runs that failed and were done again in halves.", self._splits),
            ):
                yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)


class Metrics:
    """The figures of one model. Any thread counts runs and stages, and that of the loop all else.

    labels: of all its series
    queue_depth: asks for the requests that wait for it
    run_seconds: of one run by its rows, as measured at the load
    cached_bytes: asks for what remembered answers take; None where none are
    device_memory: asks the device; None where there is none, or it does not tell
    received, decoded, queued, batched, executed, encoded, sent: take in the seconds of one request in a stage
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self.labels = labels or {}
        self.batches = BatchMetrics()
        self.queue_depth: Callable[[], int] = nothing_waits
        self.device_memory: Callable[[], Memory | None] = no_device
        self.cached_bytes: Callable[[], int] | None = None
        self.run_seconds: Mapping[int, float] = {}
        self.request_log = RequestLog()
        self._codes: dict[int, int] = {}
        self._shed = self._in_flight = self._hits = self._misses = 0
        self._answers = Distribution(BUCKETS_SECONDS)
        self._stages = {stage: Distribution(BUCKETS_SECONDS) for stage in Stage}
        # Looked up once: the hash of an enumeration's member takes longer than adding a value.
        self.received, self.decoded, self.queued, self.batched, self.executed, self.encoded, self.sent = (
            self._stages[stage].add for stage in Stage
        )
        self._succeeded_seconds = 0.0
        self._load_seconds: float | None = None
        self._info: Mapping[str, str] = {}

    def begun(self) -> None:
        """Count one infer request that is there, and not answered yet."""
        self._in_flight += 1

    def answered(self, code: int, seconds: float, protocol: str, body_bytes: int, begun: bool = True) -> None:
        """Count the answer to one that has begun, or that was answered as it began."""
        if self.request_log.every:
            self.request_log.answered(protocol, code, seconds, body_bytes)
        self._answers.add(seconds)
        self._in_flight -= begun
        count = self._codes.get(code, 0) + 1
        self._codes[code] = count
        if code == 200:
            self._succeeded_seconds += seconds
        if count % SETTLE_EVERY == 0:
            for each in (self._answers, *self._stages.values()):
                each.settle()

    def answered_at_once(
        self,
        receiving: float,
        decoding: float,
        encoding: float,
        seconds: float,
        protocol: str,
        body_bytes: int,
    ) -> None:
        """Count one that begun and was answered with 200 in one step."""
        self.received(receiving)
        self.decoded(decoding)
        self.encoded(encoding)
        self.answered(200, seconds, protocol, body_bytes, begun=False)

    def shed(self) -> None:
        """Count one that is refused as it would be late."""
        self._shed += 1

    def hit(self) -> None:
        """Count one that is answered from memory."""
        self._hits += 1

    def missed(self) -> None:
        """Count one whose answer was not remembered."""
        self._misses += 1

    def shared(self, waited: Sequence[float], batching: float, execution: float) -> None:
        """Count the stages of the requests of one run, which waited so long each."""
        if len(waited) == 1:
            self.queued(waited[0])
            self.batched(batching)
            self.executed(execution)
            return
        stages = self._stages
        stages[Stage.QUEUE].extend(waited)
        stages[Stage.BATCH].extend([batching] * len(waited))
        stages[Stage.EXECUTE].extend([execution] * len(waited))

    def succeeded(self) -> Counted:
        """The infer requests that were answered with 200."""
        return Counted(self._codes.get(200, 0), self._succeeded_seconds)

    def failed(self) -> Counted:
        """The other infer requests."""
        all_of_them, fine = self._answers.counted(), self.succeeded()
        return Counted(all_of_them.count - fine.count, all_of_them.seconds - fine.seconds)

    def stage(self, stage: Stage) -> Counted:
        """The requests that went through this stage."""
        return self._stages[stage].counted()

    def loaded(self, seconds: float, **info: str) -> None:
        """Publish how long loading took, and what was loaded."""
        self._load_seconds, self._info = seconds, info

    @property
    def codes(self) -> Mapping[int, int]:
        """The answered infer requests by HTTP status."""
        return dict(self._codes)

    def collect(self) -> Iterable[Metric]:
        """What is counted here, in the client library's form."""
        yield from self._requests()
        yield GaugeMetricFamily(
            f"{PREFIX}_queue_depth", "Infer requests waiting for the model.", self.queue_depth()
        )
        yield from self.batches.collect()
        runs = GaugeMetricFamily(
            f"{PREFIX}_warm_run_seconds", "Time of one run as measured at the load.", labels=["rows"]
        )
        for rows, seconds in self.run_seconds.items():
            runs.add_metric([str(rows)], seconds)
        yield runs
        if self.cached_bytes is not None:
            yield from self._cache(self.cached_bytes())
        if self._load_seconds is not None:
            yield from self._load(self._load_seconds)
        memory = self.device_memory()
        if memory is not None:
            for name, value in (("used", memory.used), ("total", memory.total)):
                yield GaugeMetricFamily(
                    f"{PREFIX}_device_memory_{name}_bytes", "Memory of the device, by all that use it.", value
                )

    def _requests(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            f"{PREFIX}_requests", "Infer requests answered, by HTTP status.", labels=["code"]
        )
        for code, count in self._codes.items():
            requests.add_metric([str(code)], count)
        yield requests
        yield CounterMetricFamily(
            f"{PREFIX}_requests_shed",
            "Infer requests refused because they would have been answered late.",
            self._shed,
        )
        yield _histogram(
            "request_duration_seconds",
            "Infer requests, from the head read to the answer written.",
            {"": self._answers},
        )
        yield _histogram("stage_seconds", "Time of a request in one stage.", self._stages, "stage")
        yield GaugeMetricFamily(
            f"{PREFIX}_requests_in_flight", "Infer requests between head and answer.", self._in_flight
        )

    def _cache(self, cached_bytes: int) -> Iterable[Metric]:
        for name, count in (("hits", self._hits), ("misses", self._misses)):
            text = "Infer requests by whether their answers were remembered."
            yield CounterMetricFamily(f"{PREFIX}_cache_{name}", text, count)
        yield GaugeMetricFamily(
            f"{PREFIX}_cache_bytes", "Taken by remembered answers of all models.", cached_bytes
        )

    def _load(self, seconds: float) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            f"{PREFIX}_model_load_seconds", "Seconds that loading and warm-up took.", seconds
        )
        info = GaugeMetricFamily(f"{PREFIX}_info", "What runs here.", labels=list(self._info))
        info.add_metric(list(self._info.values()), 1)
        yield info


def nothing_waits() -> int:
    """The depth of the queue of a model that is not loaded."""
    return 0


def no_device() -> None:
    """The device memory of a model that is not loaded."""


def _histogram(
    name: str, text: str, distributions: dict[str, Distribution] | dict[Stage, Distribution], *labels: str
) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for label, distribution in distributions.items():
        family.add_metric([label] if labels else [], *distribution.histogram())
    return family
