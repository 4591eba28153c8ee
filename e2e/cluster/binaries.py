"""Go programs of the cluster and of tests: built once from the modules in tools/, cached by content.

A module's folder name holds a digest of its go.mod, its go.sum and the flags, so that any change builds anew
and an unchanged one is never built twice, neither by a later run nor by one beside it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster.progress import announced

TOOLS = Path(__file__).parent / "tools"
GO_TOOLCHAIN = "go1.27.3"
GO_FOLDER = "/usr/local/go/bin"
KUBERNETES_VERSION = "v1.37.2"
_VERSION_PACKAGE = "k8s.io/component-base/version"


class BuildError(RuntimeError):
    """A module did not build; the message holds the end of the compiler's output."""


@dataclass(frozen=True)
class Module:
    """One folder of tools/: what it builds, and how.

    `renames` maps the name that Go gives a program to the name that people know.
    """

    name: str
    programs: tuple[str, ...]
    ldflags: str = "-s -w"
    tags: str = ""
    renames: Mapping[str, str] = field(default_factory=dict)
    of_cluster: bool = True
    """A cluster needs it; otherwise only tests do."""

    @property
    def source(self) -> Path:
        return TOOLS / self.name

    def arguments(self) -> list[str]:
        tags = ["-tags", self.tags] if self.tags else []
        return ["install", *tags, "-ldflags", self.ldflags, "tool"]

    def digest(self) -> str:
        content = hashlib.sha256()
        for part in (
            (self.source / "go.mod").read_bytes(),
            (self.source / "go.sum").read_bytes(),
            "\0".join([GO_TOOLCHAIN, *self.arguments(), *self.programs]).encode(),
        ):
            content.update(hashlib.sha256(part).digest())
        return content.hexdigest()[:16]


MODULES = {
    module.name: module
    for module in (
        Module(
            name="kubernetes",
            programs=(
                "etcd",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubectl",
                "kubelet",
            ),
            ldflags=(
                f"-s -w -X {_VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}"
                f" -X {_VERSION_PACKAGE}.gitMajor=1 -X {_VERSION_PACKAGE}.gitMinor=37"
            ),
            renames={"server": "etcd"},
        ),
        Module(
            name="containerd",
            programs=("containerd", "containerd-shim-runc-v2", "ctr"),
            tags="no_btrfs,no_zfs,no_devmapper",
        ),
        Module(name="helm", programs=("helm",)),
        Module(name="coredns", programs=("coredns",)),
        Module(name="metrics-server", programs=("metrics-server",)),
        # It finds its targets by HTTP or in files: what the clouds' interfaces add is half of the build.
        Module(
            name="prometheus",
            programs=("prometheus", "promtool"),
            tags="remove_all_sd",
            of_cluster=False,
        ),
        # An S3 server on a folder.
        Module(name="versitygw", programs=("versitygw",), of_cluster=False),
        # A driver of dynamic resource allocation whose devices are not there: Kubernetes' own, for its tests.
        Module(
            name="dra-test-driver",
            programs=("dra-test-driver",),
            renames={"test-driver": "dra-test-driver"},
            of_cluster=False,
        ),
    )
}
_MODULE_OF = {program: module.name for module in MODULES.values() for program in module.programs}


def cache_folder() -> Path:
    """The folder of what is built, kept between runs: $XDG_CACHE_HOME/tailbound, or ~/.cache/tailbound."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tailbound"


def ensure(name: str, place: str = "") -> Path:
    """The folder with the programs of module `name`, built first if this content was never built here.

    `place` is said to the person who waits: "2 of 5". Blocks while another process builds the same module.
    Raises BuildError if the build fails.
    """
    module = MODULES[name]
    target = cache_folder() / "go" / f"{name}-{module.digest()}"
    if target.is_dir():
        return target
    with file_lock(target.with_suffix(".lock")):
        if not target.is_dir():
            with announced(f"{name} from source", cache_folder(), place):
                _build(module, target)
    return target


def program(name: str) -> Path:
    """The path of one program, for instance `kubectl`; its module is built first if need be."""
    return ensure(_MODULE_OF[name]) / name


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold `path` exclusively across processes. The kernel drops the lock if the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(module: Module, target: Path) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{module.name}-", dir=target.parent))
    try:
        environment = {
            **os.environ,
            "GOTOOLCHAIN": GO_TOOLCHAIN,
            "CGO_ENABLED": "0",
            "GOBIN": str(staging),
            "GOFLAGS": "",
        }
        result = subprocess.run(
            [_go(), *module.arguments()],
            cwd=module.source,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode:
            raise BuildError(f"building {module.name} failed ({result.returncode}):\n{result.stdout[-4000:]}")
        for built, wanted in module.renames.items():
            (staging / built).rename(staging / wanted)
        missing = [name for name in module.programs if not (staging / name).is_file()]
        if missing:
            raise BuildError(f"building {module.name} left out {', '.join(missing)}")
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _go() -> str:
    found = shutil.which("go") or shutil.which("go", path=GO_FOLDER)
    if found is None:
        raise BuildError(f"no `go` on PATH nor in {GO_FOLDER}: install Go 1.21 or newer from go.dev/dl")
    return found
