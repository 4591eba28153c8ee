"""Starting and stopping the daemons, and waiting for what they promise."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 0.1


class ProcessError(RuntimeError):
    """A daemon or a command failed; the message holds the end of its output."""


@dataclass
class Processes:
    """The daemons of one cluster: each has NAME.log in `logs`.

    `prefix` goes before every command line: the words that place a process (namespace, control group), or
    that tie its life to ours.
    """

    logs: Path
    prefix: tuple[str, ...]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, arguments: Sequence[str | Path]) -> None:
        """Start `name` in a session of its own. A log of an earlier start is continued."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.prefix, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def check(self, name: str) -> None:
        """Raise ProcessError if `name`, started here, has ended."""
        process = self.running.get(name)
        if process is not None and process.poll() is not None:
            tail = self.log(name).read_text(errors="replace")[-3000:]
            raise ProcessError(f"{name} ended with status {process.returncode}; the end of its log:\n{tail}")

    def stop(self, name: str, grace_seconds: float = 10) -> None:
        """Stop `name` if it runs: SIGTERM, then SIGKILL after `grace_seconds`."""
        process = self.running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """SIGKILL `name` and reap it."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()


def die_with_parent() -> tuple[str, ...]:
    """Command prefix: the kernel kills the process when the thread that started it ends, however it ends."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ProcessError("no `setpriv` on PATH: install the package util-linux")
    return (setpriv, "--pdeathsig", "KILL", "--")


def wait_for(what: str, ready: Callable[[], bool], timeout_seconds: float) -> None:
    """Poll `ready` until it is true. Raises ProcessError naming `what` after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ProcessError(f"{what}: not so within {timeout_seconds:g} s")
        time.sleep(POLL_SECONDS)


def output(arguments: Sequence[str | Path], *, stdin: str | None = None, timeout_seconds: float = 120) -> str:
    """Run a command to its end and return what it printed. Raises ProcessError with its error output."""
    result = subprocess.run(
        list(map(str, arguments)),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if result.returncode:
        words = " ".join(map(str, arguments))
        raise ProcessError(f"`{words}` ended with status {result.returncode}:\n{result.stderr.strip()}")
    return result.stdout
