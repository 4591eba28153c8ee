"""The rate to be expected when a replica that is asked for now is ready, and how wrong that has been.

A regression that learns as it goes tells how the rate at the horizon follows from how it moved lately:
whether what rises goes on rising, or falls back to where it was, differs from one service to the next. The
spare follows from how wrong the last forecasts at this horizon were: little for smooth traffic however long a
replica takes to come, much for traffic that surges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from math import exp, log, sqrt
from operator import add, mul
from typing import Final, NamedTuple

from tailbound.autoscale.course import Course
from tailbound.autoscale.forecast_errors import FARTHEST, REMEMBERED, SUPPOSED, USUAL_HORIZON, ForecastErrors
from tailbound.autoscale.model import STALE, TICK

_WINDOWS: Final = (3, 6, 12, 30, 60)
"""In ticks. The ratio of each window's mean to the next one's is what the regression knows."""
_SIZE: Final = len(_WINDOWS) - 1
_MEMORY: Final = 0.995
"""What an error counts for, relative to the one a tick later."""
_CONFIDENCE: Final = 1.0
"""Variance of the weights before anything is known, in those of the errors; they start at 0: no change."""
_RISES: Final = (5, 12)
"""Ticks that lines are drawn through: a steep rise shows early, a slow one late."""
_SIGNIFICANT: Final = 5.0
"""Standard errors of the slope that are none of chance."""
_FALLS: Final = 3.0
"""Standard errors of the slope from which the traffic falls. They are fewer than for a rise: where it was
chance after all, a replica is given up two minutes too soon, and none is started."""
_MEDIAN: Final = 1.05
"""Standard deviation of values over the median of what two of them differ by."""
_HIGHEST_RISE: Final = 1.5
"""A line is followed to at most this many times the present rate."""
_CLEARLY: Final = 0.98
"""A course is cheaper if it costs less than this part of another: after one peak they differ by less."""
_NEAR: Final = 1.25 * USUAL_HORIZON
"""The horizon up to which peaks are kept: where a start takes longer, what exceeds one is late for longer."""
_LEAST_RATE: Final = 0.1
"""Requests per second below which no ratio is taken."""

Vector = tuple[float, ...]
_NOTHING: Final[Vector] = (0.0,) * _SIZE
_UNSURE: Final = (
    (_CONFIDENCE, 0.0, 0.0, 0.0),
    (0.0, _CONFIDENCE, 0.0, 0.0),
    (0.0, 0.0, _CONFIDENCE, 0.0),
    (0.0, 0.0, 0.0, _CONFIDENCE),
)


class Guess(NamedTuple):
    """A forecast that is judged at `due`. Logarithms of ratios, but for the rates."""

    due: float
    horizon: float
    """Seconds."""
    present: float
    peak: float
    """The highest rate of the last minutes."""
    features: Vector
    predicted: float

    def scaled(self, factor: float) -> "Guess":
        """The guess about `factor` times the traffic."""
        return self._replace(present=self.present * factor, peak=self.peak * factor)


class Regression(NamedTuple):
    """Recursive least squares: the weights, and how uncertain each is."""

    weights: Vector = _NOTHING
    covariance: tuple[tuple[float, float, float, float], ...] = _UNSURE

    def predict(self, features: Vector) -> float:
        """Logarithm of the rate at the horizon over the present one."""
        return max(-FARTHEST, min(FARTHEST, _dot(self.weights, features)))

    def taught(self, features: Vector, seen: float, weight: float) -> "Regression":
        """The weights after a forecast from `features` proved to be `seen`, with relative `weight`."""
        # Written out: a start goes through this for each ten seconds of each service's last half hour.
        one, two, three, four = features
        direction = [p * one + q * two + r * three + s * four for p, q, r, s in self.covariance]
        scale = _MEMORY / weight + _dot(features, direction)
        miss = (seen - _dot(self.weights, features)) / scale
        weights = tuple([value + miss * step for value, step in zip(self.weights, direction, strict=True)])
        one, two, three, four = direction
        covariance = [
            (
                (p - step * one / scale) / _MEMORY,
                (q - step * two / scale) / _MEMORY,
                (r - step * three / scale) / _MEMORY,
                (s - step * four / scale) / _MEMORY,
            )
            for (p, q, r, s), step in zip(self.covariance, direction, strict=True)
        ]
        # Without excitation forgetting would let the uncertainty, and so the next step, grow without bound.
        excess = sum([covariance[at][at] for at in range(_SIZE)]) / (_CONFIDENCE * _SIZE)
        if excess > 1:
            covariance = [(p / excess, q / excess, r / excess, s / excess) for p, q, r, s in covariance]
        return Regression(weights, tuple(covariance))


@dataclass(frozen=True)
class Forecasts:
    """Recent rates, guesses that are not due yet, and how wrong earlier ones were."""

    rates: Vector = ()
    at: float | None = None
    pending: tuple[Guess, ...] = ()
    errors: ForecastErrors = field(default_factory=ForecastErrors)
    """Those of the regression. Whether they are too high or too low doesn't matter: traffic that has just
    fallen fast may rise as fast."""
    beyond_peak: ForecastErrors = field(default_factory=ForecastErrors)
    """Those of the highest rate of the last minutes: by how much it was exceeded."""
    judged: int = 0
    """Guesses that became due, up to as many as are remembered."""
    following: Course = field(default_factory=Course)
    """The rate followed up and down."""
    holding: Course = field(default_factory=Course)
    """The highest rate of the last minutes kept."""
    regression: Regression = field(default_factory=Regression)

    @property
    def idle(self) -> bool:
        """Nothing arrived for as long as is remembered."""
        return not any(self.rates)

    @property
    def proven(self) -> bool:
        """Whether the errors seen outweigh those supposed, or there is nothing to be wrong about."""
        return self.idle or self.judged >= SUPPOSED

    @property
    def returns(self) -> bool:
        """Whether traffic returns to its last peak so soon that keeping the replicas for it costs less.

        Traffic that returns within minutes makes who follows it pay for starts and, as no trend shows it,
        for a large spare; and requests are late each time.
        """
        near = bool(self.pending) and self.pending[-1].horizon <= _NEAR
        return near and self.proven and self.holding.cost < _CLEARLY * self.following.cost

    @property
    def expected(self) -> float:
        """Requests per second at the horizon, spare included; 0 while nothing was seen."""
        return (self.holding if self.returns else self.following).rate

    @property
    def falling(self) -> bool:
        """Whether the rate falls by more than chance."""
        return _falls(self.rates)

    @cached_property
    def dispersion(self) -> float:
        """Variance over mean of the counts of a tick."""
        return dispersion(self.rates)

    def scaled(self, factor: float) -> "Forecasts":
        """The forecasts of `factor` times the traffic. Errors and weights are of ratios, and stay."""
        return replace(
            self,
            rates=tuple(rate * factor for rate in self.rates),
            pending=tuple(guess.scaled(factor) for guess in self.pending),
            following=self.following.scaled(factor),
            holding=self.holding.scaled(factor),
        )


class _Learned(NamedTuple):
    """The errors and the regression after a tick's due guesses, and the guesses that are not due yet."""

    pending: Sequence[Guess]
    errors: ForecastErrors
    beyond_peak: ForecastErrors
    judged: int
    regression: Regression


def observed(before: Forecasts, rate: float, at: float, horizon: float, span: float) -> Forecasts:
    """The forecasts after a tick with a known rate over ten seconds. `horizon` and `span` are in seconds.

    `span` is the time over whose mean a guess is judged: a burst that is shorter than requests may wait is
    waited out. A service without traffic is remembered as nothing at all, so that nothing about it changes.
    """
    if before.at is not None and at < before.at - STALE:
        # The clock was set back: when the guesses are due is not known any more.
        before = replace(before, at=None, pending=())
    if before.at is not None and at - before.at < TICK / 2:
        return before
    missed = 1 if before.at is None else min(_WINDOWS[-1], max(1, round((at - before.at) / TICK)))
    rates = (*before.rates, *(rate,) * missed)[-_WINDOWS[-1] :]
    if not any(rates):
        nothing = Course()
        return replace(before, rates=(), at=None, pending=(), following=nothing, holding=nothing)
    recent = rates[-max(1, round(span / TICK)) :]
    arrived = sum(recent)
    learned = _learned(before, arrived / len(recent), at, 1 / (TICK * max(_LEAST_RATE, arrived)))
    features, present = _features(rates, horizon)
    predicted = learned.regression.predict(features)
    guess = Guess(at + horizon, horizon, present, _peak(rates), features, predicted)
    following, holding = _asked(learned, guess, _rise(rates, horizon))
    return Forecasts(
        rates,
        at,
        (*learned.pending, guess),
        learned.errors,
        learned.beyond_peak,
        learned.judged,
        before.following.after(following, horizon),
        before.holding.after(holding, horizon),
        learned.regression,
    )


def _asked(forecasts: _Learned, guess: Guess, risen: float) -> tuple[float, float]:
    """The rates to plan with, spares included, for who follows the rate and for who keeps its peak.

    A line that rises gets a spare as well where the horizon is beyond the usual one. Below the peak it says
    nothing new.
    """
    reach = max(1.0, guess.horizon / USUAL_HORIZON)
    spare, over_peak = forecasts.errors.spare(reach), forecasts.beyond_peak.spare(reach)
    beyond = 1 - 1 / reach
    following = max(risen * exp(spare * beyond), guess.present * exp(guess.predicted + spare))
    new = risen * exp(over_peak * beyond) if guess.present >= guess.peak else 0.0
    return following, max(new, guess.peak * exp(over_peak))


def _peak(rates: Vector) -> float:
    """The highest mean of three ticks in a row, as many as the shortest window has."""
    if len(rates) < _WINDOWS[0]:
        return sum(rates) / len(rates)
    highest: float = max(map(add, map(add, rates, rates[1:]), rates[2:]))
    return highest / 3


def dispersion(rates: Sequence[float]) -> float:
    """Variance over mean of the counts of a tick, about their running mean; between 1 and 2."""
    if len(rates) < 8:
        return 2.0
    neighbours = zip(rates, rates[1:], rates[2:], rates[3:], rates[4:], strict=False)
    smooth = [(one + two + three + four + five) / 5 for one, two, three, four, five in neighbours]
    mean = sum(smooth) / len(smooth)
    if mean <= 0:
        return 1.0
    around = sum([(rate - value) ** 2 for rate, value in zip(rates[2:-2], smooth, strict=True)]) / len(smooth)
    return min(2.0, max(1.0, 1.25 * TICK * around / mean))


def _learned(forecasts: Forecasts, rate: float, at: float, chance: float) -> _Learned:
    """Compare due guesses with the counted rate, whose relative variance is `chance`, and learn from that.

    That a count scatters about its rate is no error of a forecast: requests wait it out in a queue, which the
    latency model reckons with. Without this a service with few requests would pay for it twice.

    Guesses overlap: at twice the horizon it takes twice as many of them to tell the same.
    """
    pending: list[Guess] = []
    regression, judged = forecasts.regression, forecasts.judged
    errors, beyond_peak = forecasts.errors.faded(), forecasts.beyond_peak.faded()
    now, counted = at + TICK / 2, max(_LEAST_RATE, rate)
    for guess in forecasts.pending:
        if guess.due > now:
            pending.append(guess)
            continue
        seen = log(counted / max(_LEAST_RATE, guess.present))
        # A step from almost nothing must not outweigh all others: the spare is bounded as well.
        errors = errors.after(min(FARTHEST, abs(seen - guess.predicted)), chance, judged)
        above = log(counted / max(_LEAST_RATE, guess.peak))
        beyond_peak = beyond_peak.after(min(FARTHEST, max(0.0, above)), chance, judged)
        judged = min(REMEMBERED - SUPPOSED, judged + 1)
        weight = min(1.0, USUAL_HORIZON / guess.horizon)
        regression = regression.taught(guess.features, max(-1.0, min(1.0, seen)), weight)
    return _Learned(pending, errors, beyond_peak, judged, regression)


def _features(rates: Vector, horizon: float) -> tuple[Vector, float]:
    """Logarithms of the ratios of neighbouring windows' means, and the mean of the shortest one.

    What moves goes on moving until the horizon. Beyond the usual one they count as many times as much, so
    that weights learned at one horizon, and how far they are supposed to lie from 0, hold at another.
    """
    reach = max(1.0, horizon / USUAL_HORIZON)
    count = len(rates)
    means = [sum(rates[-window:]) / (window if window < count else count) for window in _WINDOWS]
    logs = [log(mean if mean > _LEAST_RATE else _LEAST_RATE) for mean in means]
    return tuple([reach * (one - other) for one, other in pairwise(logs)]), means[0]


def _rise(rates: Vector, horizon: float) -> float:
    """The line through the last rates drawn on to the horizon, if it rises by more than chance; else 0.

    A surge that is new to the service is in no regression yet, and a spare learned in calm doesn't cover it.
    Chance is what neighbouring ticks differ by, and at least what counts scatter. A step is no rise: what
    counts is how steep the newer half is still.
    """
    if len(rates) < max(_RISES):
        return 0.0
    counted = _counted(rates)
    # The least scatter first: what does not rise beyond it needs no look at the others.
    if not _reached(rates, counted, horizon):
        return 0.0
    return min(_reached(rates, _scatter(rates, counted), horizon), _HIGHEST_RISE * rates[-1])


def _falls(rates: Vector) -> bool:
    """Whether a line through the last rates falls by more than chance."""
    if len(rates) < max(_RISES):
        return False
    steepest = min([_slope(rates[-ticks:]) / _error_of_slope(ticks, _FALLS) for ticks in _RISES])
    counted = _counted(rates)
    return steepest < -counted and steepest < -_scatter(rates, counted)


def _counted(rates: Vector) -> float:
    """The standard deviation of a count of one tick at the present rate, in requests per second."""
    return sqrt(max(_LEAST_RATE, sum(rates[-min(_RISES) :]) / min(_RISES)) / TICK)


def _scatter(rates: Vector, counted: float) -> float:
    """The scatter of ticks by chance: the difference of neighbours, and at least the scatter of counts."""
    differences = sorted([abs(after - before) for before, after in pairwise(rates)])
    return max(_MEDIAN * differences[len(differences) // 2], counted)


def _error_of_slope(ticks: int, errors: float) -> float:
    """The slope of `errors` standard errors, of a line through `ticks` values that scatter by 1."""
    return errors / sqrt(_steps(ticks)[1])


def _reached(rates: Vector, scatter: float, horizon: float) -> float:
    """The highest value that a line leads to; 0 if none rises significantly."""
    return max([_drawn_on(rates[-ticks:], scatter, horizon / TICK) for ticks in _RISES])


def _drawn_on(recent: Vector, scatter: float, ticks: float) -> float:
    """The value of the line through `recent` after `ticks` more; 0 if it does not rise significantly."""
    count = len(recent)
    slope = _slope(recent)
    if slope <= scatter * _error_of_slope(count, _SIGNIFICANT):
        return 0.0
    still = _slope(recent[count // 2 :])
    return sum(recent) / count + slope * (count - 1) / 2 + max(0.0, min(slope, still)) * ticks


def _slope(values: Vector) -> float:
    """The slope of the least-squares line, for each step."""
    offsets, spread = _steps(len(values))
    return _dot(offsets, values) / spread


@cache
def _steps(count: int) -> tuple[Vector, float]:
    """The distances of `count` steps from their middle, and the sum of their squares."""
    middle = (count - 1) / 2
    return tuple(index - middle for index in range(count)), count * (count**2 - 1) / 12


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    product: float = sum(map(mul, one, other))
    return product
