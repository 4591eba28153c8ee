"""How many pods each revision needs: for all requests, or for its share of them. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

ALL: Final = 100
"""Percent of the requests."""


@dataclass(frozen=True)
class Size:
    """Pods that carry a share of the requests."""

    pods: int
    share: int = ALL
    """Percent of the requests, above 0."""
    needed: int | None = None
    """Pods that the traffic of that share needs, above 0, where that is known: it may have more."""


@dataclass(frozen=True)
class Sizing:
    """The pods of every revision of a service.

    A revision with a smaller share needs proportionally fewer, but one at least. The one that serves is to be
    sized for all requests, also while a candidate takes some of them off it: they may come back at any time.

    For another share than it was sized for a revision gets what the traffic takes on the usual one, but no
    less and no more than fits what is known of it: who needs n whole pods needs more than n - 1.
    """

    least: int
    """Pods of a revision with all requests, whatever else is known."""
    most: int
    """Pods of a revision, whatever else is known."""
    usual: Size
    """Pods of a revision of which nothing else is known."""
    sizes: Mapping[str, Size] = field(default_factory=dict)
    """By revision."""

    def pods(self, revision: str, share: int = ALL) -> int:
        """Pods of a revision that is to carry this percentage of the requests."""
        size = self.sizes.get(revision, self.usual)
        pods = size.pods if share == size.share else self._expected(revision, size, share)
        return min(max(pods, ceil(self.least * share / ALL), 1), self.most)

    def _expected(self, revision: str, size: Size, share: int) -> int:
        """Pods for another share than those of `size` carry, before any bound."""
        fewest, most = _range(size, share)
        if revision not in self.sizes:
            return most
        usual = fewest if size is self.usual else _range(self.usual, share)[1]
        return min(max(usual, fewest), most)


def _range(size: Size, share: int) -> tuple[int, int]:
    """The fewest and the most pods for a share that fit what is known of another one."""
    known = size.pods if size.needed is None else size.needed
    return (known - 1) * share // size.share + 1, ceil(known * share / size.share)


def fixed(pods: int) -> Sizing:
    """The sizing of a service in which every revision needs `pods` pods for all requests."""
    return Sizing(least=pods, most=pods, usual=Size(pods))
