"""Removing a cluster, whole or in pieces: nothing relies on what `up` got done or on a process alive."""

import json
import shutil
from pathlib import Path

from e2e.cluster import network
from e2e.cluster.cgroups import ControlGroup
from e2e.cluster.layout import Layout
from e2e.cluster.processes import ProcessError, output

MOUNT_TABLE = Path("/proc/self/mountinfo")
CONTAINER_LOGS = Path("/var/log/containers")
CNI_RESULTS = Path("/var/lib/cni/results")


def tear_down(layout: Layout) -> None:
    """Remove processes, mounts, network, control groups and state of the cluster.

    May be called at any time and again. Raises ProcessError naming what could not be removed.
    """
    # The processes first, and where new ones would go: nobody mounts anything or answers after that.
    ControlGroup(layout.control_group).destroy()
    network.delete(layout)
    _unmount_below(layout.state)
    _remove_outside(layout)
    if layout.state.exists():
        shutil.rmtree(layout.state)
    left = remains(layout)
    if left:
        raise ProcessError(f"cluster {layout.name} left behind: {', '.join(left)}")


def remains(layout: Layout) -> list[str]:
    """What of the cluster is on this machine, in words. Empty after a teardown."""
    group = ControlGroup(layout.control_group)
    state = [f"folder {layout.state}"] if layout.state.exists() else []
    return [
        *(f"process {process}" for process in sorted(group.processes())),
        *(f"mount {mount}" for mount in _mounts_below(layout.state)),
        *network.remains(layout),
        *(f"control group {folder}" for folder in group.remains()),
        *state,
    ]


def _mounts_below(folder: Path) -> list[str]:
    """The mount points in and below `folder`, the last mounted first."""
    inside = f"{folder}/"
    points = [
        line.split()[4].encode().decode("unicode_escape") for line in MOUNT_TABLE.read_text().splitlines()
    ]
    return [point for point in reversed(points) if f"{point}/".startswith(inside)]


def _unmount_below(folder: Path) -> None:
    for point in _mounts_below(folder):
        output(("umount", "--lazy", point))


def _remove_outside(layout: Layout) -> None:
    """The few files that the kubelet, the shims and the CNI library insist on keeping elsewhere."""
    state = str(layout.state)
    if CONTAINER_LOGS.is_dir():
        for link in CONTAINER_LOGS.iterdir():
            if link.is_symlink() and str(link.readlink()).startswith(f"{state}/"):
                link.unlink()
    if CNI_RESULTS.is_dir():
        for result in CNI_RESULTS.glob(f"{layout.pod_network}-*"):
            result.unlink()
    for bootstrap in (layout.state / "containerd" / "state").glob("*/k8s.io/*/bootstrap.json"):
        address = json.loads(bootstrap.read_text())["address"]
        Path(address.removeprefix("unix://")).unlink(missing_ok=True)
