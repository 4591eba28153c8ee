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

WINDOW_SECONDS: Final = 10.0
"""Bad polls within so many seconds may have one cause."""

BEGINNING_SECONDS: Final = 5.0
"""What is bad so soon after the first poll is bad from the beginning."""

EPISODE_SHARE: Final = 0.15
"""A window of which so much is bad may be an episode. Less than that adds little to the evidence."""

_WINDOWS: Final = 2.05
"""So many windows reach the threshold of a single test: two do not, three do, of two tests as well."""
_WINDOW_NATS: Final = log(1 / 0.0075) / _WINDOWS
_WINDOW_NATS_LATER: Final = log(1 / 0.0025) / _WINDOWS

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
        """The fortunes after each gambler's ln has risen by so much."""
        return Bets(self.null, self.alternatives, _sum(self.logs, gains))

    def gains(self, value: float) -> tuple[float, ...]:
        """What a value between 0 and 1 adds to each gambler's ln."""
        return tuple(log(self._payoff(value, believed)) for believed in self.alternatives)

    def _payoff(self, value: float, believed: float) -> float:
        """What one coin becomes: linear in the value, and 1 where the value is the null's mean."""
        return value * believed / self.null + (1 - value) * (1 - believed) / (1 - self.null)

    @property
    def log_fortune(self) -> float:
        """ln of the evidence against the null."""
        return log_mean_exp(self.logs)


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
class Window:
    """`WINDOW_SECONDS` of polls, from one with a bad request on, and the levels that the bets had before."""

    since: float
    """Unix time of its first poll."""
    levels: tuple[tuple[float, ...], ...]
    """ln of the fortunes of each process: all values first, then each later step."""
    beginning: bool = False
    """It began within `BEGINNING_SECONDS` of the first poll, with one of which much was bad."""
    polls: int = 0
    bad: float = 0.0
    """Sum of the polls' fractions of bad requests."""

    def lasts(self, at: float) -> bool:
        """Whether a poll at Unix time `at` belongs to it."""
        return at < self.since + WINDOW_SECONDS

    def after(self, value: float) -> "Window":
        """The window with one more poll."""
        return Window(self.since, self.levels, self.beginning, self.polls + 1, self.bad + value)

    @property
    def episode(self) -> bool:
        """Whether so much of it was bad that it may be one pod's, or anybody's, bad moment."""
        return not self.beginning and self.bad >= EPISODE_SHARE * self.polls


@dataclass(frozen=True)
class Against:
    """Evidence that a mean is beyond its bound: in all, and since each later step.

    Polls that follow each other closely may tell of one and the same incident: a pod that is slow for ten
    seconds makes five polls bad, and the bets would take them for five independent ones. So where much of a
    window is bad, it raises the evidence by no more than a share of what it takes to condemn, above 1 and
    above what it was: three separate windows are needed. A fortune that is cut keeps its promise. There is
    one exception: what is bad from its very first requests on is condemned at once.

    The limit that remains: an episode of more than 20 seconds fills three windows, and one that begins with
    the candidate's first requests is taken for the candidate's own.
    """

    bets: Bets
    later: tuple[tuple[float, ...], ...] = ()
    """ln of the gamblers' fortunes since each step but the first began."""
    window: Window | None = None
    since: float | None = None
    """Unix time of the first poll; None before it."""

    def after(self, value: float) -> "Against":
        """What is known after one more value, which tells of nothing that another one tells of."""
        gains = self.bets.gains(value)
        return replace(self, bets=self.bets.raised(gains), later=self._later(gains))

    def after_poll(self, canary: Tally, at: float) -> "Against":
        """What is known after a poll at Unix time `at`.

        Its fraction of bad requests is one value however many there were, so that it holds for requests that
        are bad together, in bursts of any size.
        """
        if canary.judged <= 0:
            return self
        return self._after(self.bets.gains(canary.bad / canary.judged), canary, at)

    def after_counts(self, canary: Tally, at: float) -> "Against":
        """The same where each request is a value, which holds for requests that are bad independently."""
        if canary.judged <= 0:
            return self
        bad, good = self.bets.gains(1.0), self.bets.gains(0.0)
        gains = tuple(
            canary.bad * up + (canary.judged - canary.bad) * down for up, down in zip(bad, good, strict=True)
        )
        return self._after(gains, canary, at)

    def _after(self, gains: tuple[float, ...], canary: Tally, at: float) -> "Against":
        since = self.since if self.since is not None else at
        window = self._window(canary, at, since)
        return Against(self.bets.raised(gains), self._later(gains), window, since)._cut()

    def _later(self, gains: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
        return tuple(_sum(logs, gains) for logs in self.later)

    def divided(self, factor: float) -> "Against":
        """With only one of `factor` parts of what is known, in which requests were bad together."""
        return replace(
            self,
            bets=replace(self.bets, logs=tuple(held / factor for held in self.bets.logs)),
            later=tuple(tuple(held / factor for held in logs) for logs in self.later),
            window=None,
        )

    def _window(self, canary: Tally, at: float, since: float) -> Window | None:
        window = self.window
        if window is None or not window.lasts(at):
            if canary.bad <= 0:
                return None
            outright = canary.bad >= EPISODE_SHARE * canary.judged
            beginning = outright and at < since + BEGINNING_SECONDS
            window = Window(at, (self.bets.logs, *self.later), beginning)
        return window.after(canary.bad / canary.judged)

    def _cut(self) -> "Against":
        """With no more than an episode may add."""
        if self.window is None or not self.window.episode:
            return self
        first, *later = (
            tuple(min(held, max(level, 0.0) + _most_of(step)) for held, level in zip(now, then, strict=True))
            for step, (now, then) in enumerate(
                zip((self.bets.logs, *self.later), self.window.levels, strict=True)
            )
        )
        return replace(self, bets=replace(self.bets, logs=first), later=tuple(later))

    def next_step(self) -> "Against":
        """As a step begins."""
        return replace(self, later=(*self.later, (0.0,) * len(self.bets.logs)), window=None)

    @property
    def absolute(self) -> float:
        """ln of the evidence of all values."""
        return self.bets.log_fortune

    @property
    def late(self) -> float:
        """ln of the evidence since the later steps, mixed."""
        return over_later_steps([log_mean_exp(logs) for logs in self.later])


def _sum(logs: tuple[float, ...], gains: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(held + gain for held, gain in zip(logs, gains, strict=True))


def _most_of(step: int) -> float:
    """Nats that one window may add to the evidence since this step, the first being 0.

    A later step has less of alpha, and a smaller weight among the later steps.
    """
    return _WINDOW_NATS if step == 0 else _WINDOW_NATS_LATER + log(step * (step + 1)) / _WINDOWS


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
