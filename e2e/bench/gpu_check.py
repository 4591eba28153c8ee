"""`python -m e2e.bench.gpu_check`: what the model server promises of a GPU, checked on a real one.

Needs an NVIDIA GPU and onnxruntime-gpu. Each promise is a line that begins with ok or FAILED.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from e2e.bench import batching, gpu, gpu_graphs

LIMIT: Final = 400 * 2**20  # bytes: enough for the image model with a few rows
TOO_MANY: Final = 256  # rows


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


def post(url: str, rows: int) -> int:
    """The status of a request with so many rows."""
    head, _, body = gpu.message(np.repeat(gpu_graphs.row("resnet"), rows, axis=0)).partition(b"\r\n\r\n")
    headers = dict(line.split(": ") for line in head.decode().split("\r\n")[1:])
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/v2/models/m/infer", body, headers)
        ) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        print("   ", error.code, error.read().decode())
        return error.code


def get(url: str) -> str:
    """The body of the answer."""
    with urllib.request.urlopen(url) as response:
        return str(response.read().decode())


def survives(path: Path) -> Mapping[str, bool]:
    """A server with little memory, and a request that needs more."""
    with batching.server(path, {"TAILBOUND_DEVICE_MEMORY_LIMIT": str(LIMIT)}) as (url, _):
        metrics = get(f"{url}/metrics")
        statuses = [post(url, rows) for rows in (1, TOO_MANY, 1)]
        return {
            "a request without memory for it is a 413, and the next one is answered": statuses
            == [200, 413, 200],
            "the server is ready after that": "true" in get(f"{url}/v2/health/ready"),
            "the model runs on CUDA": 'provider="CUDAExecutionProvider"' in metrics,
            "the device's memory is in the metrics": "tailbound_runtime_device_memory_used_bytes" in metrics,
        }


def main() -> int:
    """Check everything; 1 if anything failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = gpu_graphs.resnet(Path(folder) / "resnet.onnx")
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
    for promise, kept in found.items():
        print("ok    " if kept else "FAILED", promise)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
