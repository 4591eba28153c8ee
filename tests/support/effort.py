"""How many runs a simulation makes: few in each run of the tests, many with HYPOTHESIS_PROFILE=nightly."""

from collections.abc import Sequence
from itertools import product
from typing import Any, Final, TypeVar

from tests.conftest import PROFILE

T = TypeVar("T")

NIGHTLY: Final = PROFILE == "nightly"


def effort(usual: T, nightly: T) -> T:
    """One of the two, by the profile."""
    return nightly if NIGHTLY else usual


def covering(first: Sequence[Any], second: Sequence[Any], *others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each: all of them with the nightly profile.

    Otherwise each value of the first with each of the second, beside values of the others in turn.
    """
    if NIGHTLY:
        return list(product(first, second, *others))
    return [
        (one, two, *(each[(row + column) % len(each)] for each in others))
        for row, one in enumerate(first)
        for column, two in enumerate(second)
    ]
