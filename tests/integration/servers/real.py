"""A foreign server that really runs: its packages, what the chart's runtime renders for it, its process."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from e2e.cluster.binaries import cache_folder
from e2e.cluster.ports import free_port
from e2e.cluster.processes import wait_for
from e2e.cluster.progress import announced
from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of

ROOT: Final = Path(__file__).parents[3]
BUILD: Final = ROOT / "build" / "servers"
CONSTRAINTS: Final = Path(__file__).parent / "constraints"
START_SECONDS: Final = 600
_CONFINED: Final = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c"),
    'mount --bind /tmp /tmp && mount --bind "$0" "$0" && mount -o remount,bind,ro / && cd "$0" && exec "$@"',
)
"""Runs a command as a container does whose root file system is read-only: a folder, then the command."""


@dataclass(frozen=True)
class Setup:
    """A server's place and command line on this machine."""

    directory: Path
    """An empty folder, for the model and what the pod would have mounted."""
    programs: Path
    """The folder bin of its environment."""
    pod: Mapping[str, Any]
    """The pod template that its runtime renders."""
    ports: Mapping[str, int]
    """By the port in the pod, the one on this machine."""

    @property
    def server(self) -> Mapping[str, Any]:
        """The rendered server container."""
        (container,) = self.pod["spec"]["containers"]
        return dict(container)

    def here(self, text: str, paths: Mapping[str, Path | str] = MappingProxyType({})) -> str:
        """The text with this machine's ports, and its paths for those of the pod."""
        for old, new in {**self.ports, **paths}.items():
            text = text.replace(old, str(new))
        return text

    def files(self) -> dict[str, str]:
        """The contents of the rendered configuration files, by their names."""
        annotations = self.pod["metadata"]["annotations"].items()
        contents = [text for name, text in annotations if "/file-" in name]
        mounted = [each for each in self.pod["spec"]["volumes"] if "downwardAPI" in each]
        names = [item["path"] for volume in mounted for item in volume["downwardAPI"]["items"]]
        return dict(zip(names, contents, strict=True))


@dataclass(frozen=True)
class Command:
    """The command that starts a server here."""

    arguments: list[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path | str] = field(default_factory=dict)
    """This machine's paths for those of the pod, for a probe that is a command."""


@dataclass(frozen=True)
class RealServer:
    """One server, and how it is examined."""

    name: str
    """The name of its runtime."""
    package: str
    """The package whose version is the server's."""
    model_format: str
    prepare: Callable[[Setup], Command]
    """Makes a model in the folder, and the command from what was rendered."""
    call: Callable[[str], int]
    """Sends one request to this base URL and checks the answer; the rows of the batch that it was in."""
    exit_status: int = 0
    """What it ends with after SIGTERM while nothing is in flight."""
    own_ports: tuple[int, ...] = ()
    """Ports in the pod that only the pod itself calls."""
    build: Mapping[str, str] = field(default_factory=dict)
    """Variables for pip, which builds the package from source."""
    further: Callable[[], Path] | None = None
    """A folder with packages beside those that are pinned for it, made if need be."""

    def pinned(self, folder: Path) -> str:
        """The package with the version that is in this environment."""
        said = subprocess.run(
            [folder / "bin" / "pip", "show", self.package], check=True, capture_output=True, text=True
        )
        lines = said.stdout.splitlines()
        version = next(line.split()[1] for line in lines if line.startswith("Version:"))
        return f"{self.package}=={version}"


@dataclass(frozen=True)
class Running:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    setup: Setup
    call: Callable[[], int]

    @property
    def port(self) -> int:
        """The port at which it is called."""
        return port_of(self.setup, "http")

    def terminate(self) -> None:
        """Send SIGTERM to the first process of its namespace, which is not the one that we started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)


def port_of(setup: Setup, name: str) -> int:
    """The port of this name, on this machine."""
    (port,) = (each["containerPort"] for each in setup.server["ports"] if each["name"] == name)
    return setup.ports[str(port)]


def environment(server: RealServer) -> Path:
    """The virtual environment of a server in build/servers, which is made once, of pinned packages.

    Tests of one server run in several processes: the first makes the environment, the others wait for it.
    """
    name = server.name
    folder, pins = BUILD / name, CONSTRAINTS / f"{name}.txt"
    made = folder / "made-of.txt"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists() or made.read_text() != pins.read_text():
            with announced(f"packages of {name}", cache_folder()):
                _install(server, folder, pins)
            made.write_text(pins.read_text())
    return folder


def _install(server: RealServer, folder: Path, pins: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", "--requirement", str(pins)]
    subprocess.run(command, check=True, env={**os.environ, **server.build})
    if server.further is not None:
        (packages,) = folder.glob("lib/*/site-packages")
        (packages / "further.pth").write_text(f"{server.further()}\n")


@contextmanager
def running(server: RealServer, directory: Path, load_seconds: float = 0) -> Iterator[Running]:
    """The server with what its runtime renders, until the block ends. Its model takes so long to load.

    As in a pod it is the first process of its namespace and can write to /tmp and its folder only.
    """
    directory.mkdir()
    pod = rendered(
        runtime_of(next(path for path in FILES if path.stem == server.name)),
        server.model_format,
        BATCHED,
        devices=0,
    )
    (container,) = pod["spec"]["containers"]
    ports = [*(port["containerPort"] for port in container["ports"]), *server.own_ports]
    setup = Setup(
        directory=directory,
        programs=environment(server) / "bin",
        pod=pod,
        ports={str(port): free_port() for port in ports},
    )
    command = server.prepare(setup)
    given = _expanded({each["name"]: setup.here(each["value"], command.paths) for each in container["env"]})
    variables = {**os.environ, **given, "HOME": str(directory), **command.variables}
    variables["LOAD_SECONDS"] = f"{load_seconds:g}"
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(
            [*_CONFINED, str(directory), *command.arguments],
            env=variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            wait_for(
                server.name,
                lambda: _alive(process, log.name) and _is_ready(setup, command, variables),
                START_SECONDS,
            )
            yield Running(process, setup, lambda: server.call(f"http://127.0.0.1:{port_of(setup, 'http')}"))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _expanded(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with the values of earlier ones in place of $(NAME), as the kubelet gives them."""
    made: dict[str, str] = {}
    for name, value in variables.items():
        made[name] = re.sub(r"\$\((\w+)\)", lambda found: made[found[1]], value)
    return made


def _is_ready(setup: Setup, command: Command, variables: Mapping[str, str]) -> bool:
    """Whether the startup probe and the readiness probe succeed."""
    return all(
        _succeeds(setup.server[f"{kind}Probe"], setup, command, variables)
        for kind in ("startup", "readiness")
    )


def _succeeds(probe: Mapping[str, Any], setup: Setup, command: Command, variables: Mapping[str, str]) -> bool:
    if "exec" in probe:
        arguments = [setup.here(each, command.paths) for each in probe["exec"]["command"]]
        asked = subprocess.run(arguments, env=dict(variables), check=False, capture_output=True)
        return asked.returncode == 0
    return ready(f"http://127.0.0.1:{port_of(setup, 'http')}{probe['httpGet']['path']}")


def _alive(process: subprocess.Popen[bytes], log: str) -> bool:
    assert process.poll() is None, Path(log).read_text()[-2000:]
    return True


def ready(url: str) -> bool:
    """Whether a probe of this URL succeeds."""
    try:
        return bool(urllib.request.urlopen(url, timeout=5).status == 200)
    except (urllib.error.URLError, OSError):
        return False
