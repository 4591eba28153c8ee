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


@dataclass(frozen=True)
class Sizing:
    """The pods of every revision of a service.

    A revision with a smaller share needs proportionally fewer, but one at least. The one that serves is to be
    sized for all requests, also while a candidate takes some of them off it: they may come back at any time.
    """

    least: int
    """Pods of a revision with all requests, whatever else is known."""
    most: int
    """Pods of a revision, whatever else is known."""
    usual: Size
    """Of a revision of which nothing else is known."""
    sizes: Mapping[str, Size] = field(default_factory=dict)
    """By revision."""

    def pods(self, revision: str, share: int = ALL) -> int:
        """Pods of a revision that is to carry this percentage of the requests."""
        size = self.sizes.get(revision, self.usual)
        needed = ceil(size.pods * share / size.share)
        return min(max(needed, ceil(self.least * share / ALL), 1), self.most)


def fixed(pods: int) -> Sizing:
    """Every revision needs so many pods for all requests."""
    return Sizing(least=pods, most=pods, usual=Size(pods))
