"""What a candidate is compared with once it has all requests: what stable showed in its last minutes.

Stable gets no requests then, so that nothing cancels out any more. What speaks against a candidate is more
bad requests than stable had before it, by the same ratio as in the comparison beside each other: new and old
may be bad alike, and a fix may be less bad than what it replaces. Stable's fraction is not known but
estimated, from few requests badly: the bound is its upper limit, and small services look back further. What
stable never showed, a short incident that begins later, is the matter of `betting.Against`, which asks for
three separate windows.

A share of the requests that stays with stable would compare better. It is not kept, as blueGreen promises
that all requests move at once, and as stable's pods would have to stay for it.
"""

from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from tailbound.judge.evidence import Tally

_BUCKET_SECONDS: Final = 300.0
_BUCKET_REQUESTS: Final = 300
"""Fewer leave the upper limit of a fraction of 1 % so far above it that no bad candidate is found."""
_CONFIDENCE: Final = 1.645
"""Standard errors of an upper limit that one true fraction in twenty exceeds."""
_HIGHEST: Final = 0.9


@dataclass(frozen=True)
class Recent:
    """Stable's requests of the last five to ten minutes in which it had any, and 300 of them at least.

    A service with few requests is remembered for longer.
    """

    older: Tally = field(default_factory=Tally)
    newer: Tally = field(default_factory=Tally)
    since: float | None = None
    """Unix time at which `newer` began; None before the first request."""

    def after(self, poll: Tally, at: float) -> "Recent":
        """The recent counts after a poll at Unix time `at`."""
        if poll.judged <= 0:
            return self
        since = at if self.since is None else self.since
        if at < since + _BUCKET_SECONDS or self.newer.judged < _BUCKET_REQUESTS:
            return Recent(self.older, self.newer + poll, since)
        return Recent(self.newer, poll, at)

    @property
    def total(self) -> Tally:
        """All of them."""
        return self.older + self.newer

    def bound(self, allowed: float, ratio: float, bursts: float) -> float:
        """The fraction of bad requests beyond which a candidate is worse than stable was.

        It is `ratio` times the upper limit of stable's fraction, and what is `allowed` at least. Counts are
        divided by `bursts` for the limit.
        """
        total = self.total.deflated(bursts)
        square = _CONFIDENCE**2
        upper = (total.bad + square / 2 + _CONFIDENCE * sqrt(total.bad + square / 4)) / total.judged
        return min(max(allowed, ratio * upper), max(allowed, _HIGHEST))
