"""Free ports, each reserved for the process that asked for it until that process ends."""

import random
import socket
from contextlib import suppress
from itertools import islice

PORTS = range(20_000, 30_000)
"""The ports to choose from, below those of clients (from 32768) and the node ports of Services (from 30000).

A chosen port therefore stays free until its process listens on it, seconds later.
"""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Several ports, which differ.

    Raises:
        OSError: Fewer ports than that are free.
    """
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))
    ports = list(islice((port for port in candidates if _is_free(host, port) and _claimed(port)), count))
    if len(ports) < count:
        raise OSError(f"{count} free ports of {host} were asked for; {PORTS} has only {len(ports)}")
    return ports


def free_port(host: str = "127.0.0.1") -> int:
    """One port."""
    (port,) = free_ports(1, host)
    return port


def _is_free(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_server((host, port)):
        return True
    return False


def _claimed(port: int) -> bool:
    """Whether no other process has this port; it is this one's from now on.

    A claim is a Unix socket of an abstract name, which leaves no file behind.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0tailbound-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # its descriptor stays open until the process ends, and the claim with it
    return True
