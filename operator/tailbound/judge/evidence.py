"""E-processes: evidence that may be looked at after every request without losing its guarantee.

Each process is a mixture of likelihood ratios over the alternatives `GRID`. Under its null hypothesis its
expected value never exceeds 1, so by Ville's inequality it ever reaches 1/alpha with probability at most
alpha, however often it is looked at. Values are natural logarithms throughout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Annotated, Final, TypeAlias

from pydantic import Field

GRID: Final = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
"""How many times worse than allowed the alternatives are. Equal weights."""

_LOG_GRID: Final = tuple(log(k) for k in GRID)

PASS_GRID: Final = (0.75, 0.5, 0.25, 0.1, 0.02)
"""How much of the unacceptable fraction a healthy candidate's true fraction might be. Equal weights."""

OVERSHOOT_CREDIT: Final = 0.7
"""Nats by which the absolute test may stop below ln(1/alpha), for what `credited` accepts.

One slow request lifts the evidence past the threshold by most of a nat, so Ville's inequality is not tight.
How loose it is can be computed: a healthy candidate's requests are each slow with a probability of at most
the allowed one, whatever happened before, and can be coupled to requests that are slow with exactly that
probability and never fewer. More slow requests never leave the stopping region, nor does the floor of
`AT_LEAST_BAD` change that. So the independent requests at the allowed fraction bound every healthy candidate,
and looking once per poll, not at every request, only lowers the chance. For them dynamic programming gives at
most 0.99 alpha, the mass left at its horizon bounded by Ville's inequality. Counts that come in bursts are
not coupled so, and get no credit.
"""
_CREDITED_ALPHAS: Final = (0.0025, 0.05)
_CREDITED_FRACTIONS: Final = (0.001, 0.1)

AT_LEAST_BAD: Final = 5
"""No candidate is rejected by fewer bad requests: two cold starts are not a verdict."""

_HIGHEST: Final = 0.95


@dataclass(frozen=True)
class Tally:
    """Requests judged, and those of them that were bad (slow, or failed). Fractional where deflated."""

    judged: float = 0.0
    bad: float = 0.0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.judged + other.judged, self.bad + other.bad)

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.judged - other.judged, self.bad - other.bad)

    def deflated(self, factor: float) -> "Tally":
        """The evidence if only one of every `factor` requests of a burst had been counted."""
        return Tally(self.judged / factor, self.bad / factor)


StoredAsCanary: TypeAlias = Annotated[Tally, Field(alias="canary")]
"""The candidate's counts; a stored rollout has them under the name that earlier versions read and wrote."""


def credited(alpha: float, allowed: float) -> bool:
    """Whether `OVERSHOOT_CREDIT` was computed for a test at `alpha` of this allowed fraction."""
    return _within(alpha, _CREDITED_ALPHAS) and _within(allowed, _CREDITED_FRACTIONS)


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]


def highest(allowed: float) -> float:
    """The fraction above `allowed` beyond which no test is made for one of its own."""
    return max(_HIGHEST, (1 + allowed) / 2)


def alternatives(allowed: float) -> tuple[float, ...]:
    """The fractions above `allowed` that an absolute test is strong against, one for each of `GRID`."""
    return tuple(min(k * allowed, highest(allowed)) for k in GRID)


def _log_sum_exp(values: Sequence[float]) -> float:
    """ln of the sum of exp(values), without overflow."""
    top = max(values)
    return top + log(sum(exp(value - top) for value in values))


def log_mean_exp(values: Sequence[float]) -> float:
    """ln of the mean of exp(values), without overflow."""
    return _log_sum_exp(values) - log(len(values))


def _log_ratio(tally: Tally, numerator: float, denominator: float) -> float:
    """ln of the likelihood of `tally` under one bad fraction over that under another."""
    good = tally.judged - tally.bad
    return tally.bad * log(numerator / denominator) + good * log((1 - numerator) / (1 - denominator))


def absolute(candidate: Tally, allowed: float) -> float:
    """Evidence that the candidate's bad fraction exceeds `allowed`; ln E, from cumulative counts."""
    return log_mean_exp([_log_ratio(candidate, fraction, allowed) for fraction in alternatives(allowed)])


def passing(candidate: Tally, unacceptable: float) -> float:
    """Evidence that the candidate's bad fraction is below `unacceptable`; ln E, from this step's counts."""
    return log_mean_exp([_log_ratio(candidate, share * unacceptable, unacceptable) for share in PASS_GRID])


@dataclass(frozen=True)
class Relative:
    """Evidence that the candidate's bad fraction exceeds `ratio` times stable's; one ln E per alternative.

    Each bad request only votes on whose it is, so an incident that hits both arms cancels out, whatever its
    size. Requests are compared once both arms have served some: of a small service most polls have requests
    of one arm alone, and none of them is lost.
    """

    ratio: float
    logs: tuple[float, ...] = (0.0,) * len(GRID)
    """Logarithms of the e-values of all requests that were compared."""
    settled: tuple[float, ...] = (0.0,) * len(GRID)
    """The part of `logs` that is divided for bursts already."""
    candidate: StoredAsCanary = Tally()
    """Requests that wait for some of the other arm."""
    stable: Tally = Tally()

    def after(self, candidate: Tally, stable: Tally) -> "Relative":
        """The evidence after one more poll."""
        candidate, stable = self.candidate + candidate, self.stable + stable
        if candidate.judged <= 0 or stable.judged <= 0:
            return Relative(self.ratio, self.logs, self.settled, candidate, stable)
        if candidate.bad <= 0 and stable.bad <= 0:
            return Relative(self.ratio, self.logs, self.settled)
        odds = self.ratio * candidate.judged / stable.judged
        # Of k times the odds of the null, the candidate's share of the bad is k(1 + odds)/(1 + k odds) times
        # the null's, and stable's the same without the k.
        bad = candidate.bad + stable.bad
        logs = tuple(
            held + candidate.bad * log_k + bad * log((1 + odds) / (1 + k * odds))
            for held, k, log_k in zip(self.logs, GRID, _LOG_GRID, strict=True)
        )
        return Relative(self.ratio, logs, self.settled)

    def deflated(self, factor: float) -> "Relative":
        """The evidence of counts divided by `factor`, in which shares of traffic are what they were."""
        logs = tuple(then + (now - then) / factor for now, then in zip(self.logs, self.settled, strict=True))
        return replace(self, logs=logs)

    def settle(self, factor: float) -> "Relative":
        """The evidence divided by `factor` for good: what comes from now on is divided by another one."""
        known = self.deflated(factor)
        return replace(known, settled=known.logs)

    @property
    def value(self) -> float:
        """ln E of the mixture."""
        return log_mean_exp(self.logs)


def over_later_steps(values: Sequence[float]) -> float:
    """Evidence since each step but the first, mixed; ln E.

    Step j >= 1 weighs 1/(j(j+1)); what belongs to steps not begun stays at 1, which keeps the whole an
    e-process.
    """
    terms = [value - log(step * (step + 1)) for step, value in enumerate(values, start=1)]
    return _log_sum_exp([-log(len(values) + 1), *terms])
