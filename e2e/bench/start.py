"""`python -m e2e.bench.start`: from start to ready, and memory at rest, beside Triton's and MLServer's.

Each server has one small model: ours an ONNX one, Triton a Python one, since the Triton on PyPI has no other
backend, and MLServer a scikit-learn one; all answer HTTP and gRPC but `tailbound_http`, which answers HTTP
only, as in a pod. They start in turn, several times, each with what its ServingRuntime renders, in the
environments that `make test-servers` makes. The medians count, and of them the JSON object in the last line:

*_ready_seconds   from the start of the process until it says that it is ready
*_cpu_seconds     CPU time until then, of all its processes, which other work of the machine changes little
*_megabytes       memory at rest, of all its processes (Pss: what they share counts once)
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from e2e.bench import batching
from tests.integration.servers.kinds import SERVERS
from tests.integration.servers.real import running

ROUNDS: Final = 3
REST_SECONDS: Final = 2.0
WIDTHS: Final = (64, 256, 8)
GRPC: Final = {"TAILBOUND_GRPC_PORT": "0"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Figures = dict[str, float]


def fields(pid: int) -> list[str]:
    """Those of /proc/PID/stat from the state on, the third one."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(pid: int) -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int(fields(int(each.name))[1]), []).append(int(each.name))
        except FileNotFoundError:
            continue  # it has ended
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def megabytes(pid: int) -> float:
    """The memory of this process and all below it."""
    kilobytes = 0
    for each in tree(pid):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes * 1024 / 1e6


def figures(pid: int) -> Figures:
    """Those of a server that has just become ready."""
    up = float(Path("/proc/uptime").read_text().split()[0])
    ready = up - int(fields(pid)[19]) / _TICKS
    computed = sum(sum(map(int, fields(each)[11:15])) for each in tree(pid)) / _TICKS
    time.sleep(REST_SECONDS)
    return {"ready_seconds": ready, "cpu_seconds": computed, "megabytes": megabytes(pid)}


@contextmanager
def ours(folder: Path, env: Mapping[str, str]) -> Iterator[int]:
    """The process of our server, which is ready."""
    folder.mkdir()
    with batching.server(batching.model(folder / "m.onnx", WIDTHS), env) as (_, pid):
        yield pid


@contextmanager
def foreign(name: str, folder: Path) -> Iterator[int]:
    """The process of another one, which is ready."""
    with running(SERVERS[name], folder) as server:
        yield server.process.pid


def main() -> int:
    """Run it."""
    starts: dict[str, Callable[[Path], AbstractContextManager[int]]] = {
        "tailbound_http": lambda folder: ours(folder, {}),
        "tailbound": lambda folder: ours(folder, GRPC),
        "mlserver": partial(foreign, "mlserver"),
        "triton": partial(foreign, "triton"),
    }
    found: dict[str, list[Figures]] = {name: [] for name in starts}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for name, start in starts.items():
                with start(Path(folder) / f"{name}{number}") as pid:
                    found[name].append(figures(pid))
    document: dict[str, object] = {"bench": "start"}
    for name, rounds in found.items():
        medians = {key: round(statistics.median(each[key] for each in rounds), 2) for key in rounds[0]}
        print(f"{name:16}{medians}", flush=True)
        document |= {f"{name}_{key}": value for key, value in medians.items()}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
