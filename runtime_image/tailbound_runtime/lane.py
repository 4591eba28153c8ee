"""One thread of runs, and how it has something done on the event loop."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from tailbound_runtime.batch import Staging
from tailbound_runtime.engine import Run
from tailbound_runtime.queue import Job


class Lane:
    """One thread of runs.

    jobs: of the run that goes on; empty between runs
    begun: when it began, in the time of `perf_counter`
    ends: when it is expected to end, in the same time; infinite if that is not known
    run: what stops it
    warm: done when its thread is
    """

    __slots__ = ("begun", "ends", "jobs", "number", "run", "staging", "warm")

    def __init__(self, number: int, staging: Staging) -> None:
        self.number = number
        self.staging = staging
        self.jobs: Sequence[Job] = ()
        self.begun = 0.0
        self.ends = inf
        self.run = Run()
        self.warm: concurrent.futures.Future[None] = concurrent.futures.Future()


def settle(loop: asyncio.AbstractEventLoop, outcomes: Sequence[Callable[[], None]]) -> None:
    """Call these on the loop, in turn; any thread may."""
    with suppress(RuntimeError):  # the loop is closed: the process ends, and no caller is left
        loop.call_soon_threadsafe(_call_all, outcomes)


def _call_all(outcomes: Sequence[Callable[[], None]]) -> None:
    for outcome in outcomes:
        outcome()
