"""Rates by second: recorded ones where a folder of them is there, else drawn with the same shapes."""

import csv
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from e2e.bench.autoscale.fleet import Floats, Server

FOLDER: Final = "TAILBOUND_TRACES"
"""Variable that names the folder of recorded traces; else `../shared/traces` beside the checkout."""
GPU: Final = Server()
LANGUAGE_MODEL: Final = Server(base=2.0, per_row=0.5, target=20.0, delay=0.2)
_HOUR: Final = 3600
_SMOOTHED: Final = 5


@dataclass(frozen=True, eq=False)
class Trace:
    """A workload: requests per second by second, and the replicas that serve it."""

    name: str
    rates: Floats
    server: Server = GPU
    seeds: int = 3


def folder() -> Path | None:
    """The folder of recorded traces; None without one."""
    named = os.environ.get(FOLDER)
    beside = Path(__file__).resolve().parents[3].parent
    places = [Path(named)] if named else [beside / "shared/traces", beside.parent / "shared/traces"]
    return next((place for place in places if place.is_dir()), None)


def read(path: Path, scale: float) -> Trace:
    """One file: a rate per line, or requests with the columns TIMESTAMP, ContextTokens and GeneratedTokens.

    Raises ValueError for anything else.
    """
    with path.open() as lines:
        first = lines.readline().strip()
    if first.startswith("TIMESTAMP"):
        return Trace(path.stem, _requests(path) * scale)
    try:
        rates = np.loadtxt(path, ndmin=1)
    except ValueError as error:
        raise ValueError(f"{path}: neither one rate per line nor a column TIMESTAMP: {error}") from error
    return Trace(path.stem, rates * scale)


def _requests(path: Path) -> Floats:
    """Requests per second, averaged over a few seconds: a scaled-up count would arrive as one burst."""
    with path.open() as lines:
        stamps = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in csv.DictReader(lines)]
    times = np.array(stamps) - stamps[0]
    counts, _ = np.histogram(times, np.arange(0, int(times.max()) + 2))
    return np.convolve(counts, np.ones(_SMOOTHED) / _SMOOTHED, "same")


def recorded(place: Path) -> list[Trace]:
    """The traces of `place`, scaled to 5 to 20 replicas."""
    tables = np.genfromtxt(place / "servegen_rps_10min.csv", delimiter=",", names=True)[:144]
    conv = read(place / "AzureLLMInferenceTrace_conv_2023.csv", 27.0)
    return [
        Trace("bursty", read(place / "autothrottle_bursty.txt", 0.65).rates),
        Trace("diurnal", read(place / "autothrottle_diurnal.txt", 0.65).rates),
        Trace("conv", conv.rates),
        Trace("r1", _by_bins(tables["t_s"], tables["deepseekr1"] * 0.65), LANGUAGE_MODEL, 1),
        Trace("msmall", _by_bins(tables["t_s"], tables["msmall"] * 0.0085), LANGUAGE_MODEL, 1),
    ]


def _by_bins(times: Floats, rates: Floats) -> Floats:
    """Rates known every ten minutes, with bursts of five seconds that were not recorded put in."""
    seconds = int(times[-1])
    bursts = np.random.default_rng(7).gamma(4.0, 0.25, seconds // _SMOOTHED + 1).repeat(_SMOOTHED)
    return np.interp(np.arange(seconds), times, rates) * bursts[:seconds]


def drawn(seed: int) -> list[Trace]:
    """Five shapes of an hour: calm, a day in an hour, surges, noise, and levels that jump."""
    random = np.random.default_rng(seed)
    at = np.arange(_HOUR)
    day = 1 + 0.4 * np.sin(2 * np.pi * (at / _HOUR * 1.2 + random.random()))
    surges = np.full(_HOUR, 0.6)
    for middle in random.uniform(400, 3400, 4):
        width = random.uniform(180, 360)
        surges += random.uniform(0.3, 1.2) * np.exp(-0.5 * ((at - middle) / width) ** 2)
    noise = random.gamma(25, 1 / 25, _HOUR // _SMOOTHED).repeat(_SMOOTHED)
    levels = np.exp(random.normal(0, 0.2, _HOUR // 600)).repeat(600)
    steps = np.convolve(np.concatenate([np.full(119, levels[0]), levels]), np.ones(120) / 120, "valid")
    return [
        Trace("calm", 120 * _wander(random, 0.02, 60)),
        Trace("day", 150 * day * _wander(random, 0.03, 60)),
        Trace("surges", 130 * surges * _wander(random, 0.05, 120)),
        Trace("noisy", 150 * noise * _wander(random, 0.12, 300)),
        Trace("levels", 140 * steps * _wander(random, 0.02, 60)),
    ]


def _wander(random: np.random.Generator, spread: float, memory: float) -> Floats:
    """A random factor about 1 that is forgotten after `memory` seconds."""
    steps = random.normal(0, spread * np.sqrt(2 / memory), _HOUR)
    kept, value, path = 1 - 1 / memory, 0.0, np.zeros(_HOUR)
    for second, step in enumerate(steps):
        value = kept * value + step
        path[second] = value
    factors: Floats = np.exp(path)
    return factors
