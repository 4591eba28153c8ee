"""What a batch costs: a line through the times of batches, learned as they come.

Its shape is learned slowly and its level at once. A card that throttles, or a node that is shared with
somebody new, makes every batch slower by about the same factor: a window whose batches take a time that
chance doesn't explain rescales all that was learned before, instead of being averaged with it.
"""

from dataclasses import dataclass
from math import exp, sqrt
from typing import Final

from tailbound.autoscale.model import BatchSums, GatewayLatency

MEMORY: Final = 600.0
"""Seconds after which a batch counts for 1/e of a new one."""
_LEAST_STEP: Final = 0.03
"""Smallest relative change of level that is taken at once."""
_SCATTER: Final = 0.25
"""Relative spread of single batches that is allowed for: twice what runtimes show."""
_DEVIATIONS: Final = 3.0
_DISTINCT: Final = 1.0
"""Variance of the rows below which no slope can be told."""
_SEED: Final = 20.0
"""Batches that learned capacity counts for when it is read back."""
_LEAST_SECONDS: Final = 1e-6


@dataclass(frozen=True)
class Curve:
    """A batch of n rows takes base + n * per_row seconds."""

    base: float
    per_row: float

    def seconds(self, rows: float) -> float:
        """Mean time of a batch of `rows`."""
        return self.base + self.per_row * rows

    def capacity(self, batch: int) -> float:
        """Rows per second of one replica that works on full batches."""
        return batch / self.seconds(batch)


@dataclass(frozen=True)
class Fit:
    """Sums over past batches, older ones counting less, and when the last ones were added."""

    batches: float = 0.0
    rows: float = 0.0
    rows_squared: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0
    at: float | None = None

    def decayed(self, weight: float) -> "Fit":
        """As if every batch so far counted for `weight` of itself."""
        return Fit(
            self.batches * weight,
            self.rows * weight,
            self.rows_squared * weight,
            self.seconds * weight,
            self.rows_seconds * weight,
            self.at,
        )

    def slower(self, factor: float) -> "Fit":
        """As if every batch so far had taken `factor` times as long."""
        return Fit(
            self.batches,
            self.rows,
            self.rows_squared,
            self.seconds * factor,
            self.rows_seconds * factor,
            self.at,
        )


def seeded(curve: Curve, batch: int) -> Fit:
    """What was learned in an earlier life, as a few batches of either extreme size."""
    weight = _SEED / 2
    one, full = curve.seconds(1), curve.seconds(batch)
    return Fit(
        _SEED,
        weight * (1 + batch),
        weight * (1 + batch**2),
        weight * (one + full),
        weight * (one + batch * full),
    )


def learn(
    fit: Fit, curve: Curve | None, seen: BatchSums | GatewayLatency, at: float
) -> tuple[Fit, Curve | None]:
    """The sums and the curve after the window `seen` that ended `at`. None while nothing is known."""
    sums = seen if isinstance(seen, BatchSums) else _as_batches(seen)
    fresh = 1.0 if fit.at is None else min(1.0, (at - fit.at) / sums.window)
    if fresh <= 0 or sums.batches <= 0 or sums.seconds <= 0:
        return fit, curve
    if curve is not None:
        ratio = sums.seconds / (curve.base * sums.batches + curve.per_row * sums.rows)
        if abs(ratio - 1) > max(_LEAST_STEP, _DEVIATIONS * _SCATTER / sqrt(sums.batches)):
            fit, curve = fit.slower(ratio), Curve(curve.base * ratio, curve.per_row * ratio)
    old = fit.decayed(1.0 if fit.at is None else exp(-(at - fit.at) / MEMORY))
    added = Fit(
        old.batches + fresh * sums.batches,
        old.rows + fresh * sums.rows,
        old.rows_squared + fresh * sums.rows_squared,
        old.seconds + fresh * sums.seconds,
        old.rows_seconds + fresh * sums.rows_seconds,
        at,
    )
    return added, _line(added, curve)


def _as_batches(seen: GatewayLatency) -> BatchSums:
    """Latency against concurrency, as if every request were in a batch of all that were there.

    Waiting for the batch before is in the latency, so the base comes out too high and the capacity too low:
    on the safe side, until feedback corrects it.
    """
    rows = max(1.0, seen.concurrency)
    return BatchSums(
        window=60.0,
        requests=50.0 * rows,
        batches=50.0,
        rows=50.0 * rows,
        rows_squared=50.0 * rows**2,
        seconds=50.0 * seen.seconds,
        rows_seconds=50.0 * rows * seen.seconds,
    )


def _line(fit: Fit, before: Curve | None) -> Curve:
    """Least squares; batches all of one size only move the level of what was known before."""
    mean_rows, mean_seconds = fit.rows / fit.batches, fit.seconds / fit.batches
    variance = fit.rows_squared / fit.batches - mean_rows**2
    if variance > _DISTINCT:
        slope = (fit.rows_seconds / fit.batches - mean_rows * mean_seconds) / variance
        base = mean_seconds - slope * mean_rows
        if slope > 0 and base > 0:
            return Curve(base, slope)
    if before is None:
        return Curve(mean_seconds / 2, max(_LEAST_SECONDS, mean_seconds / 2 / mean_rows))
    level = mean_seconds / before.seconds(mean_rows)
    return Curve(before.base * level, before.per_row * level)
