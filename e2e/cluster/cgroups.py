"""The control group that holds every process of one cluster, daemons and containers alike.

Whatever started them and whoever was killed, all of a cluster's processes are in this group: it is how
teardown finds them. Version 1 has a tree per controller, and the kubelet wants its root in all of them;
version 2 has one tree.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.processes import ProcessError, wait_for

MOUNT = Path("/sys/fs/cgroup")
DAEMONS = "daemons"
_TRACKERS = ("pids", "freezer", "memory", "cpu")
KILL_TIMEOUT_SECONDS = 30
# Eight times what a process gets, in version 1 and in version 2.
CPU_WEIGHTS = {"cpu.shares": 8192, "cpu.weight": 800}


@dataclass(frozen=True)
class ControlGroup:
    """The group `name` directly under the root of each tree."""

    name: str

    @staticmethod
    def unified() -> bool:
        """Whether this machine runs version 2 alone."""
        return (MOUNT / "cgroup.controllers").exists()

    def trees(self) -> list[Path]:
        """The group's folder in every tree, existing or not."""
        if self.unified():
            return [MOUNT / self.name]
        return [
            tree / self.name for tree in sorted(MOUNT.iterdir()) if tree.is_dir() and not tree.is_symlink()
        ]

    def tracker(self) -> Path:
        """The group's folder in the tree that processes are looked up in."""
        if self.unified():
            return MOUNT / self.name
        for controller in _TRACKERS:
            if (MOUNT / controller).is_dir():
                return MOUNT / controller / self.name
        raise ProcessError(f"no control group tree under {MOUNT}: mount cgroup2 there")

    @property
    def daemons(self) -> Path:
        """The group of the daemons' own processes; containers go to a sibling, made by the kubelet."""
        return self.tracker() / DAEMONS

    def create(self) -> None:
        if self.unified():
            _delegate_controllers(MOUNT)
        for tree in self.trees():
            tree.mkdir(exist_ok=True)
            _inherit_cpuset(tree)
            _weigh(tree)
        self.daemons.mkdir(exist_ok=True)

    def processes(self) -> set[int]:
        """The ids of all processes in the group and below."""
        found: set[int] = set()
        for file in self.tracker().rglob("cgroup.procs") if self.tracker().is_dir() else ():
            found |= _members(file)
        return found

    def destroy(self) -> None:
        """SIGKILL every process in the group and remove it from every tree.

        Raises ProcessError if that takes too long. A process that is just being started either joins before
        the end and is killed, or finds no group to join and never becomes a daemon.
        """
        wait_for(f"control group {self.name} gone", self._destroyed, KILL_TIMEOUT_SECONDS)

    def kill(self) -> None:
        """SIGKILL every process in the group, once."""
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _destroyed(self) -> bool:
        self.kill()
        removed = [_remove_folders(tree) for tree in self.trees()]
        return all(removed)

    def remains(self) -> list[str]:
        return [str(tree) for tree in self.trees() if tree.exists()]


def _members(file: Path) -> set[int]:
    try:
        return {int(line) for line in file.read_text().split()}
    except OSError:  # the group went away between the listing and the reading
        return set()


def _remove_folders(tree: Path) -> bool:
    """Try to remove a group, children first; true if it is gone. It stays busy until its last process is."""
    for folder, _, _ in os.walk(tree, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _inherit_cpuset(tree: Path) -> None:
    """A version 1 cpuset starts empty, and an empty one admits no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, parent = tree / name, tree.parent / name
        if own.exists() and not own.read_text().strip() and parent.exists():
            own.write_text(parent.read_text())


def _weigh(tree: Path) -> None:
    """Its pods together would get the CPU time of one process beside the others of this machine."""
    for name, weight in CPU_WEIGHTS.items():
        if (tree / name).exists():
            (tree / name).write_text(str(weight))


def _delegate_controllers(root: Path) -> None:
    """Let children of the version 2 root use every controller.

    Inside a container the root shown is an inner group. With processes in it, it cannot delegate: they move
    to a leaf.
    """
    if (root / "cgroup.type").exists():
        leaf = root / "init"
        leaf.mkdir(exist_ok=True)
        for process in _members(root / "cgroup.procs"):
            try:
                (leaf / "cgroup.procs").write_text(str(process))
            except OSError:  # ended meanwhile, or a kernel thread
                continue
    wanted = (root / "cgroup.controllers").read_text().split()
    (root / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
