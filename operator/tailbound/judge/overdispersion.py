"""How far bad requests come in bursts: whether counts may be taken as they are, or what divides them.

Requests of one batch, or of one garbage collection, are slow together. Ten of them are one observation, and
taking them for ten would reject healthy candidates. Both revisions are measured, as the new one may have
bursts of its own (a bigger batch), and all along, as bursts may begin at any time. What is measured are the
differences of neighbouring polls: a drift hardly counts, a step in the rate counts once, and bursts count
each time.

Counts are taken as they are only while the candidate's bad requests are seen to be independent and stable's
are not seen to be anything else. Until then, and whenever bursts are seen, each poll is one value
(`betting`). An incident looks like bursts. So that it is not held against a rollout for ever, the measuring
begins again after `STRETCH` pairs of polls with bursts; what was counted in them stays divided.
"""

from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from tailbound.judge.evidence import Tally

STRETCH: Final = 60
"""Pairs of polls after which bursts are measured again."""
_LEAST_PAIRS: Final = 30
"""Pairs of polls without which nothing is known to be independent."""
_LEAST_BAD: Final = 20
_FEWEST_PAIRS: Final = 10
"""Pairs of polls, or of blocks, without which nothing is known to come in bursts."""
_LEAST_JUDGED: Final = 5
"""Requests of a block: the fraction of fewer ones says too little."""
_LONG_BLOCK: Final = 4
"""Polls of a long block, for bursts that are longer than a poll."""
_NOISE: Final = 2.0
"""Standard errors by which the dispersion must exceed that of independent requests to count as bursts."""


@dataclass(frozen=True)
class Factor:
    """Counts are divided by `value`. `measured` is false where too little was seen to tell."""

    value: float
    measured: bool
    reason: str

    @property
    def bursts(self) -> bool:
        """Whether requests were seen to be bad together."""
        return self.value > 1

    @property
    def independent(self) -> bool:
        """Whether requests were seen to be bad independently of each other."""
        return self.measured and not self.bursts


@dataclass(frozen=True)
class Blocks:
    """Running sums over pairs of neighbouring blocks of polls of one revision."""

    polls: int = 0
    """Polls in the block that is not complete."""
    block: Tally = field(default_factory=Tally)
    before: Tally = field(default_factory=Tally)
    """The last complete block; nothing before the first one."""
    pairs: int = 0
    squares: float = 0.0
    """Sum of the squared differences of the fractions, over 1/n of both."""

    def after(self, poll: Tally, size: int) -> "Blocks":
        """The sums after one more poll; a block has `size` of them, and more where requests are few."""
        now, before, polls = self.block + poll, self.before, self.polls + 1
        if polls < size or now.judged < _LEAST_JUDGED:
            return Blocks(polls, now, before, self.pairs, self.squares)
        if before.judged <= 0:
            return Blocks(before=now, pairs=self.pairs, squares=self.squares)
        difference = now.bad / now.judged - before.bad / before.judged
        square = difference**2 / (1 / now.judged + 1 / before.judged)
        return Blocks(before=now, pairs=self.pairs + 1, squares=self.squares + square)

    def excess(self, of: Tally) -> float:
        """Variance over that of independent requests; 1 if it is within noise of that, or too little."""
        fraction = of.bad / of.judged if of.judged else 0.0
        if self.pairs < _FEWEST_PAIRS or not 0 < fraction < 1:
            return 1.0
        dispersion = self.squares / self.pairs / (fraction * (1 - fraction))
        noise = sqrt((3 + self.pairs / of.bad) / self.pairs)
        return dispersion if dispersion > 1 + _NOISE * noise else 1.0


@dataclass(frozen=True)
class Spread:
    """How the bad requests of one revision spread over its polls, without those that had no requests."""

    total: Tally = field(default_factory=Tally)
    short: Blocks = Blocks()
    long: Blocks = Blocks()
    most: float = 0.0
    """The most bad requests of one poll: no burst within a poll is larger."""

    def after(self, poll: Tally) -> "Spread":
        """The spread after one more poll."""
        if poll.judged <= 0:
            return self
        return Spread(
            self.total + poll,
            self.short.after(poll, 1),
            self.long.after(poll, _LONG_BLOCK),
            max(self.most, poll.bad),
        )

    @property
    def factor(self) -> Factor:
        """The first row that matches decides.

        | pairs of polls | bad requests | dispersion, of polls or of long blocks | factor |
        |---|---|---|---|
        | 10, or of long blocks | any but all | beyond noise of 1 | the dispersion, measured |
        | fewer than 30 | any | - | 1, not measured |
        | 30 | fewer than 20, or all | - | 1, not measured |
        | 30 | 20 | within noise of 1 | 1, measured |
        """
        value, pairs = max(self.short.excess(self.total), self.long.excess(self.total)), self.short.pairs
        if value > 1:
            return Factor(value, True, f"bad requests vary {value:.1f} times as much as independent ones")
        if pairs < _LEAST_PAIRS:
            return Factor(1.0, False, f"it was watched for {pairs} of {_LEAST_PAIRS} pairs of polls")
        if self.total.bad < _LEAST_BAD:
            return Factor(1.0, False, f"it had {self.total.bad:g} of {_LEAST_BAD} bad requests")
        if self.total.bad >= self.total.judged:
            return Factor(1.0, False, "every request was bad")
        return Factor(1.0, True, "bad requests are as spread as independent ones")


@dataclass(frozen=True)
class Bursts:
    """The spread of both revisions since the measuring last began."""

    candidate: Spread = Spread()
    stable: Spread = Spread()
    before: float = 1.0
    """The factor with which the measuring last ended."""

    def after(self, candidate: Tally, stable: Tally) -> "Bursts":
        """The bursts after one more poll."""
        return Bursts(self.candidate.after(candidate), self.stable.after(stable), self.before)

    @property
    def factor(self) -> Factor:
        """The factor for both revisions; the first row that matches decides.

        | candidate | stable | factor |
        |---|---|---|
        | bursts | any | the larger one, measured |
        | any | bursts | stable's, measured |
        | any other | any other | the candidate's |
        """
        candidate, stable = self.candidate.factor, self.stable.factor
        return stable if stable.value > candidate.value else candidate

    @property
    def passing_factor(self) -> float:
        """What divides the counts that speak for the candidate: they need no independence to be shown."""
        pairs = self.candidate.short.pairs
        return max(self.factor.value, self.before if pairs < _LEAST_PAIRS else 1.0)

    @property
    def largest(self) -> float:
        """No burst within a poll was larger; at least 1."""
        return max(1.0, self.candidate.most, self.stable.most)

    @property
    def over(self) -> bool:
        """Bursts were seen for long enough that it is time to measure again."""
        pairs = max(self.candidate.short.pairs, self.stable.short.pairs)
        return pairs >= STRETCH and self.factor.bursts

    def again(self) -> "Bursts":
        """The state when the measurement begins again."""
        return Bursts(before=self.factor.value)
