"""How many runs a simulation makes: few in each run of the tests, many with HYPOTHESIS_PROFILE=nightly."""

from typing import Final, TypeVar

from tests.conftest import PROFILE

T = TypeVar("T")

NIGHTLY: Final = PROFILE == "nightly"


def effort(usual: T, nightly: T) -> T:
    """One of the two, by the profile."""
    return nightly if NIGHTLY else usual
