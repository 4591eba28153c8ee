"""The cache of built programs: built once for a content, never half there."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import binaries
from e2e.cluster.binaries import MODULES, BuildError, Module

FAKE_GO = """#!/bin/sh
echo "$GOTOOLCHAIN $*" >> "$BUILDS"
sleep 0.2
[ -e "$FAIL" ] && { echo "broken.go:1: syntax error"; exit 1; }
touch "$GOBIN/server" "$GOBIN/kubectl"
"""


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that only takes note; the file lists its calls."""
    compiler = tmp_path / "bin" / "go"
    compiler.parent.mkdir()
    compiler.write_text(FAKE_GO)
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("FAIL", str(tmp_path / "fail"))
    module = Module("kubernetes", programs=("etcd", "kubectl"), renames={"server": "etcd"})
    monkeypatch.setitem(MODULES, "kubernetes", module)
    return tmp_path / "builds"


def test_two_at_once_build_once_and_the_program_has_its_known_name(builds: Path) -> None:
    found: list[Path] = []
    runs = [threading.Thread(target=lambda: found.append(binaries.ensure("kubernetes"))) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(set(found)) == 1
    assert sorted(path.name for path in found[0].iterdir()) == ["etcd", "kubectl"]
    assert builds.read_text().splitlines() == [f"{binaries.GO_TOOLCHAIN} install -ldflags -s -w tool"]
    assert binaries.ensure("kubernetes") == found[0]
    assert len(builds.read_text().splitlines()) == 1


def test_failed_build_says_why_and_leaves_nothing_that_looks_built(builds: Path, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(BuildError, match=r"failed \(1\):\nbroken\.go:1: syntax error"):
        binaries.ensure("kubernetes")
    (tmp_path / "fail").unlink()
    assert (binaries.ensure("kubernetes") / "etcd").exists()
    assert len(builds.read_text().splitlines()) == 2


def test_program_that_the_module_does_not_make_is_an_error(
    builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODULES, "kubernetes", replace(MODULES["kubernetes"], programs=("etcd", "kubelet")))
    with pytest.raises(BuildError, match="building kubernetes left out kubelet"):
        binaries.ensure("kubernetes")


@pytest.mark.parametrize(
    "other",
    [
        {"ldflags": "-s"},
        {"tags": "no_btrfs"},
        {"programs": ("etcd",)},
        {"name": "helm"},
    ],
)
def test_digest_depends_on_all_that_makes_the_programs(other: dict[str, str]) -> None:
    module = Module("kubernetes", programs=("etcd", "kubectl"))
    assert replace(module, **other).digest() != module.digest()  # type: ignore[arg-type]


def test_missing_compiler_is_an_error_that_names_the_remedy(
    builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "GO_FOLDER", str(tmp_path))
    with pytest.raises(BuildError, match=r"install Go 1\.21 or newer"):
        binaries.ensure("kubernetes")
