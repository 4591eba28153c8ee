"""A real server process on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

NAME = "m"


def environment(model: Path, **extra: str) -> dict[str, str]:
    """A complete environment; `extra` by the variables' names without TAILBOUND_, in lower case."""
    settings = {
        "MODEL_NAME": NAME,
        "MODEL_PATH": str(model),
        "MODEL_FORMAT": "onnx",
        "REVISION": "m-r1-abc",
        "REQUEST_TIMEOUT_SECONDS": "20",
        "DRAIN_SECONDS": "0",
        "CPU_LIMIT": "1",
        "HTTP_PORT": "0",
        "TERMINATION_LOG": "/nonexistent",
        **{key.upper(): value for key, value in extra.items()},
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TAILBOUND_")}
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(sys.path),
        **{f"TAILBOUND_{key}": value for key, value in settings.items()},
    }


COMMAND = [sys.executable, "-m", "tailbound_runtime"]


@dataclass
class Server:
    """A running server. `client` keeps connections alive."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]]
    url: str
    client: httpx.Client

    def infer(self, body: Any, **arguments: Any) -> httpx.Response:
        return self.client.post(f"/v2/models/{NAME}/infer", json=body, **arguments)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read log lines up to the one with this event."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.lines.append(json.loads(text))
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        raise AssertionError(f"the server ended without {event!r}; it said {self.lines}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def metric(self, series: str) -> float | None:
        """The value of one series at /metrics, or None."""
        for line in self.client.get("/metrics").text.splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return None


def rpc_address(server: Server) -> str:
    """Where it listens for gRPC."""
    told = next(line for line in server.lines if line["event"] == "listening for gRPC")
    return f"127.0.0.1:{told['port']}"


@contextmanager
def starting(model: Path, env: dict[str, str] | None = None, **extra: str) -> Iterator[Server]:
    """A server of `model` that listens, and is killed at the end if it still runs."""
    with run_by(COMMAND, {**environment(model, **extra), **(env or {})}) as server:
        yield server


@contextmanager
def run_by(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Server]:
    """A server that this command starts and that listens, killed at the end if it still runs."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    server = Server(process, [], "", httpx.Client(verify=False))
    try:
        server.url = f"http://127.0.0.1:{server.wait_for('listening')['port']}"
        server.client = httpx.Client(base_url=server.url, timeout=60, verify=False)
        yield server
    finally:
        server.client.close()
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def serving(
    model: Path, wait_for: str = "ready", env: dict[str, str] | None = None, **extra: str
) -> Iterator[Server]:
    """A server of `model`, stopped at the end, and then checked to have stopped well."""
    with starting(model, env, **extra) as server:
        if wait_for != "listening":
            server.wait_for(wait_for)
        yield server
        stop(server)


def stop(server: Server) -> None:
    """Stop a server as a kubelet does; it ends well."""
    server.client.close()
    server.terminate()
    assert server.process.wait(30) == 0


def eventually(check: Any, seconds: float = 10) -> Any:
    """The first true result of `check`."""
    end = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)
