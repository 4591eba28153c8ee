"""Evidence about the mean of bounded values, by betting against it (arXiv 2010.09686).

Values lie between 0 and 1. A gambler with one coin bets before each value that the mean is not what the null
hypothesis says; under the hypothesis no bet pays on average, whatever came before, so that by Ville's
inequality the fortune ever reaches 1/alpha with a chance of at most alpha, however often one looks. Several
gamblers, each of whom believes in another mean, share the coin: the fortune is the mean of theirs.

For values that are only 0 or 1 the payoff is the likelihood ratio of `evidence`, so that a ratio of counters
and a mean are judged alike. The hypothesis is about each value's mean given all earlier ones: values that
tell of the same requests would be counted twice.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Final

from tailbound.rollout.evidence import PASS_GRID, Tally, alternatives, highest, log_mean_exp, over_later_steps

STAKES: Final = (0.2, 0.6, 0.95)
"""Fractions of their fortune that the gamblers on a difference stake: how sure each of them is."""

BOLDNESS: Final = (0.25, 0.5, 0.85, 1.0)
"""How far from the bound to the highest mean, by orders of magnitude, the gamblers on polls believe it is."""


@dataclass(frozen=True)
class Bets:
    """Bets that a mean lies beyond `null`, on the side of the `alternatives`: all above it, or all below."""

    null: float
    alternatives: tuple[float, ...]
    logs: tuple[float, ...]
    """ln of each gambler's fortune."""

    def after(self, value: float, times: float = 1.0) -> "Bets":
        """The fortunes after a value between 0 and 1 came `times` times."""
        pairs = zip(self.logs, self.alternatives, strict=True)
        logs = tuple(held + times * log(self._payoff(value, believed)) for held, believed in pairs)
        return replace(self, logs=logs)

    def _payoff(self, value: float, believed: float) -> float:
        """What one coin becomes: linear in the value, and 1 where the value is the null's mean."""
        return value * believed / self.null + (1 - value) * (1 - believed) / (1 - self.null)

    @property
    def log_fortune(self) -> float:
        """ln of the evidence against the null."""
        return log_mean_exp(self.logs)

    def log_fortune_since(self, start: tuple[float, ...]) -> float:
        """ln of the evidence of the values since `logs` was `start`."""
        return log_mean_exp([now - then for now, then in zip(self.logs, start, strict=True)])


@dataclass(frozen=True)
class Difference:
    """Bets that the first of two means is the greater one, of values that come in pairs.

    What both values of a pair share, an incident or a drift, cancels out. Under the hypothesis that the first
    mean is at most the second one, given all earlier pairs, no stake on their difference pays on average. No
    other bet does better under all of that hypothesis. One pair is worth ln 2 at most, so that no candidate
    is rejected by fewer than nine.
    """

    logs: tuple[float, ...] = (0.0,) * len(STAKES)
    """ln of each gambler's fortune."""

    def after(self, first: float, second: float) -> "Difference":
        """The fortunes after one more pair of values between 0 and 1."""
        pairs = zip(self.logs, STAKES, strict=True)
        return Difference(tuple(held + log(1 + stake * (first - second)) for held, stake in pairs))

    @property
    def log_fortune(self) -> float:
        """ln of the evidence."""
        return log_mean_exp(self.logs)


@dataclass(frozen=True)
class Against:
    """Evidence that a mean is beyond its bound: in all, and since each later step."""

    bets: Bets
    step_starts: tuple[tuple[float, ...], ...] = ()
    """The logs at which each step but the first began."""

    def after(self, value: float) -> "Against":
        """What is known after one more value."""
        return replace(self, bets=self.bets.after(value))

    def after_poll(self, canary: Tally) -> "Against":
        """What is known after a poll, whose fraction of bad requests is one value however many there were.

        So it holds for requests that are bad together, in bursts of any size.
        """
        return self.after(canary.bad / canary.judged) if canary.judged > 0 else self

    def next_step(self) -> "Against":
        """As a step begins."""
        return replace(self, step_starts=(*self.step_starts, self.bets.logs))

    @property
    def absolute(self) -> float:
        """ln of the evidence of all values."""
        return self.bets.log_fortune

    @property
    def late(self) -> float:
        """ln of the evidence since the later steps, mixed."""
        return over_later_steps([self.bets.log_fortune_since(start) for start in self.step_starts])


def that_above(bound: float) -> Bets:
    """Bets that the mean is greater than `bound`, which is above 0 and below 1."""
    means = alternatives(bound)
    return Bets(bound, means, (0.0,) * len(means))


def that_polls_are_above(bound: float) -> Bets:
    """The same of fractions of polls. They vary less than single events, so that bolder bets pay."""
    means = tuple(bound ** (1 - share) * highest(bound) ** share for share in BOLDNESS)
    return Bets(bound, means, (0.0,) * len(means))


def that_below(bound: float) -> Bets:
    """Bets that the mean is less than `bound`, which is above 0 and below 1."""
    means = tuple(share * bound for share in PASS_GRID)
    return Bets(bound, means, (0.0,) * len(means))
