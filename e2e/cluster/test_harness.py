"""Our own cluster comes up over anything and goes down to nothing: a second one, beside the scenarios."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.cluster import Cluster, OwnCluster, teardown
from e2e.cluster.cgroups import ControlGroup
from e2e.cluster.layout import Layout
from e2e.cluster.processes import ProcessError, wait_for

LAYOUT = Layout("harness")
UP_TIMEOUT_SECONDS = 300
REAP_TIMEOUT_SECONDS = 60


@pytest.fixture
def second() -> Iterator[OwnCluster]:
    """A cluster that is not up, and of which nothing is left afterwards."""
    cluster = OwnCluster(LAYOUT)
    cluster.down()
    yield cluster
    cluster.down()
    assert_gone()


def leftovers() -> list[str]:
    """What names the second cluster in the kernel or among the processes, looked up independently."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(LAYOUT.state) in line]
    namespaces = [path.name for path in Path("/run/netns").glob("*") if path.name == LAYOUT.name]
    interfaces = [
        path.name for path in Path("/sys/class/net").iterdir() if path.name == LAYOUT.host_interface
    ]
    return [*mounts, *namespaces, *interfaces, *processes(), *teardown.remains(LAYOUT)]


def assert_gone() -> None:
    # A killed process is listed until the machine's first process has taken note of its end.
    with suppress(ProcessError):
        wait_for("nothing left", lambda: not leftovers(), REAP_TIMEOUT_SECONDS)
    assert leftovers() == []


def processes() -> list[str]:
    """Processes started from or for the second cluster, containers included."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                group = (entry / "cgroup").read_text()
                if str(LAYOUT.state) in words or LAYOUT.control_group in group:
                    found.append(f"{entry.name}: {words}")
    return found


def command(*words: str) -> subprocess.Popen[bytes]:
    # What a shell starts in the background has SIGINT ignored, and so has all that it starts.
    heeding_interrupts = ("env", "--default-signal=INT")
    return subprocess.Popen(
        [*heeding_interrupts, sys.executable, "-m", "e2e.cluster", "--name", LAYOUT.name, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def daemons_started(name: str) -> bool:
    return (LAYOUT.state / f"{name}.pid").exists()


def test_up_is_idempotent_and_down_leaves_nothing(second: OwnCluster) -> None:
    second.up()
    identity = second.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    second.up()
    assert second.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}") == identity
    assert second.faults() == []
    second.down()
    assert_gone()


def test_up_starts_over_a_cluster_whose_processes_were_all_killed(second: OwnCluster) -> None:
    second.up()
    group = ControlGroup(LAYOUT.control_group)
    group.kill()
    wait_for("all processes gone", lambda: not group.processes(), REAP_TIMEOUT_SECONDS)
    assert "etcd does not run" in second.faults()
    assert any(line.startswith("mount") for line in teardown.remains(LAYOUT))
    second.up()
    assert second.faults() == []


def test_up_replaces_a_cluster_that_lost_a_daemon(second: OwnCluster) -> None:
    second.up()
    os.kill(int((LAYOUT.state / "kube-proxy.pid").read_text()), signal.SIGKILL)
    wait_for("kube-proxy gone", lambda: second.faults() == ["kube-proxy does not run"], 60)
    second.up()
    assert second.faults() == []


@pytest.mark.parametrize("daemon", ["containerd", "kubelet"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_up_leaves_nothing_but_its_logs(
    second: OwnCluster, daemon: str, number: signal.Signals
) -> None:
    with command("up") as up:
        wait_for(f"{daemon} started", lambda: daemons_started(daemon), UP_TIMEOUT_SECONDS)
        up.send_signal(number)
        assert up.wait(UP_TIMEOUT_SECONDS) != 0
    assert_gone()
    assert (LAYOUT.state.with_name(f"{LAYOUT.name}-failed-logs") / f"{daemon}.log").exists()


def test_down_removes_what_a_killed_up_left(second: OwnCluster) -> None:
    with command("up") as up:
        wait_for("kubelet started", lambda: daemons_started("kubelet"), UP_TIMEOUT_SECONDS)
        up.kill()
    assert processes() != []
    second.down()
    assert_gone()


def test_kubeconfig_names_a_cluster_whose_node_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "theirs"))
    cluster = Cluster.current()
    assert (cluster.kubeconfig, cluster.owns_node) == (tmp_path / "theirs", False)


def test_no_cluster_is_an_error_that_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ProcessError, match="cluster absent is not up: run `make cluster-up`"):
        Cluster.current("absent")
