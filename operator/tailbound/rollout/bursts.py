"""How far slow requests come in bursts: the factor by which counts are deflated.

Requests of one batch, or of one garbage collection, are slow together. Ten of them are one observation, and
taking them for ten would condemn healthy canaries. Stable shows before the rollout how its slow requests
spread over polls.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Final

from tailbound.rollout.evidence import Tally

_LEAST_POLLS: Final = 30
_LEAST_BAD: Final = 20
LARGEST: Final = 16.0
"""So many requests are bad together at most, as far as evidence goes that does not count by polls: twice the
size of a batch if nothing else is written."""
_NOISE: Final = 2.0
"""Standard errors by which the dispersion must exceed that of independent requests to count as bursts."""


@dataclass(frozen=True)
class Factor:
    """Counts are divided by `value`. `measured` is false where stable has shown too little to tell."""

    value: float
    measured: bool
    reason: str

    @property
    def independent(self) -> bool:
        """Whether requests were measured to be slow independently of each other."""
        return self.measured and self.value == 1.0


@dataclass(frozen=True)
class Dispersion:
    """Running sums over stable's polls before a rollout, without those that had no requests."""

    polls: int = 0
    judged: float = 0.0
    bad: float = 0.0
    squares: float = 0.0
    """Sum of bad^2 / judged over the polls."""

    def after(self, stable: Tally) -> "Dispersion":
        """The sums after one more poll."""
        if stable.judged <= 0:
            return self
        return Dispersion(
            self.polls + 1,
            self.judged + stable.judged,
            self.bad + stable.bad,
            self.squares + stable.bad**2 / stable.judged,
        )

    def factor(self, largest_batch: float | None = None) -> Factor:
        """Variance over mean of the bad counts, against the binomial of independent requests; never below 1.

        | polls, bad requests  | dispersion              | factor                                          |
        |----------------------|-------------------------|-------------------------------------------------|
        | too few of either    | -                       | 1, not measured                                 |
        | every request bad    | -                       | 1, not measured                                 |
        | enough               | within noise of 1       | 1, measured                                     |
        | enough               | beyond                  | the dispersion, at most `largest_batch` if known |
        """
        if self.polls < _LEAST_POLLS:
            return Factor(1.0, False, f"stable was watched for {self.polls} of {_LEAST_POLLS} polls")
        if self.bad < _LEAST_BAD:
            return Factor(1.0, False, f"stable had {self.bad:g} of {_LEAST_BAD} bad requests")
        fraction = self.bad / self.judged
        if fraction >= 1:
            return Factor(1.0, False, "every request to stable was bad")
        expected = fraction * (1 - fraction) * (self.polls - 1)
        dispersion = (self.squares - self.bad**2 / self.judged) / expected
        noise = sqrt((2 + self.polls / self.bad) / self.polls)
        if dispersion <= 1 + _NOISE * noise:
            return Factor(1.0, True, "stable's bad requests are as spread as independent ones")
        if largest_batch is not None and dispersion > largest_batch:
            return Factor(max(1.0, largest_batch), True, f"no batch was larger than {largest_batch:g}")
        return Factor(
            dispersion, True, f"stable's bad requests vary {dispersion:.1f} times as much as independent ones"
        )
