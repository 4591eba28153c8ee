"""How wrong forecasts have been, and the spare that follows from it."""

from math import log, sqrt
from typing import Final, NamedTuple

USUAL_HORIZON: Final = 85.0
"""Seconds: a cold start of a minute, the age of the metrics and a tick."""
FARTHEST: Final = log(2)
"""A forecast is at most twice the present rate, and at least half of it."""
REMEMBERED: Final = 360
"""Ticks, and so errors, that means are taken over: those of an hour."""
SUPPOSED: Final = 24
"""Errors' weight of `_SUPPOSED_ERROR`, which is reckoned with before any was seen."""
_SUPPOSED_ERROR: Final = 0.12
_SUPPOSED_LARGEST: Final = 0.4
"""The largest error that is reckoned with before any was seen."""
_DEVIATIONS: Final = 0.9
"""Spare at the usual horizon, in the errors' root mean square: four of five errors fall short by less, and
most of the rest waits in the queue without being late."""
_LARGEST_LEFT: Final = 0.998
"""The factor by which the largest error fades in a tick: half of it is left after an hour."""
_OUTLIER: Final = 3.0
"""An error counts for at most this many times their root mean square: of a shock, which no spare would cover,
little is learned for the next hour."""
_LEAST_SPARE: Final = 0.05
"""A service that has been calm so far has no errors that would tell of a surge."""


class ForecastErrors(NamedTuple):
    """The errors of one way to forecast, as logarithms of ratios."""

    mean_square: float = _SUPPOSED_ERROR**2
    largest: float = _SUPPOSED_LARGEST
    """The largest of them, older ones counting less."""

    def faded(self) -> "ForecastErrors":
        """The errors a tick later."""
        return ForecastErrors(self.mean_square, self.largest * _LARGEST_LEFT)

    def after(self, error: float, chance: float, judged: int) -> "ForecastErrors":
        """The errors with one more, of whose square `chance` is none, after `judged` others."""
        beyond_chance = max(0.0, error**2 - chance)
        wrong = min(beyond_chance, _OUTLIER**2 * self.mean_square)
        mean_square = self.mean_square + (wrong - self.mean_square) / (SUPPOSED + judged + 1)
        return ForecastErrors(mean_square, max(self.largest, sqrt(beyond_chance)))

    def spare(self, reach: float) -> float:
        """The logarithm of the spare at a horizon of `reach` usual ones.

        Being short lasts until the next replica comes. Beyond the usual horizon the spare therefore rises
        with the horizon, on top of the errors, which do so too; but not beyond the largest error that was
        seen of late, which it covers then. Smooth traffic has none that is much larger than the others.
        """
        usual = _DEVIATIONS * sqrt(self.mean_square)
        longer = max(usual, min(self.largest, usual * reach))
        return min(FARTHEST, max(_LEAST_SPARE, longer))
