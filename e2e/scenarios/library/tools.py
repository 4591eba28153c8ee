"""kubectl and helm, as users run them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMAND_SECONDS: Final = 180


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Tool:
    """A command-line tool that talks to the cluster under test."""

    binary: Path
    kubeconfig: Path

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [str(self.binary), "--kubeconfig", str(self.kubeconfig), *arguments]

    def environment(self) -> Mapping[str, str]:
        """The environment without anything that could name another cluster."""
        return {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}

    def attempt(
        self, *arguments: str, text: str | None = None, timeout_seconds: float = COMMAND_SECONDS
    ) -> Outcome:
        """Run it, whatever comes of it."""
        done = subprocess.run(
            self.command(*arguments),
            input=text,
            capture_output=True,
            text=True,
            env=dict(self.environment()),
            timeout=timeout_seconds,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str, text: str | None = None, timeout_seconds: float = COMMAND_SECONDS) -> str:
        """Its output; AssertionError with its words if it fails."""
        outcome = self.attempt(*arguments, text=text, timeout_seconds=timeout_seconds)
        assert outcome.code == 0, f"{self.binary.name} {' '.join(arguments)}: {outcome.out}{outcome.err}"
        return outcome.out


class Kubectl(Tool):
    """kubectl."""

    @property
    def plugin(self) -> "Plugin":
        """`kubectl tailbound`."""
        return Plugin(self.binary, self.kubeconfig)


class Plugin(Tool):
    """`kubectl tailbound`, which pip installed beside this Python; `binary` is kubectl."""

    def command(self, *arguments: str) -> list[str]:
        """kubectl takes no option before the name of a plugin."""
        return [str(self.binary), "tailbound", *arguments]

    def environment(self) -> Mapping[str, str]:
        """The environment with the cluster, and both programs on PATH."""
        found = super().environment()
        folders = (str(Path(sys.executable).parent), str(self.binary.parent), found["PATH"])
        return {**found, "KUBECONFIG": str(self.kubeconfig), "PATH": os.pathsep.join(folders)}


class Helm(Tool):
    """helm."""
