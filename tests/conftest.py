"""What holds for every test: the same examples each time, on a machine however busy, and ids one can type.

HYPOTHESIS_PROFILE=nightly takes others each time, and prints what repeats the one that fails.
"""

import os
import re
from collections.abc import Generator
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", settings.get_profile("repeatable"), derandomize=False, database=None, print_blob=True
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)

LONGEST_ID: Final = 80


def slug(identifier: str) -> str:
    """The id of a parametrized test without blanks and quotes, so that a shell and -k take it as it is."""
    ends_trimmed = re.sub(r"^[^\w.+-]+|[^\w.+-]+$", "", identifier, flags=re.ASCII)
    return re.sub(r"[^\w.=+-]+", "-", ends_trimmed, flags=re.ASCII)[:LONGEST_ID].rstrip("-")


def distinct(name: str, taken: set[str]) -> str:
    """This name, or with a number where another test of the same function has it; added to `taken`."""
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    taken.add(chosen)
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Tables keep their sentences as ids; the tests are named by slugs of them."""
    yield
    taken: set[str] = set()
    metafunc._calls[:] = [
        replace(call, _idlist=(distinct(slug(call.id), taken),)) if call._idlist else call
        for call in metafunc._calls
    ]
