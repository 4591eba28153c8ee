"""Stops a server under load as the kubelet does, with and without drain.mode hold."""

import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final

from e2e.cluster.ports import free_port
from e2e.cluster.processes import wait_for
from tests.integration.servers.real import Running, ready

CLIENTS: Final = 4
UNAWARE_SECONDS: Final = 1.0
"""Time for which clients go on after the pod began to stop, as gateways do that have not heard of it."""
EXIT_SECONDS: Final = 60
_LEAST, _LONGEST = "2", "300"


@dataclass(frozen=True)
class Drained:
    """What became of the calls while a server stopped."""

    answered: int
    lost: Counter[str]
    status: int
    """The exit status of the server."""


def stopped_under_load(server: Running, *, held: bool) -> Drained:
    """Stop a server while clients call it. With a hold, SIGTERM comes when the hold says that it idles."""
    over = threading.Event()
    with _hold(server.port) as release, ThreadPoolExecutor(CLIENTS) as clients:
        for first in [clients.submit(server.call) for _ in range(CLIENTS)]:
            first.result()
        calls = [clients.submit(_calls, server.call, over) for _ in range(CLIENTS)]
        threading.Timer(UNAWARE_SECONDS, over.set).start()
        try:
            if held:
                release()
            server.terminate()
            said = sum((each.result() for each in calls), Counter())
            status = server.process.wait(EXIT_SECONDS)
        finally:
            over.set()
    answered = said.pop("answered", 0)
    return Drained(answered, said, status)


@contextmanager
def _hold(port: int) -> Iterator[Callable[[], None]]:
    """The hold of a pod, which watches this port; asks it as the preStop hook does."""
    own = free_port()
    command = [sys.executable, "-m", "tailbound.main", "hold", "--port", str(own), "--watch", str(port)]
    times, quiet = ("--least", _LEAST, "--longest", _LONGEST), subprocess.DEVNULL
    with subprocess.Popen([*command, *times], stdout=quiet, stderr=quiet) as process:
        wait_for("the hold", lambda: not ready(f"http://127.0.0.1:{own}/") and _listens(own), 60)

        def release() -> None:
            begun = time.monotonic()
            urllib.request.urlopen(f"http://127.0.0.1:{own}/release", timeout=2 * float(_LONGEST))
            assert time.monotonic() - begun < float(_LONGEST), "the hold saw no end of the requests"

        try:
            yield release
        finally:
            process.kill()


def _listens(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _calls(call: Callable[[], int], over: threading.Event) -> Counter[str]:
    """Outcomes of one client's calls, each on a connection of its own."""
    said: Counter[str] = Counter()
    while not over.is_set():
        try:
            call()
            said["answered"] += 1
        except (OSError, HTTPException, AssertionError) as problem:
            said[f"{type(problem).__name__}: {problem}"[:100]] += 1
            time.sleep(0.01)
    return said
