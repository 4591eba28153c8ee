"""What sizing a revision rests on, and what it decides. Values only.

Times are seconds of the one clock that `now` is read from, rates are requests per second. A value that
cannot be read is `Unknown`, never zero: a reader believes a zero only where the counter was there, was fresh
and did not rise. Stable and canary are sized by separate calls, each on its own traffic and curve:
`decide(now, observation, objective, limits, state) -> Decision` of `tailbound.autoscale.decide`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from tailbound.objects.unknown import Unknown

TICK: Final = 10.0
"""Seconds between two decisions about one revision."""

STALE: Final = 45.0
"""Seconds after which a value is not believed: three scrapes. A clock that goes back by more was set back."""

BATCH_WINDOW: Final = TICK
"""Seconds that the sums of batches are taken over: short, as batches that are slower by the same factor are
noticed only once they fill it, and as long as two scrapes, which an increase is made of. Where one fails, the
other pods tell, or for one tick the gateways do."""

T = TypeVar("T")


@dataclass(frozen=True)
class Known(Generic[T]):
    """A value, and the time that it describes: the end of its window."""

    value: T
    at: float


Rate = Known[float] | Unknown
Seconds = Known[float] | Unknown
Count = Known[float] | Unknown


@dataclass(frozen=True)
class Arrivals:
    """Requests per second that reached the gateway, completed or not, by the length of the window."""

    over_10s: Rate
    over_30s: Rate
    over_60s: Rate
    over_120s: Rate


@dataclass(frozen=True)
class BatchSums:
    """Sums over the batches that the revision's runtimes finished in a window: what a line is fitted to.

    Arrivals, latency and what is in flight count requests, batches count rows: `rows / requests` is what
    turns one into the other. A runtime without batching counts each request as a batch of one row.
    """

    window: float
    """Seconds that the sums are taken over."""
    requests: float
    """Whose rows these are. One request may bring several rows."""
    batches: float
    rows: float
    rows_squared: float
    seconds: float
    rows_seconds: float
    """Sum over the batches of rows times seconds."""


@dataclass(frozen=True)
class GatewayLoad:
    """What the gateway sees of all replicas of a runtime that exports no times of batches, over a window.

    Rows are then unknown, and each request counts for one.
    """

    answered: float
    """Requests per second."""
    inside: float
    """Mean number of requests in the replicas, those that wait there included."""
    least_inside: float
    most_inside: float
    replicas: float
    """Mean number of those that were ready."""
    fewest_replicas: float


Service = Known[BatchSums | GatewayLoad] | Unknown
NO_QUEUE_REPORTED: Final = Unknown("the server does not report how many requests wait in it")


@dataclass(frozen=True)
class Replicas:
    """Pods of the revision, from the watch, so always known."""

    requested: int
    """spec.replicas of the Deployment."""
    ready: int
    pending: int
    """Made but not ready, `stuck` included. What a ResourceQuota refused to make is in neither."""
    stuck: int = 0
    """Pending pods that will not be ready soon: crashing, unschedulable or long overdue."""
    waited: tuple[float, ...] = ()
    """Seconds since each of the other pending ones was made."""


@dataclass(frozen=True)
class RevisionObservation:
    """What was seen of one revision."""

    arrivals: Arrivals
    p99: Seconds
    """Over 60 s, at the gateway. Unknown where nothing completed."""
    in_flight: Count
    """Requests in the gateway and the runtimes, queued ones included."""
    service: Service
    replicas: Replicas
    cold_start: Seconds
    """From the making of a pod to its readiness: the ninth decile of the last ones."""
    waiting: Count = NO_QUEUE_REPORTED
    """Requests that wait in the servers for longer than one more batch, where these report it."""


@dataclass(frozen=True)
class LatencyTarget:
    """What the service promises and how its runtime batches. Raises ValueError for what cannot be met."""

    p99: float
    """Seconds."""
    max_batch: int = 1
    """Rows that one replica works on at once: the batch, or else its limit of concurrent requests."""
    max_queue_delay: float = 0.0
    """Seconds that a request may wait for its batch to fill."""

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise ValueError(f"max_batch is {self.max_batch}, and must be at least 1")
        if not 0 <= self.max_queue_delay < self.p99:
            raise ValueError(
                f"max_queue_delay is {self.max_queue_delay} s: allowed are 0 to less than p99, {self.p99} s"
            )


class Limit(StrEnum):
    """What kept the replicas below, or above, what the traffic asks for."""

    NONE = "None"
    MIN = "Min"
    MAX = "Max"
    QUOTA = "Quota"
    HARDWARE = "Hardware"
    REFUSED = "Refused"  # the API server refuses further pods, for another cause than a quota


@dataclass(frozen=True)
class Ceiling:
    """Most replicas that a ResourceQuota, the hardware or a rule of admission allows.

    `min` is asked for all the same.
    """

    limit: Limit
    replicas: int


@dataclass(frozen=True)
class Limits:
    """Bounds of the replicas. Raises ValueError where min is above max or below 0."""

    min: int
    max: int
    ceilings: tuple[Ceiling, ...] = ()
    """Those that are known at present; the lowest one counts."""

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max:
            raise ValueError(f"min is {self.min} and max {self.max}, and 0 <= min <= max must hold")


@dataclass(frozen=True)
class LearnedCapacity:
    """What outlives the operator, by model digest and class. A batch of n rows takes base + n * per_row s."""

    base: float
    per_row: float
    correction: float = 1.0
    """Rate at which the target holds, over the rate at which the model says that it holds. At most 1."""
    cold_start: float = 60.0
    """Seconds."""


@dataclass(frozen=True)
class CapacityKey:
    """Whose learned capacity it is. Shared by the services of one namespace."""

    model_digest: str
    hardware_class: str
