"""Ports that nothing listens on."""

import socket


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Several ports, which are held at once, so that they differ."""
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def free_port(host: str = "127.0.0.1") -> int:
    """One port."""
    (port,) = free_ports(1, host)
    return port
