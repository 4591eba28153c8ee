"""What the counters of a foreign server say of its batches."""

from dataclasses import dataclass
from typing import Final

from tailbound.autoscale.model import BATCH_WINDOW, BatchSums
from tailbound.objects.unknown import Unknown

_MOST_BATCHES_OF_A_ROW: Final = 1.5
"""Batches over rows that are still taken for one row each: a server does not count both at one instant."""


@dataclass(frozen=True)
class ServerCounters:
    """The increase of the counters of all pods of a revision in `BATCH_WINDOW` seconds."""

    requests: float
    rows: float
    seconds: float
    """The time of all batches, or of all requests if `each_request`."""
    each_request: bool
    pods: float
    """Pods whose counters these are."""
    batches: float | None
    """Batches that were run; None for a server that runs requests beside each other, uncounted."""


def batch_sums(seen: ServerCounters) -> BatchSums | Unknown:
    """What to learn from.

    | counted                 | batches                  | seconds of one            |
    |-------------------------|--------------------------|---------------------------|
    | batches and their time  | as counted               | mean over the batches     |
    | batches, requests' time | as counted               | mean over the requests    |
    | requests' time alone    | requests / beside others | mean over the requests    |
    | nothing was answered    | none                     | none: nothing is learned  |
    | more batches than rows  | Unknown                  | Unknown                   |

    The mean over requests counts a large batch more often than a small one: it is never less than that over
    batches. The number that run beside each other is the time of all requests over the time of all pods
    (Little's law), and at least one.

    Batches of a window count as equally large, as the counters do not say how their sizes differ: the line
    follows from windows with different loads.
    """
    if seen.requests <= 0 or seen.rows <= 0 or seen.pods <= 0:
        return BatchSums(BATCH_WINDOW, 0, 0, 0, 0, 0, 0)
    batches = seen.batches
    if batches is None:
        batches = seen.requests / max(1.0, seen.seconds / (BATCH_WINDOW * seen.pods))
    if batches > _MOST_BATCHES_OF_A_ROW * seen.rows:
        return Unknown(
            f"the server counted {batches:.0f} batches of {seen.rows:.0f} rows: metrics.batches or "
            "metrics.rows of its runtime is another metric"
        )
    if batches <= 0:
        return BatchSums(BATCH_WINDOW, 0, 0, 0, 0, 0, 0)
    seconds = batches * seen.seconds / seen.requests if seen.each_request else seen.seconds
    return BatchSums(
        window=BATCH_WINDOW,
        requests=seen.requests,
        batches=batches,
        rows=seen.rows,
        rows_squared=seen.rows**2 / batches,
        seconds=seconds,
        rows_seconds=seen.rows * seconds / batches,
    )


def waiting(queue: float, pods: float, sums: BatchSums | Unknown) -> float:
    """The requests in the servers' queues for which one more batch in each pod has no place."""
    place = 1.0
    if isinstance(sums, BatchSums) and sums.batches > 0:
        place = max(1.0, sums.requests / sums.batches)
    return max(0.0, queue - pods * place)
