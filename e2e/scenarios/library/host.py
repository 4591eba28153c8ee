"""The node's host: killing processes in pods and cutting pods off. Only with a cluster of our own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.scenarios.library.api import Object, container_states

CUT_TABLE: Final = "scenario_cut"


def container_pids(pod: Object, container: str) -> list[int]:
    """Processes of a container, its first one first. AssertionError if it does not run."""
    states = dict(container_states(pod))
    identity = str(states[container].get("containerID", "")).removeprefix("containerd://")
    assert identity, f"container {container} of {pod['metadata']['name']} has no process"
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _belongs(entry, identity)
    ]
    assert found, f"no process of container {container} ({identity}) on this host"
    return sorted(found)


def _belongs(process: Path, container_id: str) -> bool:
    try:
        return container_id in (process / "cgroup").read_text()
    except OSError:  # it ended while we looked
        return False


def kill_container(pod: Object, container: str) -> None:
    """SIGKILL to everything in the container, as the kernel's OOM killer or a crash does it."""
    for pid in container_pids(pod, container):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def cut_off(pod: Object, container: str, *addresses: str) -> Iterator[None]:
    """Drop every packet of the pod to these addresses during the block, established connections included."""
    pid = container_pids(pod, container)[0]
    # The namespace file stays valid through the descriptor when the process is gone.
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        entry = f"/proc/{os.getpid()}/fd/{namespace.fileno()}"
        drop = f"ip daddr {{ {', '.join(addresses)} }} drop"
        _nft_at(
            entry,
            f"add table inet {CUT_TABLE}\n"
            f"add chain inet {CUT_TABLE} out {{ type filter hook output priority 0; }}\n"
            f"add rule inet {CUT_TABLE} out {drop}\n",
        )
        try:
            yield
        finally:
            _nft_at(entry, f"delete table inet {CUT_TABLE}\n")


def _nft_at(namespace: str, script: str) -> None:
    subprocess.run(
        ["nsenter", f"--net={namespace}", "nft", "-f", "-"],
        input=script,
        text=True,
        check=True,
        capture_output=True,
        timeout=10,
    )
