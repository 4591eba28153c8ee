"""How fast this machine computes at present, by a fixed calculation."""

import time
from dataclasses import dataclass
from typing import Final

QUIET_SECONDS: Final = 0.08
"""The calculation on a quiet core of 3 GHz."""
_STEPS: Final = 1_000_000


@dataclass(frozen=True)
class Yardstick:
    """How long the calculation took."""

    cpu_seconds: float
    seconds: float
    """Wall-clock time: other work on the machine, or on its host, makes it longer than the CPU time."""

    @property
    def slowness(self) -> float:
        """The time as a multiple of that on a quiet core."""
        return self.seconds / QUIET_SECONDS


def measure() -> Yardstick:
    """Do the calculation once."""
    began, cpu, total = time.perf_counter(), time.process_time(), 0
    for number in range(_STEPS):
        total += number * number
    return Yardstick(time.process_time() - cpu, time.perf_counter() - began)
