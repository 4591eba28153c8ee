"""A foreign server that really runs: its packages, its processes, and its end under load."""

import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import create_server
from typing import Final

from e2e.cluster.processes import wait_for

ROOT: Final = Path(__file__).parents[3]
BUILD: Final = ROOT / "build" / "servers"
CONSTRAINTS: Final = Path(__file__).parent / "constraints"
CLIENTS: Final = 4
UNAWARE_SECONDS: Final = 1.0
"""Time for which clients go on after the pod began to stop, as gateways do that have not heard of it."""
_LEAST, _LONGEST = "2", "30"


def environment(name: str) -> Path:
    """The virtual environment of a server in build/servers, which is made once, of pinned packages."""
    folder, pins = BUILD / name, CONSTRAINTS / f"{name}.txt"
    made = folder / "made-of.txt"
    if not made.exists() or made.read_text() != pins.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = str(folder / "bin" / "pip")
        subprocess.run([pip, "install", "--quiet", "--no-deps", "--requirement", str(pins)], check=True)
        made.write_text(pins.read_text())
    return folder


def free_port() -> int:
    """The number of a port that nothing listens on."""
    with create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def ready(url: str) -> bool:
    """Whether a probe of this URL succeeds."""
    try:
        return bool(urllib.request.urlopen(url, timeout=5).status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stop_under_load(process: subprocess.Popen[bytes], port: int, call: Callable[[], None]) -> int:
    """Stop a server as the kubelet does with drain.mode hold, under load; the number of answered calls.

    The hold is asked first, and the server gets SIGTERM when that answers. No call may fail, and the server
    must end with status 0.
    """
    holds = free_port()
    times = ("--least", _LEAST, "--longest", _LONGEST)
    hold = [
        sys.executable,
        "-m",
        "tailbound.main",
        "hold",
        "--port",
        str(holds),
        "--watch",
        str(port),
        *times,
    ]
    over = threading.Event()
    with subprocess.Popen(hold, stdout=subprocess.DEVNULL) as holding, ThreadPoolExecutor(CLIENTS) as clients:
        try:
            wait_for("the hold", lambda: not ready(f"http://127.0.0.1:{holds}/") and _listens(holds), 60)
            calls = [clients.submit(_calls, call, over) for _ in range(CLIENTS)]
            threading.Timer(UNAWARE_SECONDS, over.set).start()
            begun = time.monotonic()
            urllib.request.urlopen(f"http://127.0.0.1:{holds}/release", timeout=60)
            assert time.monotonic() - begun < float(_LONGEST), "the hold saw no end of the requests"
            process.terminate()
            said = sum((each.result() for each in calls), Counter())
            assert process.wait(60) == 0
        finally:
            over.set()
            holding.kill()
    assert set(said) == {"answered"}, said
    return said["answered"]


def _listens(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _calls(call: Callable[[], None], over: threading.Event) -> Counter[str]:
    """What became of one client's calls, each on a connection of its own."""
    said: Counter[str] = Counter()
    while not over.is_set():
        try:
            call()
            said["answered"] += 1
        except (OSError, AssertionError) as problem:
            said[repr(problem)] += 1
    return said
