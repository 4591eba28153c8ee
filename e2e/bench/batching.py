"""`python -m e2e.bench.batching`: throughput of the model server with dynamic batching against none.

Both servers run at once on loopback, with one CPU each for inference, and take turns under the same closed
loop: whatever else the machine does hits both alike. The model is one that gains from batches: it has large
matrices, which a run reads as a whole even for one row. Every answer is compared with that of ONNX Runtime
asked directly.

The last line is one JSON object:

ratio         throughput with dynamic batching against none, the median over the rounds
ratio_model   the same of the model alone: rows a second of full batches against batches of one
mean_batch    rows of a run with dynamic batching
wrong         answers that were not the request's own
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

WIDTHS: Final = (8, 4096, 4096, 4)
SENDERS: Final = 32
ROUNDS: Final = 5
ROUND_SECONDS: Final = 3.0
REQUESTS: Final = 64  # different ones
TOLERANCE: Final = 1e-3
LARGEST: Final = 32
_CPUCLOCK_SCHED: Final = 2  # as in Linux's posix-timers.h: what clock_getcpuclockid(3) gives
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "dynamic": {"TAILBOUND_BATCHING_MODE": "dynamic", "TAILBOUND_BATCHING_MAX_SIZE": str(LARGEST)},
}


@dataclass(frozen=True)
class Asked:
    """One request and its true answer."""

    body: bytes
    truth: np.ndarray[Any, Any]


@dataclass
class Served:
    """What one round gave."""

    right: int = 0
    wrong: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Right answers a second."""
        return self.right / self.seconds


def model(path: Path, widths: Sequence[int] = WIDTHS) -> Path:
    """A perceptron of these widths with fixed random weights."""
    dice = np.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for layer, (width, height) in enumerate(pairwise(widths)):
        matrix = dice.standard_normal((width, height), np.float32) / np.float32(np.sqrt(width))
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"p{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"p{layer}"], [f"h{layer}"]))
        value = f"h{layer}"
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", widths[0]])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", widths[-1]])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    path.write_bytes(made.SerializeToString())
    return path


def questions(path: Path) -> list[Asked]:
    """Different requests of one row."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    asked = []
    for row in np.random.default_rng(2).standard_normal((REQUESTS, 1, WIDTHS[0]), np.float32):
        tensor = {"name": "x", "datatype": "FP32", "shape": list(row.shape), "data": row.ravel().tolist()}
        (truth,) = session.run(None, {"x": row})
        asked.append(Asked(json.dumps({"inputs": [tensor]}).encode(), truth.ravel()))
    return asked


def model_ratio(path: Path) -> float:
    """Rows a second of the model itself, on one thread: full batches against batches of one."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def row_seconds(rows: int) -> float:
        x = np.ones((rows, WIDTHS[0]), np.float32)

        def timed() -> float:
            started = time.perf_counter()
            session.run(None, {"x": x})
            return time.perf_counter() - started

        return min(timed() for _ in range(ROUNDS)) / rows

    return row_seconds(1) / row_seconds(LARGEST)


@contextmanager
def server(path: Path, batching: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The URL of a ready server, and its process."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path.cwd() / "runtime_image"), *sys.path]),
        "TAILBOUND_MODEL_NAME": "m",
        "TAILBOUND_MODEL_PATH": str(path),
        "TAILBOUND_MODEL_FORMAT": "onnx",
        "TAILBOUND_REVISION": "bench",
        "TAILBOUND_REQUEST_TIMEOUT_SECONDS": "60",
        "TAILBOUND_DRAIN_SECONDS": "0",
        "TAILBOUND_CPU_LIMIT": "1",
        "TAILBOUND_HTTP_PORT": "0",
        **batching,
    }
    command = [sys.executable, "-m", "tailbound_runtime"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = 0
            for line in process.stdout:
                event = json.loads(line)
                port = port or event.get("port", 0)  # the first is that of HTTP
                if event["event"] == "ready":
                    break
            else:
                raise SystemExit("the server ended before it was ready")
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.communicate()


def cpu_seconds(pid: int) -> float:
    """CPU time of this process so far, of all its threads, by the kernel's clock for it."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


async def one_round(url: str, asked: list[Asked]) -> Served:
    """A closed loop for a while."""
    served, started = Served(), time.monotonic()

    async def sender(client: aiohttp.ClientSession, number: int) -> None:
        while time.monotonic() < started + ROUND_SECONDS:
            number = (number + 1) % len(asked)
            async with client.post("/v2/models/m/infer", data=asked[number].body) as response:
                answer = await response.json()
            data = answer["outputs"][0]["data"] if response.status == 200 else ()
            right = len(data) > 0 and np.allclose(data, asked[number].truth, atol=TOLERANCE)
            served.right += right
            served.wrong += not right

    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=SENDERS)) as client:
        await asyncio.gather(*(sender(client, 7 * number) for number in range(SENDERS)))
    served.seconds = time.monotonic() - started
    return served


async def compare(urls: Mapping[str, str], asked: list[Asked]) -> dict[str, list[Served]]:
    """The rounds of each mode, which take turns."""
    rounds: dict[str, list[Served]] = {mode: [] for mode in urls}
    for number in range(ROUNDS):
        for mode, url in urls.items():
            served = await one_round(url, asked)
            rounds[mode].append(served)
            words = f"{served.per_second:8.0f} requests/s, {served.wrong} wrong"
            print(f"round {number + 1} {mode:8} {words}", flush=True)
    return rounds


async def mean_batch(url: str) -> float:
    """Rows of a run, on average over the server's life."""
    async with aiohttp.ClientSession() as client, client.get(f"{url}/metrics") as response:
        lines = dict(line.rsplit(" ", 1) for line in (await response.text()).splitlines() if line[0] != "#")
    rows, runs = (float(lines[f"tailbound_runtime_{name}_total"]) for name in ("batch_rows", "batches"))
    return rows / runs


def main() -> int:
    """Run it; the exit status is 1 if any answer was wrong."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = model(Path(folder) / "perceptron.onnx")
        asked = questions(path)
        alone = model_ratio(path)
        urls = {mode: stack.enter_context(server(path, env))[0] for mode, env in MODES.items()}
        rounds = asyncio.run(compare(urls, asked))
        mean = asyncio.run(mean_batch(urls["dynamic"]))
    pairs = zip(rounds["dynamic"], rounds["none"], strict=True)
    wrong = sum(served.wrong for each in rounds.values() for served in each)
    document = {
        "bench": "batching",
        "ratio": round(statistics.median(one.per_second / other.per_second for one, other in pairs), 2),
        "ratio_model": round(alone, 2),
        **{
            f"{mode}_per_second": round(statistics.median(served.per_second for served in each), 1)
            for mode, each in rounds.items()
        },
        "mean_batch": round(mean, 1),
        "wrong": wrong,
    }
    print(json.dumps(document))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
