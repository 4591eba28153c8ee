"""Daemons that outlive the command which started them, in the control group and network of their cluster."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.cgroups import ControlGroup
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Argument, ProcessError, ended, wait_for

# The shell joins the group, so that the daemon is born in it, and becomes the daemon. Its parent is
# gone by then: nobody has to wait for it. (A shell's own `&` would leave SIGINT ignored in every container.)
_BECOME = 'echo 0 >"$1" && echo $$ >"$2" && shift 2 && exec "$@"'
START_SECONDS = 10
STOP_SECONDS = 10


@dataclass(frozen=True)
class Daemons:
    """The daemons of a one-node cluster; later commands find them through NAME.pid in the state folder."""

    layout: Layout
    path: str

    @property
    def group(self) -> ControlGroup:
        return ControlGroup(self.layout.control_group)

    def start(self, name: str, arguments: Sequence[Argument]) -> None:
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        pid_file = self._pid_file(name)
        pid_file.unlink(missing_ok=True)
        words = [self.group.daemons / "cgroup.procs", pid_file, *self.layout.enter, *arguments]
        with self._log(name).open("ab") as log:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", _BECOME, "become", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
                env={**os.environ, "PATH": self.path},
            )
        wait_for(f"{name} started", lambda: self._pid(name) is not None, START_SECONDS)

    def check(self, name: str) -> None:
        if not self.runs(name):
            raise ended(name, self._log(name))

    def runs(self, name: str) -> bool:
        """Whether `name` was started and still runs. A reused process id is not taken for it."""
        return self._pid(name) in self.group.processes()

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        wait_for(f"{name} gone", lambda: not self.runs(name), STOP_SECONDS)

    def stop(self, name: str) -> None:
        self._signal(name, signal.SIGTERM)
        try:
            wait_for(f"{name} stopped", lambda: not self.runs(name), STOP_SECONDS)
        except ProcessError:
            self.kill(name)

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is not None and self.runs(name):
            os.kill(pid, number)

    def _pid(self, name: str) -> int | None:
        try:
            return int(self._pid_file(name).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _pid_file(self, name: str) -> Path:
        return self.layout.state / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self.layout.logs / f"{name}.log"
