"""How many requests of a revision may be in flight at this gateway, where spec.overload is shed. Pure.

Requests queue in a server that is overloaded: those in flight over those finished per second is how long one
takes on average (Little's law). If that is above the target, the rate of finished requests is the capacity,
and a request that meets more than capacity times target in flight will be late. Envoy then refuses it.

Rules at the end of a window, first match wins:

| there is a limit | finished, in flight                                      | the limit becomes            |
|------------------|----------------------------------------------------------|------------------------------|
| no               | fewer than LEAST finished                                | none: no capacity is known   |
| no               | in flight / finished per second is at most the target    | none                         |
| no               | it is above the target                                   | SHARE x capacity x target    |
| yes              | the limit was reached, and far less than capacity finished | none, and none for REST    |
| yes              | at most half of the limit was in flight                  | none                         |
| yes              | anything else                                            | SHARE x capacity x target    |

In the fourth case the limit costs throughput, and no queue is what makes these requests late.

The capacity of a limit is per ready pod, so that the limit follows their number, and it is measured again
while as many are in flight as are allowed. Each gateway looks at its own requests only: of those in flight
and of those finished it sees the same share. A window is as long as it takes to know the rate.
"""

from dataclasses import dataclass, field, replace
from typing import Final

LEAST: Final = 5
"""Finished requests that a rate is believed from."""
ENOUGH: Final = 20
"""Finished requests that end a window."""
SHARE: Final = 0.7
"""Share of the target for the queue; the rest is for the differences between requests."""
SHORTEST_WINDOW: Final = 2.0
LONGEST: Final = 5.0
"""Windows that one may last, if few requests finish."""
REST: Final = 300.0
_FULL: Final = 0.8
"""Share of the limit from which the capacity, and not the demand, decides how many requests finish."""
_COSTS_THROUGHPUT: Final = 0.7
"""Share of the capacity below which the limit, and not the server, keeps the rate low."""


@dataclass(frozen=True)
class Sample:
    """What Envoy says of one revision's cluster."""

    at: float
    """Seconds of a clock that is never set back."""
    finished: int
    """Since Envoy started."""
    in_flight: int
    ready: int
    """Pods."""


@dataclass(frozen=True)
class InFlightLimit:
    """The state of one cluster."""

    limit: int | None = None
    capacity: float = 0.0
    """Requests per second and pod, while there is a limit."""
    highest: float = 0.0
    """The highest capacity since there is a limit."""
    rests_until: float = 0.0
    samples: tuple[Sample, ...] = field(default=())
    """The samples of the present window, in order."""

    def after(self, sample: Sample, target: float) -> "InFlightLimit":
        """The state once `sample` was seen. `target` is spec.sla.latency.p99 in seconds."""
        last = self.samples[-1] if self.samples else None
        if last is None or sample.finished < last.finished or not sample.ready:
            # The first sample, a new Envoy, or no pod: nothing is known.
            return InFlightLimit(rests_until=self.rests_until, samples=(sample,))
        if sample.ready != last.ready:
            return self._limited(self.capacity, sample, target)
        state = replace(self, samples=(*self.samples, sample))
        return state._judged(sample, target) if _suffices(state.samples, target) else state

    def _judged(self, sample: Sample, target: float) -> "InFlightLimit":
        """The state at the end of a window, by the table above."""
        kept = replace(self, samples=_newest(self.samples, target))
        finished = sample.finished - self.samples[0].finished
        rate = finished / (sample.at - self.samples[0].at)
        in_flight = sum(one.in_flight for one in self.samples) / len(self.samples)
        if self.limit is None:
            late = finished >= LEAST and in_flight > rate * target and sample.at >= self.rests_until
            return self._limited(rate / sample.ready, sample, target) if late else kept
        capacity = self.capacity
        if in_flight >= _FULL * self.limit:
            if rate < _COSTS_THROUGHPUT * self.highest * sample.ready:
                return InFlightLimit(rests_until=sample.at + REST, samples=(sample,))
            capacity = (self.capacity + rate / sample.ready) / 2
        elif max(one.in_flight for one in self.samples) <= self.limit / 2:
            return InFlightLimit(samples=(sample,))
        return replace(self._limited(capacity, sample, target), samples=kept.samples)

    def _limited(self, capacity: float, sample: Sample, target: float) -> "InFlightLimit":
        """Limited by this capacity per pod, in a new window; without a limit where that is 0."""
        if not capacity:
            return replace(self, samples=(sample,))
        limit = max(sample.ready, int(SHARE * capacity * sample.ready * target))
        return InFlightLimit(limit, capacity, max(capacity, self.highest), self.rests_until, (sample,))


def _suffices(samples: tuple[Sample, ...], target: float) -> bool:
    """Whether these are a window: long enough, and with enough requests or without the hope of them."""
    window = max(SHORTEST_WINDOW, 2 * target)
    span = samples[-1].at - samples[0].at
    finished = samples[-1].finished - samples[0].finished
    return span >= window and (finished >= ENOUGH or span >= LONGEST * window)


def _newest(samples: tuple[Sample, ...], target: float) -> tuple[Sample, ...]:
    """The shortest window at the end of this one, without its first sample."""
    while len(samples) > 1 and _suffices(samples, target):
        samples = samples[1:]
    return samples
