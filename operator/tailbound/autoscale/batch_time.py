"""What a batch costs: a line through the times of batches, learned as they come.

Its shape is learned slowly and its level at once. A card that throttles, or a node with
a new neighbour, makes every batch slower by about the same factor: a window whose batches take a time that
neither chance nor a doubtful shape explains rescales all that was learned before, instead of being averaged
with it.

How much of a batch's time goes with its rows can be found only as far as the sizes of batches differ. A
replica that is hardly busy works on batches of one, and must still be known to do more with fuller ones.
Until sizes differ, a row is supposed to take as long as what every batch takes anyway: where batching gains
nothing, that is less than twice the capacity, and where it gains more, too low a capacity. By degrees, what
the sizes tell takes the place of what is supposed.
"""

from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Final

from tailbound.autoscale.model import STALE, BatchSums

MEMORY: Final = 600.0
"""Seconds after which the time of a batch counts for 1/e of a new one's."""
_SHAPE_MEMORY: Final = 86400.0
"""Seconds after which a shape counts for 1/e of one that is reported now: a night of batches of one must not
make it forget a busy day."""
_LEAST_STEP: Final = 0.03
"""Smallest relative change of level that is taken at once."""
SCATTER: Final = 0.25
"""Relative spread of single batches that is allowed for: twice what runtimes show."""
_BEND: Final = 0.03
"""How far the time of a batch may lie off the line, relative to it, at twice the size of the batches seen.
At a larger size it may grow with the square of the distance."""
_DEVIATIONS: Final = 3.0
_SHORTEST: Final = 1e-9
_LONGEST: Final = 86400.0
"""Between these is the mean time of a batch, in seconds. Other numbers are a fault of who counts, and no
arithmetic holds with them."""
_UNSURE: Final = sqrt(1 / 12)
"""Standard deviation of the share of a batch's time that goes with its rows, if nothing is known of it."""
_SEED: Final = 20.0
"""Batches that learned capacity counts for when it is read back."""


@dataclass(frozen=True)
class BatchTimeModel:
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
class Shape:
    """How steep the line is, whatever its level."""

    rows: float = 1.0
    """The size of the mean batch, to which `share` refers."""
    share: float = 0.5
    """The share of that batch's time that is proportional to its rows."""
    trust: float = 0.0
    """How far `share` is believed, from 0 to 1, against what is supposed."""

    @property
    def line(self) -> BatchTimeModel:
        """The line, scaled to one second for the mean batch."""
        supposed = self.rows / (1 + self.rows)
        share = self.trust * self.share + (1 - self.trust) * supposed
        return BatchTimeModel(1 - share, share / self.rows)

    def doubt(self, rows: float, other: float) -> float:
        """Standard deviation, relative to it, of the ratio of the times of batches of two sizes."""
        line = self.line
        one, two = ((size / self.rows - 1) / line.seconds(size) for size in (rows, other))
        return _UNSURE * sqrt(1 - self.trust) * abs(one - two)


@dataclass(frozen=True)
class Sums:
    """Over past batches, older ones counting less."""

    batches: float = 0.0
    rows: float = 0.0
    rows_squared: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0

    def plus(self, other: "Sums", weight: float = 1.0, slower: float = 1.0) -> "Sums":
        """The sums with further batches, each with `weight` and with its time multiplied by `slower`."""
        return Sums(
            self.batches + weight * other.batches,
            self.rows + weight * other.rows,
            self.rows_squared + weight * other.rows_squared,
            self.seconds + weight * slower * other.seconds,
            self.rows_seconds + weight * slower * other.rows_seconds,
        )

    @property
    def mean(self) -> float:
        """Rows of a batch."""
        return self.rows / self.batches

    def shape(self, limit: int) -> Shape:
        """The least-squares shape, valid for batches of up to `limit` rows.

        What they tell and what is supposed count by their variances. Chance fades with the number of batches,
        and the faster the more their sizes differ. That times do not lie on a line stays, and matters the
        more, the farther the limit is from the batches seen.
        """
        spread = self.rows_squared / self.batches / self.mean**2 - 1
        if spread <= 0:
            return Shape(self.mean)
        together = self.rows_seconds * self.batches / (self.rows * self.seconds) - 1
        beyond = max(0.0, limit / self.mean - 1)
        variance = SCATTER**2 / self.batches / spread + (_BEND * beyond) ** 2
        trust = _UNSURE**2 / (_UNSURE**2 + variance)
        return Shape(self.mean, min(1.0, max(0.0, together / spread)), trust)


@dataclass(frozen=True)
class Fit:
    """The sums over past batches, and the time of the last ones."""

    sums: Sums = field(default_factory=Sums)
    shape: Shape = field(default_factory=Shape)
    """The most trusted one of late."""
    shape_at: float | None = None
    """When its batches ended."""
    at: float | None = None

    @property
    def batch_times(self) -> BatchTimeModel | None:
        """The time of a batch by its rows, at the level of what was counted; None before that."""
        if self.sums.batches <= 0:
            return None
        line = self.shape.line
        level = self.sums.seconds / (line.base * self.sums.batches + line.per_row * self.sums.rows)
        return BatchTimeModel(line.base * level, line.per_row * level)


def seeded(batch_times: BatchTimeModel, batch: int) -> Fit:
    """What was learned before a restart, as a few batches of either extreme size."""
    one, full = batch_times.seconds(1), batch_times.seconds(batch)
    sums = Sums().plus(Sums(2, 1 + batch, 1 + batch**2, one + full, one + batch * full), _SEED / 2)
    return Fit(sums, sums.shape(batch))


def learn(fit: Fit, window: BatchSums, at: float, limit: int) -> Fit:
    """The fit after the window of batches that ended `at`; a batch has at most `limit` rows."""
    if fit.at is not None and at < fit.at - STALE:
        fit = Fit(fit.sums, fit.shape)  # the clock was set back
    fresh = 1.0 if fit.at is None else min(1.0, (at - fit.at) / window.window)
    if fresh <= 0 or not _SHORTEST * window.batches < window.seconds < _LONGEST * window.batches:
        return fit
    passed = 0.0 if fit.at is None else at - fit.at
    added = Sums(window.batches, window.rows, window.rows_squared, window.seconds, window.rows_seconds)
    past = Sums().plus(fit.sums, exp(-passed / MEMORY), _step(fit, added))
    sums = past.plus(added, fresh)
    shape, shape_at, newer = fit.shape, at if fit.shape_at is None else fit.shape_at, sums.shape(limit)
    if newer.trust >= shape.trust * exp(-(at - shape_at) / _SHAPE_MEMORY):
        shape, shape_at = newer, at
    return Fit(sums, shape, shape_at, at)


def _step(fit: Fit, window: Sums) -> float:
    """The factor by which batches take longer since this window; 1 for no change.

    Batches of another size than before may take another time because the line is not as steep as supposed:
    then they are to correct its shape, and not its level.
    """
    batch_times = fit.batch_times
    if batch_times is None:
        return 1.0
    ratio = window.seconds / (batch_times.base * window.batches + batch_times.per_row * window.rows)
    doubt = fit.shape.doubt(window.mean, fit.sums.mean)
    allowed = _DEVIATIONS * sqrt(SCATTER**2 / window.batches + doubt**2)
    return ratio if abs(ratio - 1) > max(_LEAST_STEP, allowed) else 1.0
