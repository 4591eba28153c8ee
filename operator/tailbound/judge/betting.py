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
from functools import lru_cache
from math import log
from typing import Final

from tailbound.judge.evidence import PASS_GRID, Tally, alternatives, highest, log_mean_exp, over_later_steps
from tailbound.judge.windows import WINDOW_NATS, WINDOW_NATS_LATER, Sides, Span, Window

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
        return self.raised(tuple(times * gain for gain in self.gains(value)))

    def raised(self, gains: tuple[float, ...]) -> "Bets":
        """The fortunes after each gambler's ln has risen by its gain."""
        return Bets(self.null, self.alternatives, _sum(self.logs, gains))

    def gains(self, value: float) -> tuple[float, ...]:
        """What a value between 0 and 1 adds to each gambler's ln."""
        payoffs = _payoffs(self.null, self.alternatives)
        return tuple(log(value * best + (1 - value) * least) for least, best in payoffs)

    @property
    def extremes(self) -> tuple[tuple[float, float], ...]:
        """What the values 0 and 1 add to each gambler's ln."""
        return _log_payoffs(self.null, self.alternatives)

    @property
    def log_fortune(self) -> float:
        """ln of the evidence against the null."""
        return log_mean_exp(self.logs)


@dataclass(frozen=True)
class PairedTest:
    """Bets that the first of two means is the greater one, of values that come in pairs.

    What both values of a pair share, an incident or a drift, cancels out. Under the hypothesis that the first
    mean is at most the second one, given all earlier pairs, no stake on their difference pays on average. No
    other bet does better under all of that hypothesis. One pair is worth ln 2 at most, so that no candidate
    is rejected by fewer than nine.
    """

    logs: tuple[float, ...] = (0.0,) * len(STAKES)
    """ln of each gambler's fortune."""

    def after(self, first: float, second: float) -> "PairedTest":
        """The fortunes after one more pair of values between 0 and 1."""
        pairs = zip(self.logs, STAKES, strict=True)
        return PairedTest(tuple(held + log(1 + stake * (first - second)) for held, stake in pairs))

    @property
    def log_fortune(self) -> float:
        """ln of the evidence."""
        return log_mean_exp(self.logs)


@dataclass(frozen=True)
class BoundTest:
    """Evidence that a mean is beyond its bound: in all, and since each later step.

    What a window of polls adds to it is limited, as `windows` says, above 1 and above what it was. A fortune
    that is cut keeps its promise.
    """

    bets: Bets
    later: tuple[tuple[float, ...], ...] = ()
    """ln of the gamblers' fortunes since each step but the first began."""
    window: Window | None = None
    """The last one in which something was bad, or which holds the first requests; None before them."""
    failures: bool = False
    """What is bad are requests that failed."""

    def after_value(self, value: float, span: Span, sides: Sides) -> "BoundTest":
        """What is known after one more value, of requests that no other value covers."""
        return self._after(self.bets.gains(value), value, span, sides)

    def after_poll(self, candidate: Tally, span: Span, sides: Sides) -> "BoundTest":
        """What is known after a poll.

        Its fraction of bad requests is one value however many there were, so that it holds for requests that
        are bad together, in bursts of any size.
        """
        if candidate.judged <= 0:
            return self
        return self.after_value(candidate.bad / candidate.judged, span, sides)

    def after_counts(self, candidate: Tally, span: Span, sides: Sides) -> "BoundTest":
        """What is known after a poll, each request a value: for requests that are bad independently."""
        if candidate.judged <= 0:
            return self
        good, bad = candidate.judged - candidate.bad, candidate.bad
        gains = tuple(bad * up + good * down for down, up in self.bets.extremes)
        return self._after(gains, bad / candidate.judged, span, sides)

    def _after(self, gains: tuple[float, ...], value: float, span: Span, sides: Sides) -> "BoundTest":
        """What began before the window did may tell of an earlier one, and speaks for the candidate alone."""
        window = self.window
        held = window is not None and window.holds(span)
        if window is not None and held and span.began < window.since:
            gains = tuple(min(gain, 0.0) for gain in gains)
        elif window is None or (not held and value > 0):
            window = Window(span.began, span.at, (self.bets.logs, *self.later), first=window is None)
            held = True
        raised = self.bets.raised(gains)
        later = tuple(_sum(logs, gains) for logs in self.later)
        if window is None or not held:
            return replace(self, bets=raised, later=later)
        window = window.after(value, span)
        known = replace(self, bets=raised, later=later, window=window)
        return known._cut(window) if window.limited(sides, failures=self.failures) else known

    def _cut(self, window: Window) -> "BoundTest":
        """The fortunes, limited to what one window may add."""
        first, *later = window.levels
        return replace(
            self,
            bets=replace(self.bets, logs=_at_most(self.bets.logs, first, WINDOW_NATS)),
            later=tuple(
                _at_most(logs, level, WINDOW_NATS_LATER)
                for logs, level in zip(self.later, later, strict=True)
            ),
        )

    def divided(self, factor: float) -> "BoundTest":
        """The evidence divided by `factor`, because requests were bad together."""
        window = self.window
        if window is not None:
            window = replace(window, levels=tuple(_parts(logs, factor) for logs in window.levels))
        return replace(
            self,
            bets=replace(self.bets, logs=_parts(self.bets.logs, factor)),
            later=tuple(_parts(logs, factor) for logs in self.later),
            window=window,
        )

    def next_step(self) -> "BoundTest":
        """The evidence when a step begins, possibly within a window."""
        fresh, window = (0.0,) * len(self.bets.logs), self.window
        if window is not None:
            window = replace(window, levels=(*window.levels, fresh))
        return replace(self, later=(*self.later, fresh), window=window)

    @property
    def absolute(self) -> float:
        """ln of the evidence of all values."""
        return self.bets.log_fortune

    @property
    def late(self) -> float:
        """ln of the evidence since the later steps, mixed."""
        return over_later_steps([log_mean_exp(logs) for logs in self.later])


@lru_cache
def _payoffs(null: float, alternatives: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """What one coin becomes by the values 0 and 1: it is linear in between, and 1 at the null's mean."""
    return tuple(((1 - believed) / (1 - null), believed / null) for believed in alternatives)


@lru_cache
def _log_payoffs(null: float, alternatives: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((log(lowest), log(highest)) for lowest, highest in _payoffs(null, alternatives))


def _sum(logs: tuple[float, ...], gains: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(held + gain for held, gain in zip(logs, gains, strict=True))


def _parts(logs: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(held / factor for held in logs)


def _at_most(logs: tuple[float, ...], levels: tuple[float, ...], nats: float) -> tuple[float, ...]:
    return tuple(min(held, max(level, 0.0) + nats) for held, level in zip(logs, levels, strict=True))


def that_above(bound: float) -> Bets:
    """Bets that the mean is greater than `bound`, which is above 0 and below 1."""
    means = alternatives(bound)
    return Bets(bound, means, (0.0,) * len(means))


def that_polls_are_above(bound: float) -> Bets:
    """Bets that the mean of polls is above `bound`. Polls vary less than single events: bolder bets pay."""
    means = tuple(bound ** (1 - share) * highest(bound) ** share for share in BOLDNESS)
    return Bets(bound, means, (0.0,) * len(means))


def that_below(bound: float) -> Bets:
    """Bets that the mean is less than `bound`, which is above 0 and below 1."""
    means = tuple(share * bound for share in PASS_GRID)
    return Bets(bound, means, (0.0,) * len(means))
