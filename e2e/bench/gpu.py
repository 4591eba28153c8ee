"""`python -m e2e.bench.gpu`: how much of a GPU's throughput the model server keeps, and its latency.

Needs an NVIDIA GPU and onnxruntime-gpu. Two graphs in FP16 (see `gpu_graphs`) are run by ONNX Runtime alone,
batch after batch in one thread, and served with dynamic batching to CLIENTS processes over loopback, which
send binary tensors. Both happen on the same card, one after the other.

The last line is one JSON object, with for each graph:

raw           rows a second of ONNX Runtime alone at its best batch size
batch         the most rows of the server's runs: the least size within 5 % of the best
served        answers a second to clients that ask again at once
ratio         served / raw
batch_ms      time of one batch of `batch` alone
p50_ms, p99_ms  of an answer when LOAD of `raw` is asked for, at random moments
p99_ratio     p99_ms / batch_ms
loop_cpus     share of that time in which the thread of the server's event loop computed
stolen_ms     of the CPU that the host of this virtual machine withheld for longest meanwhile: 50 ms are 1 %
              of the time, and cannot be seen in the average of all CPUs
cpu_us        CPU time of the server for one answer, under full load
stages_us     mean time of a request in each stage, under full load
"""

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from e2e.bench import batching, gpu_graphs, gpu_load

SIZES: Final = (1, 8, 16, 32, 64, 128)
NEAR_BEST: Final = 0.95
RAW_SECONDS: Final = 1.5
CLIENTS: Final = 6
SECONDS: Final = 5.0
LOAD: Final = 0.7
TOLERANCE: Final = 0.02  # of the largest value: FP16 rounds, and differently for each batch size
GRAPHS: Final = {"resnet": gpu_graphs.resnet, "bert": gpu_graphs.bert}


def raw(path: Path, name: str) -> tuple[dict[int, float], np.ndarray[Any, Any]]:
    """Seconds of one run by its rows, and the answer to one row."""
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    session = ort.InferenceSession(path, providers=["CUDAExecutionProvider"])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise SystemExit("ONNX Runtime cannot use a GPU here: its messages above say why")
    row = gpu_graphs.row(name)
    (truth,) = session.run(None, {"x": row})
    seconds = {}
    for size in SIZES:
        batch = np.repeat(row, size, axis=0)
        for _ in range(3):
            session.run(None, {"x": batch})
        taken: list[float] = []
        until = time.perf_counter() + RAW_SECONDS
        while (started := time.perf_counter()) < until:
            session.run(None, {"x": batch})
            taken.append(time.perf_counter() - started)
        seconds[size] = statistics.mean(taken)
    return seconds, truth


def best_size(seconds: Mapping[int, float]) -> int:
    """The least number of rows with about the best throughput."""
    most = max(size / each for size, each in seconds.items())
    return min(size for size, each in seconds.items() if size / each >= NEAR_BEST * most)


def message(row: np.ndarray[Any, Any]) -> bytes:
    """One whole HTTP request."""
    kind = {"uint8": "UINT8", "int64": "INT64"}[row.dtype.name]
    tensor = {
        "name": "x",
        "datatype": kind,
        "shape": row.shape,
        "parameters": {"binary_data_size": row.nbytes},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: bench\r\nInference-Header-Content-Length: {len(head)}\r\n"
        f"Content-Length: {len(head) + row.nbytes}\r\n\r\n"
    ).encode() + b"".join((head, row.tobytes()))


def check(port: int, asked: bytes, truth: np.ndarray[Any, Any]) -> None:
    """Ends the bench unless the server's answer is the model's."""
    head, _, body = asked.partition(b"\r\n\r\n")
    headers = dict(line.split(": ") for line in head.decode().split("\r\n")[1:])
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/models/m/infer", body, headers)
    with urllib.request.urlopen(request) as response:
        answer = response.read()[int(response.headers["Inference-Header-Content-Length"]) :]
    values = np.frombuffer(answer, truth.dtype).astype(np.float32).reshape(truth.shape)
    worst = np.abs(values - truth.astype(np.float32)).max() / np.abs(truth).max()
    if not worst < TOLERANCE:
        raise SystemExit(f"the server's answer differs from ONNX Runtime's by {worst:.3f} of its size")


def stages(port: int) -> dict[str, tuple[float, float]]:
    """Count and seconds of each stage so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        lines = [line.split(" ") for line in response.read().decode().splitlines()]
    values = {line[0]: float(line[1]) for line in lines if line[0].startswith("tailbound_runtime_stage")}
    names = [key.split('"')[1] for key in values if "_sum{" in key]
    base = "tailbound_runtime_stage_seconds_"
    return {n: (values[f'{base}count{{stage="{n}"}}'], values[f'{base}sum{{stage="{n}"}}']) for n in names}


def loop_seconds(pid: int) -> float:
    """CPU time so far of the thread of the server's event loop, which is the process's first."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(pool: ProcessPoolExecutor, task: gpu_load.Task, pid: int) -> tuple[gpu_load.Answers, float]:
    """The answers to clients with this task, and the CPUs that the event loop of the server took for them."""
    loop, began = loop_seconds(pid), time.perf_counter()
    answers = gpu_load.load(pool, CLIENTS, task)
    return answers, (loop_seconds(pid) - loop) / (time.perf_counter() - began)


def environment(size: int) -> dict[str, str]:
    """The server's settings for batches of this size."""
    return {
        "TAILBOUND_BATCHING_MODE": "dynamic",
        "TAILBOUND_BATCHING_MAX_SIZE": str(size),
        "TAILBOUND_QUEUE_LIMIT": "4096",
        "TAILBOUND_MAX_CONNECTIONS": "4096",
    }


def bench(name: str, folder: Path, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """The figures of one graph."""
    path = GRAPHS[name](folder / f"{name}.onnx")
    seconds, truth = raw(path, name)
    for size, each in seconds.items():
        print(f"{name}: {size:4} rows {size / each:8.0f} a second, {each * 1000:7.2f} ms", flush=True)
    size = best_size(seconds)
    able = max(rows / each for rows, each in seconds.items())
    asked = message(gpu_graphs.row(name))
    with batching.server(path, environment(size)) as (url, pid):
        port = int(url.rpartition(":")[2])
        check(port, asked, truth)
        before, cpu, began = stages(port), batching.cpu_seconds(pid), time.perf_counter()
        connections = -(-4 * size // CLIENTS)
        full = gpu_load.load(pool, CLIENTS, gpu_load.Task(port, asked, connections, None, SECONDS))
        after, cpu = stages(port), batching.cpu_seconds(pid) - cpu
        took = time.perf_counter() - began
        task = gpu_load.Task(port, asked, 2 * connections, LOAD * able / CLIENTS, SECONDS)
        part, loop_cpus = watched(pool, task, pid)
    served = len(full.latencies) / SECONDS
    count = after["encode"][0] - before["encode"][0]
    p50, p99 = (part.latencies[int(share * len(part.latencies))] * 1000 for share in (0.5, 0.99))
    return {
        "batch": size,
        "raw": round(able),
        "served": round(served),
        "ratio": round(served / able, 3),
        "batch_ms": round(seconds[size] * 1000, 2),
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "p99_ratio": round(p99 / 1000 / seconds[size], 2),
        "at_70_percent": round(len(part.latencies) / SECONDS / able, 3),
        "loop_cpus": round(loop_cpus, 2),
        "stolen_ms": round(max(part.stolen) * 1000),
        "failed": full.failed + part.failed,
        "cpu_us": round(cpu / count * 1e6, 1),
        "cpus": round(cpu / took, 2),
        "client_cpu_us": round(full.cpu_seconds / count * 1e6, 1),
        "stages_us": {stage: round((after[stage][1] - before[stage][1]) / count * 1e6, 1) for stage in after},
    }


def card() -> str:
    """The GPU's name and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Run it."""
    document: dict[str, Any] = {
        "bench": "gpu",
        "card": card(),
        "onnxruntime": ort.__version__,
        "python": platform.python_version(),
    }
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(CLIENTS, mp_context=spawn) as pool,
    ):
        for name in GRAPHS:
            document[name] = bench(name, Path(folder), pool)
            print(f"{name}: {document[name]}", flush=True)
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
