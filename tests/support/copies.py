"""Copies of what tests work on, as a simulated cluster."""

import pickle
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def copied(value: T) -> T:
    """An equal value that shares nothing with this one; several times as fast as `copy.deepcopy`."""
    found: T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return found


def remembered(make: Callable[P, T]) -> Callable[P, T]:
    """`make`, which then works once for equal arguments: each call gets a copy of its own of what it made."""
    known: dict[bytes, bytes] = {}

    @wraps(make)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        key = pickle.dumps((args, kwargs))
        if key not in known:
            known[key] = pickle.dumps(make(*args, **kwargs), pickle.HIGHEST_PROTOCOL)
        found: T = pickle.loads(known[key])
        return found

    return again
