"""Simulated traffic of both arms, poll by poll, for many rollouts at once. Seeded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SEED: Final = 20250917


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests and slow ones by rollout and poll. `window` polls make one check of a slower rule."""

    canary: Counts
    canary_bad: Counts
    stable: Counts
    stable_bad: Counts
    window: int
    steps: tuple[int, ...] = (0,)
    """Polls at which a step begins."""

    def by_window(self) -> tuple[Counts, Counts, Counts, Counts]:
        """Canary, its slow ones, stable and its slow ones, summed over windows."""
        return (
            _windows(self.canary, self.window),
            _windows(self.canary_bad, self.window),
            _windows(self.stable, self.window),
            _windows(self.stable_bad, self.window),
        )


def _windows(counts: Counts, window: int) -> Counts:
    runs, polls = counts.shape
    summed: Counts = counts.reshape(runs, polls // window, window).sum(axis=2)
    return summed


@dataclass(frozen=True)
class Scenario:
    """A kind of rollout. Healthy ones must not be rolled back."""

    name: str
    healthy: bool
    polls: int
    window: int
    canary_rate: Callable[[Floats], Floats]
    """Requests per poll, from the share of the rollout that has passed."""
    stable_rate: Callable[[Floats], Floats]
    canary_slow: Callable[[Floats], Floats]
    stable_slow: Callable[[Floats], Floats]
    steps: tuple[int, ...] = (0,)
    batch: int = 1
    """Requests that are slow together."""
    fixed: bool = True
    """The same number of requests in every poll; Poisson otherwise."""

    def traffic(self, runs: int) -> Traffic:
        """The traffic of that many rollouts."""
        random = np.random.default_rng([SEED, *self.name.encode()])
        time = np.linspace(0, 1, self.polls)
        canary = self._requests(random, runs, self.canary_rate(time))
        stable = self._requests(random, runs, self.stable_rate(time))
        return Traffic(
            canary,
            self._slow(random, canary, self.canary_slow(time)),
            stable,
            self._slow(random, stable, self.stable_slow(time)),
            self.window,
            self.steps,
        )

    def _requests(self, random: np.random.Generator, runs: int, rate: Floats) -> Counts:
        shape = (runs, len(rate))
        if self.fixed:
            return np.broadcast_to(np.rint(rate).astype(np.int64), shape)
        return random.poisson(rate, shape)

    def _slow(self, random: np.random.Generator, requests: Counts, fraction: Floats) -> Counts:
        return random.binomial(requests // self.batch, fraction) * self.batch


def constant(value: float) -> Callable[[Floats], Floats]:
    """The same all the time."""
    return lambda time: np.full_like(time, value)


def rising(low: float, high: float) -> Callable[[Floats], Floats]:
    """Rising in a straight line."""
    return lambda time: low + (high - low) * time


def incident(usual: float, during: float) -> Callable[[Floats], Floats]:
    """Bad for a sixth of the rollout, from one third on."""
    return lambda time: np.where((time >= 1 / 3) & (time < 1 / 2), during, usual)


def stairs(*values: float) -> Callable[[Floats], Floats]:
    """One value after the other, each for as long."""
    return lambda time: np.asarray(values)[np.minimum((time * len(values)).astype(int), len(values) - 1)]


def _simple(name: str, canary: float, stable: float, *, healthy: bool) -> Scenario:
    """600 polls of 10 canary and 90 stable requests; others check every 10 polls, 100 canary requests."""
    return Scenario(name, healthy, 600, 10, constant(10), constant(90), constant(canary), constant(stable))


def _sparse(name: str, slow: float) -> Scenario:
    """About one canary request per poll and per check."""
    return Scenario(name, True, 600, 1, constant(1), constant(9), constant(slow), constant(slow), fixed=False)


HEALTHY: Final = (
    _simple("both 1 %, the edge of the SLA", 0.01, 0.01, healthy=True),
    _simple("canary 1 %, stable .5 %", 0.01, 0.005, healthy=True),
    _simple("both .5 %", 0.005, 0.005, healthy=True),
    _sparse("both .5 %, one request per poll", 0.005),
    _sparse("both 1 %, one request per poll", 0.01),
    Scenario(
        "shared incident",
        True,
        600,
        10,
        constant(10),
        constant(90),
        incident(0.005, 0.1),
        incident(0.005, 0.1),
    ),
    Scenario(
        "both drift .2 to 1 %",
        True,
        600,
        10,
        constant(10),
        constant(90),
        rising(0.002, 0.01),
        rising(0.002, 0.01),
    ),
    Scenario(
        "weights 5 to 50 %, both drift .3 to 2 %",
        True,
        600,
        10,
        stairs(5, 25, 50),
        stairs(95, 75, 50),
        rising(0.003, 0.02),
        rising(0.003, 0.02),
        steps=(0, 200, 400),
    ),
    Scenario(
        "bursts of 10, both 1 %",
        True,
        600,
        10,
        constant(20),
        constant(180),
        constant(0.01),
        constant(0.01),
        batch=10,
    ),
    Scenario(
        "bursts of 10, canary 1 %, stable .5 %",
        True,
        600,
        10,
        constant(20),
        constant(180),
        constant(0.01),
        constant(0.005),
        batch=10,
    ),
)

UNHEALTHY: Final = tuple(
    _simple(f"canary {percent} %, stable .5 %", percent / 100, 0.005, healthy=False)
    for percent in (2, 5, 10, 50)
)
BARELY_WORSE: Final = _simple("canary 2 %, stable 1 %", 0.02, 0.01, healthy=False)
LATE: Final = Scenario(
    "canary 5 % from step 3 on, stable .5 %",
    False,
    600,
    10,
    constant(10),
    constant(90),
    stairs(0.005, 0.005, 0.05),
    constant(0.005),
    steps=(0, 200, 400),
)
