"""Shapes and shocks that no rule was tuned on: each drawn anew with every seed.

Beside the product stand an HPA at 0.7 of a capacity that it knows, and the floor: a rule that knows the rate,
the speed of a batch and the queue at once, and must only wait for its pods.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

import numpy as np

from e2e.bench.autoscale import traces
from e2e.bench.autoscale.fleet import Faults, Fleet, Floats, Server
from e2e.bench.autoscale.scenario import Scenario
from e2e.bench.autoscale.traces import GPU, Trace

SEEDS: Final = 3
SMALL: Final = Server(base=0.2, per_row=0.1, batch=4)


@dataclass(frozen=True)
class Trial:
    """One row: a workload, and what happens to its fleet."""

    rates: Floats
    server: Server = GPU
    cold_start: float = 60.0
    faults: Faults | None = None
    tells_batches: bool = True

    def scenario(self, name: str, seed: int) -> Scenario:
        """Drawn with one seed."""
        return Scenario(Trace(name, self.rates, self.server), seed, self.cold_start, self.faults)


def _steady(
    least: float, most: float, seconds: int, server: Server = GPU
) -> Callable[[np.random.Generator], Trial]:
    return lambda random: Trial(np.full(seconds, random.uniform(least, most)), server)


def _step(random: np.random.Generator) -> Trial:
    at, level = int(random.uniform(600, 1000)), random.uniform(60, 140)
    rates = np.full(2100, level)
    rates[at:] *= 2
    return Trial(rates)


def _ramp(random: np.random.Generator) -> Trial:
    at, level, takes = random.uniform(600, 1000), random.uniform(60, 140), random.uniform(90, 180)
    return Trial(level * (1 + np.clip((np.arange(2100) - at) / takes, 0, 1)))


def _deaths(random: np.random.Generator) -> Trial:
    at = int(random.uniform(600, 1000))
    return Trial(np.full(2100, random.uniform(60, 140)), faults=Faults(deaths=(at,), dying=0.5))


def _square(random: np.random.Generator) -> Trial:
    phase, level = random.uniform(0, 480), random.uniform(50, 90)
    high = (np.arange(4800) + phase) % 480 >= 240
    return Trial(level * np.where(high, 2.0, 1.0))


def _drift(random: np.random.Generator) -> Trial:
    at = int(random.uniform(600, 1000))
    server = replace(GPU, target=2.5)
    rates = np.full(2100, random.uniform(60, 140))
    return Trial(rates, server, faults=Faults(slower_from=at, slower_by=1.35))


def _surges(random: np.random.Generator, seconds: int, level: float) -> Floats:
    at, rates = np.arange(seconds), np.full(seconds, 0.7)
    for middle in random.uniform(0, seconds, seconds // 900):
        rates += random.uniform(0.2, 0.7) * np.exp(-0.5 * ((at - middle) / random.uniform(150, 400)) ** 2)
    return level * rates


def _slow_start(random: np.random.Generator) -> Trial:
    hours = np.arange(5400) / 3600
    wave = 1 + 0.3 * np.sin(2 * np.pi * (hours / random.uniform(0.8, 1.4) + random.random()))
    return Trial(random.uniform(80, 140) * wave, cold_start=300.0)


def _padded(random: np.random.Generator) -> Trial:
    return Trial(_surges(random, 3600, random.uniform(70, 120)), replace(GPU, padded_to=8))


def _unreachable(random: np.random.Generator) -> Trial:
    """A batch of one takes .25 s, so that half of the requests take longer than this."""
    return Trial(_surges(random, 3600, random.uniform(70, 120)), replace(GPU, target=0.3))


def _overload_without_batches(random: np.random.Generator) -> Trial:
    at, level = int(random.uniform(600, 800)), random.uniform(60, 100)
    rates = np.full(3600, level)
    rates[at : at + 300] *= 2.5
    return Trial(rates, tells_batches=False)


def _week(random: np.random.Generator) -> Trial:
    """Seven days of a quarter of an hour each, with a steep morning and two quiet ones."""
    day = np.arange(900) / 900
    shape = 0.3 + 0.7 / (1 + np.exp(-(day - 0.3) * 60)) / (1 + np.exp((day - 0.8) * 40))
    days = [shape * random.uniform(0.9, 1.1) * (0.5 if number >= 5 else 1.0) for number in range(7)]
    noise = random.gamma(50, 1 / 50, 7 * 900 // 5).repeat(5)
    return Trial(random.uniform(110, 160) * np.concatenate(days) * noise)


def _code(random: np.random.Generator) -> Trial:
    """Long lulls, and bursts that are many times as high within seconds."""
    rates, at = np.full(2400, 8.0), 0.0
    while (at := at + random.exponential(150)) < 2400:
        length = int(random.uniform(10, 60))
        rates[int(at) : int(at) + length] += random.uniform(60, 150)
    return Trial(rates)


def _shape(name: str) -> Callable[[np.random.Generator], Trial]:
    """One of the shapes that `traces` draws."""

    def trial(random: np.random.Generator) -> Trial:
        shapes = traces.drawn(int(random.integers(2**31)))
        return Trial(next(shape.rates for shape in shapes if shape.name == name))

    return trial


TRIALS: Final[dict[str, Callable[[np.random.Generator], Trial]]] = {
    "steady 12/s": _steady(11, 13, 5400, SMALL),
    "steady 120/s": _steady(100, 140, 3600),
    "steady 8/s": _steady(7, 9, 5400),
    "step to double": _step,
    "ramp to double": _ramp,
    "half dies": _deaths,
    "square wave": _square,
    "batches 1.35x": _drift,
    "cold start 300 s": _slow_start,
    "padded batches": _padded,
    "no target holds": _unreachable,
    "overload mute": _overload_without_batches,
    "week": _week,
    "code": _code,
    **{name: _shape(name) for name in ("calm", "day", "surges", "noisy", "levels")},
}


def drawn(name: str, seed: int) -> Trial:
    """One row with one seed."""
    number = list(TRIALS).index(name)
    return TRIALS[name](np.random.default_rng([seed, number]))


@dataclass
class Known:
    """The floor: it is told the rate and the speed of this moment, and keeps what it needed lately."""

    rates: Floats
    usage: float = 0.85
    drained_in: float = 20.0
    every: int = 1
    past: list[int] = field(default_factory=list)

    def replicas(self, fleet: Fleet) -> int | None:
        """The replicas for what arrives now and for the queue that there will be when pods are ready."""
        now, server, faults = fleet.now, fleet.server, fleet.faults
        speed = server.capacity / (faults.slower_by if now >= faults.slower_from else 1.0)
        rate = float(self.rates[min(now, len(self.rates) - 1)])
        waiting = max(0.0, fleet.in_flight[now] - fleet.ready * server.batch)
        ahead = waiting + fleet.cold_start * (rate - speed * fleet.ready)
        if waiting > 0 and ahead > 0:
            rate += ahead / self.drained_in
        self.past = [*self.past[-int(fleet.cold_start) :], ceil(rate / (speed * self.usage))]
        return max(self.past)
