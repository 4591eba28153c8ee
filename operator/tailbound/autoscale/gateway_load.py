"""What a runtime that tells nothing of its batches can do, from what the gateway sees of it."""

from math import sqrt
from typing import Final

from tailbound.autoscale.batch_time import SCATTER
from tailbound.autoscale.model import BatchSums, GatewayLoad

WINDOW: Final = 60.0
"""Seconds that a `GatewayLoad` is taken over."""
_WITH_WAITING: Final = 1.5
"""Runs that a request is inside for where there is always one: half of the one before, and its own."""
_STEADY: Final = 0.75
"""Fewest replicas in a window over their mean, from which on they are taken for the same ones."""
NOTHING: Final = BatchSums(WINDOW, 0, 0, 0, 0, 0, 0)


def as_batches(seen: GatewayLoad, limit: int, known: bool) -> BatchSums:
    """The batch sums by Little's law, for replicas that run batches of waiting requests up to `limit`.

    Of the x requests of a run each waits for half of the run before it, or for half of a run with chance x
    where x is less than one. Requests inside one replica:

    | requests inside        | x                   | rows of a run | its time            |
    |------------------------|---------------------|---------------|---------------------|
    | up to 1.5              | x + x² / 2 = inside | 1             | x / rate of answers |
    | up to 1.5 times limit  | 1.5 x = inside      | x             | x / rate of answers |
    | more: there is a queue | limit               | limit         | limit / rate        |

    A queue makes no run slower: a replica with more inside than it can work on answers as much as it can. One
    that works on all of them at once, instead of on runs, is taken for up to 1.5 times its capacity until
    there is a queue.

    They count for as many batches as let their mean scatter as much as what it is reckoned from: the requests
    inside, looked at a dozen times in a window. What scatters so makes runs look larger and slower alike, as
    if all their time went with their rows, and is left out of what tells the shape.

    A window whose parts are not alike tells nothing where something is known: it is a last resort.
    """
    if seen.replicas <= 0 or seen.answered <= 0 or (known and not _alike(seen, limit)):
        return NOTHING
    inside = seen.inside / seen.replicas
    run = min(sqrt(1 + 2 * inside) - 1 if inside < _WITH_WAITING else inside / _WITH_WAITING, limit)
    rows, seconds = max(1.0, run), run * seen.replicas / seen.answered
    batches = seen.inside
    informative = max(0.0, batches - SCATTER**2)
    return BatchSums(
        window=WINDOW,
        requests=batches * rows,
        batches=batches,
        rows=batches * rows,
        rows_squared=informative * rows**2,
        seconds=batches * seconds,
        rows_seconds=informative * rows * seconds,
    )


def full(seen: GatewayLoad, limit: int) -> bool:
    """Whether every replica had a queue all the time, so that its answers are all that it can do."""
    return seen.replicas > 0 and _steady(seen) and seen.least_inside >= _WITH_WAITING * limit * seen.replicas


def _steady(seen: GatewayLoad) -> bool:
    return seen.fewest_replicas >= _STEADY * seen.replicas


def _alike(seen: GatewayLoad, limit: int) -> bool:
    """Whether the means are of one state.

    Those of replicas with a queue and of idle ones after them, or with them, are of neither.
    """
    queue = _WITH_WAITING * limit * seen.replicas
    return _steady(seen) and (seen.most_inside < 2 * queue or seen.least_inside >= queue)
