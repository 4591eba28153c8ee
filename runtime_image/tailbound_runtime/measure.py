"""`tailbound-runtime bench MODEL`: how fast a model runs here, by rows of a run and by callers at once.

It runs in this process, without a server: what it shows is the most that a server can give.
"""

import argparse
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tailbound_runtime.batchable import ROUNDS, Random, draw
from tailbound_runtime.engine import Engine, Order, Run, TensorSpec
from tailbound_runtime.engines import format_of, kinds_of, load
from tailbound_runtime.errors import ModelFailedError, ModelInputError
from tailbound_runtime.tensors import Array

BAR: Final = 40  # characters of the longest one
WARM_UP: Final = 3  # runs


@dataclass(frozen=True)
class Cell:
    """What was measured of runs of so many rows by so many callers at once.

    run_seconds: of each run
    seconds: of all of them together, side by side
    """

    rows: int
    callers: int
    run_seconds: Sequence[float]
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Throughput."""
        return self.rows * len(self.run_seconds) / self.seconds

    def quantile(self, share: float) -> float:
        """The time within which this share of the runs ended."""
        return sorted(self.run_seconds)[math.ceil(share * len(self.run_seconds)) - 1]


def main(arguments: Sequence[str], out: Callable[[str], object] = print) -> int:
    """Measure, and print a table. The exit status."""
    parser = argparse.ArgumentParser(
        prog="tailbound-runtime bench", description="Measures how fast a model runs here."
    )
    parser.add_argument("model", type=Path, help="the model's file, or its folder")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="for one run (%(default)s)"
    )
    parser.add_argument("--max-batch-size", type=int, default=64, help="rows of a run (%(default)s)")
    parser.add_argument("--callers", type=int, default=4, help="at once, at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (%(default)s)")
    given = parser.parse_args(arguments)
    model_format = format_of(given.model)
    session = load(kinds_of(model_format)[0], Order(given.model, model_format, given.threads))
    free = session.inputs and all(spec.shape[:1] == (-1,) for spec in session.inputs.values())
    cells = []
    for rows in doubled(given.max_batch_size) if free else [1]:
        inputs = accepted(session, rows)
        if inputs is None:
            raise ModelInputError(
                f"the model takes no random tensors of {rows} rows: serve it, and send it real ones"
            )
        cells += [measured(session, inputs, rows, n, given.seconds) for n in doubled(given.callers)]
    out(f"{given.model}, {session.provider}, {given.threads} threads for a run")
    out(table(cells))
    return 0


def doubled(most: int) -> list[int]:
    """1, 2, 4 and so on."""
    return [2**power for power in range(max(1, most).bit_length())]


def accepted(session: Engine, rows: int) -> Mapping[str, Array] | None:
    """Random tensors that the model runs on; None if none were found."""
    for number, random in enumerate(ROUNDS):
        dice = np.random.default_rng(number)
        inputs = {
            spec.name: draw(dice, spec, _shape(spec, rows, random), random)
            for spec in session.inputs.values()
        }
        try:
            session.run(list(session.outputs), inputs, Run())
        except (ModelInputError, ModelFailedError):
            continue
        return inputs
    return None


def _shape(spec: TensorSpec, rows: int, random: Random) -> tuple[int, ...]:
    free = (rows, *(random.free_size for _ in spec.shape[1:]))
    return tuple(one if size == -1 else size for one, size in zip(free, spec.shape, strict=False))


def measured(session: Engine, inputs: Mapping[str, Array], rows: int, callers: int, seconds: float) -> Cell:
    """Runs of these inputs, by so many callers at once, for so long."""
    outputs = list(session.outputs)
    for _ in range(WARM_UP):
        session.run(outputs, inputs, Run())
    taken: list[float] = []

    def call() -> None:
        before = time.perf_counter()
        while True:
            session.run(outputs, inputs, Run())
            now = time.perf_counter()
            taken.append(now - before)
            before = now
            if now >= ends:
                return

    threads = [threading.Thread(target=call) for _ in range(callers)]
    started = time.perf_counter()
    ends = started + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Cell(rows, callers, taken, time.perf_counter() - started)


def table(cells: Sequence[Cell]) -> str:
    """The cells as lines of text, each with a bar for its throughput; the best one is marked."""
    best = max(cells, key=lambda cell: cell.rows_per_second)
    lines = ["  rows  callers      rows/s    P50 ms    P99 ms"]
    for cell in cells:
        bar = "█" * max(1, round(BAR * cell.rows_per_second / best.rows_per_second))
        p50, p99 = (cell.quantile(share) * 1000 for share in (0.5, 0.99))
        mark = " best" if cell is best else ""
        lines.append(
            f"{cell.rows:6}{cell.callers:9}{cell.rows_per_second:12.1f}{p50:10.3f}{p99:10.3f}  {bar}{mark}"
        )
    return "\n".join(lines)
