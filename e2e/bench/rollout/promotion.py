"""How long a healthy canary takes through all steps, by the requests that its proof needs."""

from dataclasses import dataclass
from math import ceil, log
from typing import Final

import numpy as np
from tailbound.rollout.verdict import BETA, Objective

from e2e.bench.rollout.rule import first, passing
from e2e.bench.rollout.scenarios import SEED, Counts

WEIGHTS: Final = (5, 25, 50, 100)
POLL_SECONDS: Final = 2
_RUNS: Final = 200
_REQUESTS: Final = 20_000


@dataclass(frozen=True)
class Pace:
    """Seconds from the first request to promotion, and requests that one step's proof took."""

    median: float
    p90: float
    requests: float


def requests_to_pass(truths: tuple[tuple[Objective, float], ...]) -> Counts:
    """By simulated step, the requests until every objective is proven; each has its true bad fraction."""
    random = np.random.default_rng(SEED)
    judged = np.broadcast_to(np.arange(1.0, _REQUESTS + 1), (_RUNS, _REQUESTS))
    passed = np.ones((_RUNS, _REQUESTS), dtype=bool)
    for objective, truth in truths:
        bad = (random.random((_RUNS, _REQUESTS)) < truth).cumsum(axis=1).astype(float)
        passed &= passing(judged, bad, objective.unacceptable) >= log(1 / BETA)
    found = first(passed) + 1
    if (found == 0).any():
        raise ValueError(f"some canary was not proven within {_REQUESTS} requests: simulate more of them")
    return found


def pace(needed: Counts, per_second: float) -> Pace:
    """The time that takes at this rate of all requests; every step draws its own requirement."""
    random = np.random.default_rng(SEED)
    seconds = np.zeros(1000)
    for weight in WEIGHTS:
        drawn = random.choice(needed, len(seconds)) / (per_second * weight / 100)
        seconds += np.array([ceil(each / POLL_SECONDS) * POLL_SECONDS for each in drawn])
    return Pace(float(np.median(seconds)), float(np.quantile(seconds, 0.9)), float(np.median(needed)))
