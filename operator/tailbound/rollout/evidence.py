"""E-processes: evidence that may be looked at after every request without losing its guarantee.

Each process is a mixture of likelihood ratios over the alternatives `GRID`. Under its null hypothesis its expected
value never exceeds 1, so by Ville's inequality it ever reaches 1/alpha with probability at most alpha, however often
it is looked at. Values are natural logarithms throughout.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import Final

GRID: Final = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""How many times worse than allowed the alternatives are. Equal weights."""

PASS_GRID: Final = (0.75, 0.5, 0.25, 0.1, 0.02)
"""The share of the unacceptable fraction that a healthy canary's true fraction might be."""

CREDITED_ALPHAS: Final = (0.0025, 0.05)
OVERSHOOT_CREDIT: Final = 0.65
"""Nats by which the absolute test may stop below ln(1/alpha), for alpha within `CREDITED_ALPHAS`.

A single slow request lifts the evidence past the threshold by most of a nat, so Ville's inequality is not tight.
The absolute test's stopping region is upward closed in the number of slow requests, hence the chance to enter it is
largest where every request is slow with exactly the allowed probability (couple the requests of any drifting canary
to those), and there it is computed exactly by dynamic programming: at most 0.96 alpha for allowed fractions from
0.1 % to 10 %, the unlimited future included. Counts that were deflated for bursts are not Bernoulli trials and get no credit.
"""

AT_LEAST_BAD: Final = 5
"""No canary is condemned by fewer bad requests: two cold starts are not a verdict."""

_HIGHEST_PROBABILITY: Final = 0.95


@dataclass(frozen=True)
class Tally:
    """Requests judged, and those of them that were bad (slow, or failed). Fractional where deflated for bursts."""

    judged: float = 0.0
    bad: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.judged + other.judged, self.bad + other.bad)

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.judged - other.judged, self.bad - other.bad)

    def deflated(self, factor: float) -> "Tally":
        """As if only one of every `factor` requests of a burst had been counted."""
        return Tally(self.judged / factor, self.bad / factor)


def log_mean_exp(values: tuple[float, ...]) -> float:
    """ln of the mean of exp(values), without overflow."""
    top = max(values)
    if top == -inf:
        return -inf
    return top + log(sum(exp(value - top) for value in values) / len(values))


def _log_ratio(tally: Tally, numerator: float, denominator: float) -> float:
    """ln of the likelihood of `tally` under one bad fraction over that under another."""
    good = tally.judged - tally.bad
    return tally.bad * log(numerator / denominator) + good * log((1 - numerator) / (1 - denominator))


def absolute(canary: Tally, allowed: float) -> float:
    """Evidence that the canary's bad fraction exceeds `allowed`; ln E, from cumulative counts."""
    return log_mean_exp(
        tuple(_log_ratio(canary, min(k * allowed, _HIGHEST_PROBABILITY), allowed) for k in GRID)
    )


def passing(canary: Tally, unacceptable: float) -> float:
    """Evidence that the canary's bad fraction is below `unacceptable`; ln E, from the counts of this step alone."""
    return log_mean_exp(tuple(_log_ratio(canary, share * unacceptable, unacceptable) for share in PASS_GRID))


@dataclass(frozen=True)
class Relative:
    """Evidence that the canary's bad fraction exceeds `ratio` times stable's, poll by poll; one ln E per alternative.

    Each bad request only votes on whose it is, so an incident that hits both arms cancels out, whatever its size.
    """

    ratio: float
    logs: tuple[float, ...] = (0.0,) * len(GRID)

    def after(self, canary: Tally, stable: Tally) -> "Relative":
        """The evidence after one more poll. A poll in which either arm served nothing says nothing."""
        if canary.judged <= 0 or stable.judged <= 0:
            return self
        share = canary.judged / (canary.judged + stable.judged)
        null = _share_of_bad(self.ratio, share)
        steps = []
        for k in GRID:
            alternative = _share_of_bad(self.ratio * k, share)
            steps.append(
                canary.bad * log(alternative / null) + stable.bad * log((1 - alternative) / (1 - null))
            )
        return Relative(self.ratio, tuple(value + step for value, step in zip(self.logs, steps, strict=True)))

    @property
    def value(self) -> float:
        """ln E of the mixture."""
        return log_mean_exp(self.logs)


def _share_of_bad(ratio: float, share: float) -> float:
    """The canary's share of the bad requests, if it is `ratio` times as bad and has `share` of the traffic."""
    return ratio * share / (ratio * share + 1 - share)


def late_onset(canary: Tally, step_starts: tuple[Tally, ...], allowed: float) -> float:
    """`absolute`, mixed over the later steps at which the canary may have turned bad; ln E.

    `step_starts` are the cumulative counts at which each step began, the first being zero. Step j >= 1 weighs
    1/(j(j+1)); what belongs to steps not begun stays at 1, which keeps the whole an e-process.
    """
    terms = [-log(len(step_starts))]
    for step, start in enumerate(step_starts[1:], start=1):
        terms.append(absolute(canary - start, allowed) - log(step * (step + 1)))
    top = max(terms)
    return top + log(sum(exp(term - top) for term in terms))
