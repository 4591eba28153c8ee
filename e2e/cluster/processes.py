"""Starting and stopping daemons that live as long as this process, and waiting for what they promise."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

POLL_SECONDS = 0.1
Argument = str | Path


class ProcessError(RuntimeError):
    """A daemon or a command failed; the message holds the end of its output."""


class Supervisor(Protocol):
    """Who runs the daemons: Children here, Daemons in daemons.py."""

    def start(self, name: str, arguments: Sequence[Argument]) -> None:
        """Start `name`; what it prints is appended to its log."""

    def check(self, name: str) -> None:
        """Raise ProcessError with the end of its log if `name` does not run."""

    def kill(self, name: str) -> None:
        """SIGKILL `name` and wait until it is gone. Nothing happens if it does not run."""

    def stop(self, name: str) -> None:
        """SIGTERM `name`, SIGKILL it after 10 s, and wait until it is gone."""


@dataclass
class Children:
    """Daemons that end with the thread that started them, however that ends: the kernel sees to it."""

    logs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, arguments: Sequence[Argument]) -> None:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ProcessError("no `setpriv` on PATH: install the package util-linux")
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [setpriv, "--pdeathsig", "KILL", "--", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self, name: str) -> None:
        if self.running[name].poll() is not None:
            raise ended(name, self.logs / f"{name}.log")

    def kill(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def stop(self, name: str) -> None:
        process = self.running.get(name)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill(name)
        self.running.pop(name, None)


def ended(name: str, log: Path) -> ProcessError:
    """The error for a daemon that should run and does not."""
    tail = log.read_text(errors="replace")[-3000:] if log.exists() else "(no log)"
    return ProcessError(f"{name} has ended; the end of {log}:\n{tail}")


def wait_for(what: str, ready: Callable[[], bool], timeout_seconds: float) -> None:
    """Poll `ready` until it is true. Raises ProcessError naming `what` after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ProcessError(f"{what}: not so within {timeout_seconds:g} s")
        time.sleep(POLL_SECONDS)


def output(
    arguments: Sequence[Argument],
    *,
    input: str | None = None,  # noqa: A002 - the name that subprocess uses
    timeout_seconds: float = 300,
) -> str:
    """Run a command to its end and return what it printed.

    Raises ProcessError with its error output if its status is not 0 or it runs longer than `timeout_seconds`.
    """
    words = list(map(str, arguments))
    try:
        result = subprocess.run(
            words,
            input=input,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"`{' '.join(words)}` ran longer than {timeout_seconds:g} s") from error
    if result.returncode:
        raise ProcessError(
            f"`{' '.join(words)}` ended with status {result.returncode}:\n{result.stderr.strip()}"
        )
    return result.stdout
