"""What a one-node cluster of a given name is called on this machine: every folder, address and kernel object.

All of it follows from the name, so that what a killed cluster left behind can be found and removed.
"""

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

# TAILBOUND_CLUSTER chooses another one, to work on two clusters side by side.
DEFAULT_NAME = os.environ.get("TAILBOUND_CLUSTER", "tailbound")
NODE_NAME = "node0"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")


@dataclass(frozen=True)
class Layout:
    """The names and places of cluster `name`. Raises ValueError for a name that no interface could carry."""

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name: {self.name!r} is not 1 to 12 lowercase letters, digits and dashes, letter first"
            )

    @property
    def state(self) -> Path:
        """Everything the cluster writes: $XDG_STATE_HOME/tailbound/NAME, or ~/.local/state/tailbound/NAME."""
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(base).absolute() / "tailbound" / self.name

    @property
    def lock(self) -> Path:
        return self.state.with_name(f"{self.name}.lock")

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def containerd_socket(self) -> Path:
        return self.state / "containerd.sock"

    @property
    def network_namespace(self) -> str:
        return self.name

    @property
    def network_namespace_path(self) -> Path:
        return Path("/run/netns") / self.network_namespace

    @property
    def host_interface(self) -> str:
        return f"{self.name}-h"

    @property
    def pod_network(self) -> str:
        return f"tailbound-{self.name}"

    @property
    def control_group(self) -> str:
        return f"tailbound-{self.name}"

    @property
    def subnet(self) -> str:
        """The first three bytes of the network of node and host, which depend on the name."""
        third = 0 if self.name == "tailbound" else 1 + zlib.crc32(self.name.encode()) % 255
        return f"10.240.{third}"

    @property
    def node_address(self) -> str:
        return f"{self.subnet}.1"

    @property
    def host_address(self) -> str:
        return f"{self.subnet}.254"

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that runs in the node's network namespace.

        Not `ip netns exec`: that mounts another /sys, and the kubelet would find no control groups there.
        """
        return ("nsenter", f"--net={self.network_namespace_path}", "--")
