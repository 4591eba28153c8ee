"""Copies of simulated objects."""

import pickle
from typing import TypeVar

T = TypeVar("T")


def copied(value: T) -> T:
    """An equal value that shares nothing with this one; several times as fast as `copy.deepcopy`."""
    found: T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return found
