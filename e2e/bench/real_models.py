"""`python -m e2e.bench.real_models`: the share of a model's throughput the server keeps at 64 connections.

Of the time of a CPU: what the model alone takes for a row, as a share of what the server takes for a request
of one row over HTTP with binary tensors. Both are measured in turn, so that other work of the machine slows
both down, and the median of the shares counts. The models:

magika     a real one, which recognises file types, without batching; its runs take milliseconds
wide       a perceptron whose weights do not fit into a cache, so that batches pay; with dynamic batching up
           to the size that takes least time for a row, against the model alone at that size

While requests are served, liveness is asked over and over; its slowest answer depends on other work of
the machine. The last line is a JSON object: *_share, and *_liveness_ms of the slowest answer.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from e2e.bench import batching
from e2e.bench.runtime import one_round
from tests.runtime.models import magika_model

ROUNDS: Final = 3
REQUESTS: Final = 128  # of one round
SIZES: Final = (1, 2, 4, 8, 16, 32)
PAUSE_SECONDS: Final = 0.02

Row = npt.NDArray[Any]


@dataclass(frozen=True)
class Server:
    """sent: the request that all senders send"""

    path: Path
    sent: bytes
    env: Mapping[str, str]


class Alone:
    """The model without a server, on one thread."""

    def __init__(self, path: Path, name: str, row: Row) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._name, self._row = name, row

    def seconds(self, size: int) -> float:
        """CPU time of one row, in runs of so many."""
        rows = {self._name: np.repeat(self._row, size, axis=0)}
        self._session.run(None, rows)
        runs = max(1, REQUESTS // 2 // size)
        started = time.process_time()
        for _ in range(runs):
            self._session.run(None, rows)
        return (time.process_time() - started) / runs / size


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


async def liveness_seconds(url: str, until: asyncio.Event) -> float:
    """The slowest answer of liveness until then."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    slowest = 0.0
    while not until.is_set():
        started = time.perf_counter()
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: bench\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        slowest = max(slowest, time.perf_counter() - started)
        await asyncio.sleep(PAUSE_SECONDS)
    writer.close()
    return slowest


async def _round(url: str, sent: bytes) -> float:
    """The slowest answer of liveness during a round."""
    over = asyncio.Event()
    asking = asyncio.create_task(liveness_seconds(url, over))
    await one_round(url, sent, REQUESTS)
    over.set()
    return await asking


def compare(label: str, alone: Alone, size: int, server: Server) -> dict[str, float]:
    """What the server keeps of the throughput of runs of this size."""
    shares, slowest = [], 0.0
    with batching.server(server.path, server.env) as (url, pid):
        asyncio.run(_round(url, server.sent))
        for _ in range(ROUNDS):
            raw, before = alone.seconds(size), batching.cpu_seconds(pid)
            slowest = max(slowest, asyncio.run(_round(url, server.sent)))
            shares.append(raw * REQUESTS / (batching.cpu_seconds(pid) - before))
    share = statistics.median(shares)
    print(f"{label:8}{share:6.0%} of the model alone; liveness within {slowest * 1e3:.0f} ms", flush=True)
    return {f"{label}_share": round(share, 3), f"{label}_liveness_ms": round(slowest * 1e3, 1)}


def main() -> int:
    """Run it."""
    dice = np.random.default_rng(3)
    document: dict[str, Any] = {"bench": "real_models"}
    content = dice.integers(0, 256, (1, 2048), dtype=np.int32)
    magika = Server(magika_model(), message("bytes", "INT32", content), {})
    document |= compare("magika", Alone(magika.path, "bytes", content), 1, magika)
    with tempfile.TemporaryDirectory() as folder:
        path = batching.model(Path(folder) / "wide.onnx", batching.WIDTHS)
        row = dice.standard_normal((1, batching.WIDTHS[0]), np.float32)
        alone = Alone(path, "x", row)
        best = min(SIZES, key=alone.seconds)
        env = {"TAILBOUND_BATCHING_MODE": "dynamic", "TAILBOUND_BATCHING_MAX_SIZE": str(best)}
        wide = Server(path, message("x", "FP32", row), env)
        document |= {"wide_size": best, **compare("wide", alone, best, wide)}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
