"""`python -m e2e.bench.real_models`: the share of a model's throughput the server keeps at 64 connections.

The model alone, on one thread, and the server, over HTTP with binary tensors, one row in each request, take
short turns, so that other work of the machine slows both down; the median of the turns counts.
Liveness is asked in further turns. The models:

magika     a real one, which recognises file types, without batching; its runs take milliseconds
wide       a perceptron whose weights do not fit into a cache, so that batches pay; with dynamic batching up
           to the size that takes least time for a row, against the model alone at that size

The last line is a JSON object:

*_share             CPU time of the model alone for a row, as a share of the server's for a request
*_wall_share        the same of the time by the clock: other work of the machine slows the server, which has
                    more threads, and the senders down otherwise than one thread
*_liveness_ms       the slowest answer of liveness during the turns, and *_liveness_p99_ms their P99
*_bare_ms           the same of a process with nothing to do, asked at the same moments, and *_bare_p99_ms
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from e2e.bench import batching, closed_loop
from e2e.bench.closed_loop import Liveness, bare_loop
from tests.runtime.models import magika_model

SENDERS: Final = 64
TURNS: Final = 8
RUNS: Final = 64  # of the model alone in one turn, or as many rows
SIZES: Final = (1, 2, 4, 8, 16, 32)

Row = npt.NDArray[Any]


@dataclass(frozen=True)
class Server:
    """sent: the request that all senders send, so many of them in one turn.

    The first run of a turn has the one row that came first. With few requests it would count for much.
    """

    path: Path
    sent: bytes
    requests: int
    env: Mapping[str, str]


class Seconds(NamedTuple):
    """cpu: of the process; wall: by the clock"""

    cpu: float
    wall: float


class Alone:
    """The model without a server, on one thread."""

    def __init__(self, path: Path, name: str, row: Row) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._name, self._row = name, row

    def row(self, size: int) -> Seconds:
        """The time of one row, in runs of so many."""
        rows = {self._name: np.repeat(self._row, size, axis=0)}
        self._session.run(None, rows)
        runs = max(1, RUNS // size)
        started, computed = time.perf_counter(), time.process_time()
        for _ in range(runs):
            self._session.run(None, rows)
        row = runs * size
        return Seconds((time.process_time() - computed) / row, (time.perf_counter() - started) / row)


def message(name: str, datatype: str, row: Row) -> bytes:
    """One whole HTTP request with this tensor."""
    tensor = {"name": name, "datatype": datatype, "shape": list(row.shape)}
    inputs = [{**tensor, "parameters": {"binary_data_size": row.nbytes}}]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = head + row.tobytes()
    lines = (
        "POST /v2/models/m/infer HTTP/1.1",
        "Host: bench",
        f"Inference-Header-Content-Length: {len(head)}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


async def turns(alone: Alone, size: int, server: Server, url: str, pid: int, bare: str) -> dict[str, float]:
    """What was measured in all turns, by what it is."""
    cpu, wall, liveness = [], [], Liveness(url, bare)
    async with closed_loop.senders(url, server.sent, SENDERS) as senders:
        requests = server.requests
        await senders.turn(requests)
        for _ in range(TURNS):
            raw, before = alone.row(size), batching.cpu_seconds(pid)
            seconds = await senders.turn(requests)
            cpu.append(raw.cpu * requests / (batching.cpu_seconds(pid) - before))
            wall.append(raw.wall * requests / seconds)
            async with liveness:  # in a turn of its own: to answer it takes CPU time as well
                await senders.turn(requests)
    slowest = {"liveness": url, "bare": bare}
    return {
        "share": round(statistics.median(cpu), 3),
        "wall_share": round(statistics.median(wall), 3),
        **{f"{name}_ms": round(liveness.slowest(at) * 1e3, 1) for name, at in slowest.items()},
        **{f"{name}_p99_ms": round(liveness.slowest(at, 0.99) * 1e3, 1) for name, at in slowest.items()},
    }


def compare(label: str, alone: Alone, size: int, server: Server) -> dict[str, float]:
    """What the server keeps of the throughput of runs of this size."""
    with batching.server(server.path, server.env) as (url, pid), bare_loop() as bare:
        found = asyncio.run(turns(alone, size, server, url, pid, bare))
    print(label, found, flush=True)
    return {f"{label}_{name}": value for name, value in found.items()}


def main() -> int:
    """Run it."""
    dice = np.random.default_rng(3)
    document: dict[str, Any] = {"bench": "real_models"}
    content = dice.integers(0, 256, (1, 2048), dtype=np.int32)
    magika = Server(magika_model(), message("bytes", "INT32", content), 128, {})
    document |= compare("magika", Alone(magika.path, "bytes", content), 1, magika)
    with tempfile.TemporaryDirectory() as folder:
        path = batching.model(Path(folder) / "wide.onnx", batching.WIDTHS)
        row = dice.standard_normal((1, batching.WIDTHS[0]), np.float32)
        alone = Alone(path, "x", row)
        best = min(SIZES, key=lambda size: alone.row(size).cpu)
        env = {"TAILBOUND_BATCHING_MODE": "dynamic", "TAILBOUND_BATCHING_MAX_SIZE": str(best)}
        wide = Server(path, message("x", "FP32", row), 640, env)
        document |= {"wide_size": best, **compare("wide", alone, best, wide)}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
