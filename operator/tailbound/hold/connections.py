"""The TCP connections of this pod to some of its ports, as the kernel reports them.

The containers of a pod share a network namespace, so that this process sees the connections of its neighbour.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from tailbound.objects.unknown import Unknown
from tailbound.sock_diag import TcpSocket, TcpState, tcp_sockets

_AGES: Final = struct.Struct("=III")
_AGES_OFFSET: Final = 44  # of tcpi_last_data_sent in a struct tcp_info


@dataclass(frozen=True)
class TcpConnection:
    """One established connection, seen from the server; times in seconds."""

    sent_ago: float
    """Time since the server last sent data, or since the connection was made."""
    received_ago: float
    """Time since the client last sent data, or since the connection was made."""
    pending: bool = False
    """Data wait to be read by the server, or to be taken by the client."""


Connections: TypeAlias = tuple[TcpConnection, ...] | Unknown


def connections_to(ports: Collection[int]) -> Connections:
    """The established connections to these ports of the pod."""
    try:
        return tuple(_connection(each) for each in tcp_sockets(TcpState.ESTABLISHED) if each.port in ports)
    except OSError as error:
        return Unknown(f"the kernel does not list the connections: {error}")


def _connection(each: TcpSocket) -> TcpConnection:
    """A socket as a connection. One whose ages the kernel does not tell counts as one that has a request."""
    if each.info is None or len(each.info) < _AGES_OFFSET + _AGES.size:
        return TcpConnection(0.0, 0.0, pending=True)
    sent, _, received = _AGES.unpack_from(each.info, _AGES_OFFSET)
    return TcpConnection(sent / 1000, received / 1000, pending=bool(each.unread or each.unsent))
