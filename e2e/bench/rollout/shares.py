"""A share of runs, and what it says about the chance behind it."""

from dataclasses import dataclass
from math import sqrt
from typing import Final

_STANDARD_ERRORS: Final = 1.96


@dataclass(frozen=True)
class Share:
    """A count of runs out of all runs, as a fraction with its interval."""

    count: int
    runs: int

    @property
    def value(self) -> float:
        """The share itself."""
        return self.count / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, which holds the true chance in 19 of 20 such measurements."""
        square = _STANDARD_ERRORS**2
        scale = 1 + square / self.runs
        middle = (self.value + square / (2 * self.runs)) / scale
        variance = self.value * (1 - self.value) / self.runs + square / (4 * self.runs**2)
        half = _STANDARD_ERRORS * sqrt(variance) / scale
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} [{low:.3f}, {high:.3f}]"
