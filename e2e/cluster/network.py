"""The node's network: a namespace of its own, joined to the host by one pair of interfaces.

It has no uplink and no default route, so that nothing a pod or a ClusterIP sends can leave it. The host
reaches the API server over the pair; whatever talks to pods runs inside.
"""

import os
import signal

from e2e.cluster.controlplane import SERVICE_RANGE
from e2e.cluster.layout import NODE_NAME, Layout
from e2e.cluster.processes import ProcessError, output, wait_for

KILL_TIMEOUT_SECONDS = 20


def create(layout: Layout) -> None:
    """Make the namespace and the pair. Neither may be there yet."""
    namespace, host = layout.network_namespace, layout.host_interface
    inside = ("ip", "-n", namespace)
    for command in (
        ("ip", "netns", "add", namespace),
        (*inside, "link", "set", "lo", "up"),
        ("ip", "link", "add", host, "type", "veth", "peer", "name", NODE_NAME, "netns", namespace),
        ("ip", "addr", "add", f"{layout.host_address}/24", "dev", host),
        ("ip", "link", "set", host, "up"),
        (*inside, "addr", "add", f"{layout.node_address}/24", "dev", NODE_NAME),
        (*inside, "link", "set", NODE_NAME, "up"),
        # The node itself needs a route to ClusterIPs before kube-proxy can redirect them.
        (*inside, "route", "add", SERVICE_RANGE, "dev", NODE_NAME),
        (*layout.enter, "sysctl", "-qw", "net.ipv4.ip_forward=1"),
    ):
        output(command)


def delete(layout: Layout) -> None:
    """Remove namespace and pair if they exist, with every process still inside."""
    if layout.network_namespace_path.exists():
        wait_for(f"network namespace {layout.name} empty", lambda: _kill_inside(layout), KILL_TIMEOUT_SECONDS)
    try:
        output(("ip", "link", "delete", layout.host_interface))
    except ProcessError:  # none there, or just going with a namespace that was deleted before
        wait_for(f"{layout.host_interface} gone", lambda: not _interface_exists(layout), KILL_TIMEOUT_SECONDS)
    if layout.network_namespace_path.exists():
        output(("ip", "netns", "delete", layout.network_namespace))


def remains(layout: Layout) -> list[str]:
    """What of the network is there, in words."""
    found = []
    if layout.network_namespace_path.exists():
        found.append(f"network namespace {layout.network_namespace}")
    if _interface_exists(layout):
        found.append(f"interface {layout.host_interface}")
    return found


def _interface_exists(layout: Layout) -> bool:
    return f" {layout.host_interface}@" in output(("ip", "-o", "link", "show"))


def _kill_inside(layout: Layout) -> bool:
    inside = [int(line) for line in output(("ip", "netns", "pids", layout.network_namespace)).split()]
    for process in inside:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return not inside
