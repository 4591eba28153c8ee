"""`python -m e2e.bench.gpu_check`: what the model server promises of a GPU, checked on a real one.

Needs an NVIDIA GPU that nothing else uses, and onnxruntime-gpu. Each promise is a line that begins with ok or
FAILED:

- a server that cannot use its device, or whose model does not fit into its memory, ends and says why;
- the limit of the device's memory holds, and a request that needs more gets a 413, after which others go on;
- a model that is unloaded gives its memory back and destroys its streams, CUDA graphs included, and so does
  the first try of one whose runs cannot be CUDA graphs;
- the graphs of the bench answer on CUDA what they answer on the CPU within TOLERANCE of the largest value,
  whatever number of rows comes after whichever other, with CUDA graphs and without.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from tailbound_runtime.cuda_graphs import Runtime
from tailbound_runtime.devices import CPU, CUDA, Cuda
from tailbound_runtime.session import Session

from e2e.bench import batching, gpu, gpu_graphs

Rows = np.ndarray[Any, Any]

LIMIT: Final = 400 * 2**20  # bytes: enough for the image model with a few rows
TOO_MANY: Final = 256  # rows
CUDA_BYTES: Final = 2**30  # that CUDA and its libraries take beside the model
TOLERANCE: Final = 0.02  # FP16 has 11 bits, and both graphs some fifty layers
SIZES: Final = (1, 2, 3, 5, 8, 16, 13)  # rows of a request
ROUNDS: Final = 3
LOADS: Final = 6
LEFT_BYTES: Final = 16 * 2**20  # of the device, after a model is unloaded
NO_GRAPHS: Final = {"TAILBOUND_DEVICE_OPTIONS": '{"enable_cuda_graph": "0"}'}


def environment(path: Path, **more: str) -> dict[str, str]:
    """The environment of a server that is not expected to become ready."""
    return {
        **os.environ,
        "TAILBOUND_MODEL_NAME": "m",
        "TAILBOUND_MODEL_PATH": str(path),
        "TAILBOUND_MODEL_FORMAT": "onnx",
        "TAILBOUND_REVISION": "check",
        "TAILBOUND_REQUEST_TIMEOUT_SECONDS": "60",
        "TAILBOUND_DRAIN_SECONDS": "0",
        "TAILBOUND_CPU_LIMIT": "1",
        "TAILBOUND_HTTP_PORT": "0",
        **more,
    }


def end_of(path: Path, **more: str) -> str:
    """The words of a server that ends instead of becoming ready; empty if it does become ready."""
    command = [sys.executable, "-m", "tailbound_runtime"]
    with subprocess.Popen(
        command, env=environment(path, **more), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        for line in server.stdout:
            with suppress(json.JSONDecodeError):
                event = json.loads(line)
                if event["event"] == "ready":
                    server.terminate()
                    return ""
                if event["event"] == "cannot serve":
                    return str(event["error"])
    return ""


def asked(url: str, rows: Rows) -> urllib.request.Request:
    """A request with these rows."""
    head, _, body = gpu.message(rows).partition(b"\r\n\r\n")
    headers = dict(line.split(": ") for line in head.decode().split("\r\n")[1:])
    return urllib.request.Request(f"{url}/v2/models/m/infer", body, headers)


def post(url: str, rows: int) -> int:
    """The status of a request with so many rows."""
    try:
        with urllib.request.urlopen(
            asked(url, np.repeat(gpu_graphs.row("resnet"), rows, axis=0))
        ) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        print("   ", error.code, error.read().decode())
        return error.code


def answer(url: str, rows: Rows) -> Rows:
    """The answers of the model to these rows."""
    with urllib.request.urlopen(asked(url, rows)) as response:
        body = response.read()[int(response.headers["Inference-Header-Content-Length"]) :]
    return np.frombuffer(body, np.float16).astype(np.float32).reshape(len(rows), -1)


def differs(path: Path, name: str, settings: Mapping[str, str]) -> float:
    """The greatest difference between answers of CUDA and of the CPU, as a share of the largest value."""
    dice = np.random.default_rng(7)
    row = gpu_graphs.row(name)
    rows = dice.integers(0, 256, (max(SIZES), *row.shape[1:])).astype(row.dtype)
    truth = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]
    truth = truth.astype(np.float32)
    sizes = list(SIZES * ROUNDS)
    random.Random(7).shuffle(sizes)
    with batching.server(path, {**gpu.environment(max(SIZES)), **settings}) as (url, _):
        worst = max(float(np.abs(answer(url, rows[:size]) - truth[:size]).max()) for size in sizes)
    return worst / float(np.abs(truth).max())


def agrees(paths: Mapping[str, Path]) -> Mapping[str, bool]:
    """Each graph on CUDA and on the CPU."""
    found = {}
    for name, path in paths.items():
        for words, settings in (("without", NO_GRAPHS), ("with", {})):
            share = differs(path, name, settings)
            print(f"    {name} {words} CUDA graphs: {share:.4f}", flush=True)
            found[f"{name} on CUDA {words} CUDA graphs answers as on the CPU within {TOLERANCE}"] = (
                share < TOLERANCE
            )
    return found


def used(metrics: str) -> float:
    """Bytes of the device's memory in use."""
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    return float(lines["tailbound_runtime_device_memory_used_bytes"])


def get(url: str) -> str:
    """The body of the answer."""
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())


def survives(path: Path) -> Mapping[str, bool]:
    """A server with little memory, and a request that needs more."""
    with batching.server(path, {}) as (url, _):
        post(url, TOO_MANY)
        free = used(get(f"{url}/metrics"))
    with batching.server(path, {"TAILBOUND_DEVICE_MEMORY_LIMIT": str(LIMIT)}) as (url, _):
        metrics = get(f"{url}/metrics")
        statuses = [post(url, rows) for rows in (1, TOO_MANY, 1)]
        held = used(get(f"{url}/metrics"))
        print(f"    bytes in use: {held:.0f} with the limit {LIMIT}, {free:.0f} without one", flush=True)
        return {
            "the limit of the device's memory holds": held < LIMIT + CUDA_BYTES < free,
            "a request without memory for it is a 413, and the next one is answered": statuses
            == [200, 413, 200],
            "the server is ready after that": "true" in get(f"{url}/v2/health/ready"),
            "the model runs on CUDA": 'provider="CUDAExecutionProvider"' in metrics,
            "the device's memory is in the metrics": "tailbound_runtime_device_memory_used_bytes" in metrics,
        }


def holds(path: Path) -> Mapping[str, bool]:
    """A server with little memory, whose batches are CUDA graphs."""
    limit = {"TAILBOUND_DEVICE_MEMORY_LIMIT": str(LIMIT)}
    with batching.server(path, {**gpu.environment(8), **limit}) as (url, _):
        fine = [post(url, rows) for rows in (1, 8, 3)] == [200] * 3
        held = used(get(f"{url}/metrics"))
    print(f"    bytes in use: {held:.0f} with CUDA graphs", flush=True)
    return {"the limit holds with CUDA graphs": fine and held < LIMIT + CUDA_BYTES}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls of CUDA's functions meanwhile that succeeded, by their names."""
    calls: Counter[str] = Counter()
    real = Runtime.call

    def call(runtime: Runtime, function: str, *arguments: object) -> None:
        real(runtime, function, *arguments)
        calls[function] += 1

    with mock.patch.object(Runtime, "call", call):
        yield calls


def left(calls: Mapping[str, int]) -> Mapping[str, int]:
    """The numbers of streams and events that these calls made and did not destroy."""
    made = {kind: calls.get(f"cuda{kind}CreateWithFlags", 0) for kind in ("Stream", "Event")}
    return {kind: number - calls.get(f"cuda{kind}Destroy", 0) for kind, number in made.items()}


def unloads(path: Path) -> Mapping[str, bool]:
    """A model whose runs are CUDA graphs, loaded and unloaded in turn, in this process."""
    held = []
    with counted() as calls:
        for _ in range(LOADS):
            session = Session.load(path, 1, [CUDA, CPU], few_sizes=True)
            for rows in (1, 8):
                session.warm_up(rows)
            del session
            memory = Cuda(ort.cuda_version, 0).memory()
            held.append(memory.used if memory is not None else 0)
    print(f"    bytes in use after each unload: {held}; {dict(calls)}", flush=True)
    return {
        "an unloaded model gives its memory back": 0 < held[-1] <= held[0] + LEFT_BYTES,
        "the unloaded model had CUDA graphs": calls["cudaGraphExecDestroy"] >= LOADS,
        "an unloaded model destroys its streams and events": calls["cudaStreamDestroy"] >= LOADS
        and not any(left(calls).values()),
    }


def on_the_cpu_in_part(path: Path) -> Path:
    """A model with an operator that CUDA has no kernel for, so that its runs cannot be CUDA graphs."""
    node = helper.make_node("Det", ["x"], ["y"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([node], "determinants", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def falls_back(path: Path) -> Mapping[str, bool]:
    """A model whose first session, which was to have CUDA graphs, is refused."""
    with counted() as calls:
        session = Session.load(path, 1, [CUDA, CPU], few_sizes=True)
        (answer,) = session.warm_up(2)
    print(f"    without CUDA graphs: {answer}; {dict(calls)}", flush=True)
    return {
        "a model that CUDA graphs cannot have runs without them": answer.tolist() == [0, 0],
        "its first session leaves no streams and events": calls["cudaStreamCreateWithFlags"] >= 1
        and not any(left(calls).values()),
    }


def main() -> int:
    """Check everything; 1 if anything failed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: make(Path(folder) / f"{name}.onnx") for name, make in gpu.GRAPHS.items()}
        path = paths["resnet"]
        ends: Mapping[str, Callable[[], str]] = {
            "rows at once, which spec.batching asks for": lambda: end_of(
                path,
                TAILBOUND_DEVICE_MEMORY_LIMIT=str(LIMIT),
                TAILBOUND_BATCHING_MODE="dynamic",
                TAILBOUND_BATCHING_MAX_SIZE="512",
            ),
            "does not fit into the memory of its device within": lambda: end_of(
                path, TAILBOUND_DEVICE_MEMORY_LIMIT=str(2**20)
            ),
            "Invalid device ID": lambda: end_of(path, TAILBOUND_DEVICE_OPTIONS='{"device_id": "99"}'),
            "Unknown provider option": lambda: end_of(path, TAILBOUND_DEVICE_OPTIONS='{"nonsense": "1"}'),
            "CUDA": lambda: end_of(path, CUDA_VISIBLE_DEVICES=""),
        }
        found: dict[str, Any] = {}
        for words, end in ends.items():
            said = end()
            print("   ", said[:300])
            found[f"a server that cannot use its device ends, and says {words!r}"] = words in said
        found |= survives(path)
        found |= holds(path)
        found |= unloads(path)
        found |= falls_back(on_the_cpu_in_part(Path(folder) / "determinants.onnx"))
        found |= agrees(paths)
    for promise, kept in found.items():
        print("ok    " if kept else "FAILED", promise)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
