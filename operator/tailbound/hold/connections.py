"""The TCP connections of this pod to some of its ports, as the kernel reports them.

The containers of a pod share a network namespace, so that this process sees the connections of its neighbour.
The kernel answers through a netlink socket (sock_diag(7)), which needs no privilege.
"""

import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from tailbound.objects.unknown import Unknown

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_DUMP_REQUEST: Final = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3
_INFO: Final = 2  # INET_DIAG_INFO, which holds a struct tcp_info
_ESTABLISHED: Final = 1
_TCP: Final = 6
_HEADER = struct.Struct("=IHHII")
_MESSAGE_BYTES: Final = 72  # of a struct inet_diag_msg
_AGES_OFFSET: Final = 44  # of tcpi_last_data_sent in a struct tcp_info
_TIMEOUT_SECONDS: Final = 5.0


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
        found = [*_listed(socket.AF_INET, ports), *_listed(socket.AF_INET6, ports)]
    except (OSError, struct.error) as error:
        return Unknown(f"the kernel does not list the connections: {error}")
    return tuple(found)


def _listed(family: int, ports: Collection[int]) -> Iterator[TcpConnection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT_SECONDS)
        kernel.send(_question(family))
        while True:
            answer = kernel.recv(65536)
            for kind, body in _messages(answer):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError(f"error {-struct.unpack_from('=i', body)[0]}")
                port = struct.unpack_from("!H", body, 4)[0]
                if port in ports and (found := _connection(body)) is not None:
                    yield found


def _question(family: int) -> bytes:
    """A request for every established TCP connection of a family, with its struct tcp_info."""
    body = struct.pack("=BBBBI", family, _TCP, 1 << (_INFO - 1), 0, 1 << _ESTABLISHED) + bytes(48)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0) + body


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(answer):
        length, kind, *_ = _HEADER.unpack_from(answer, offset)
        if length < _HEADER.size:
            raise OSError("a message is malformed")
        yield kind, answer[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _connection(body: bytes) -> TcpConnection | None:
    """The connection of one struct inet_diag_msg; None if the kernel says nothing of its ages."""
    unread, unsent = struct.unpack_from("=II", body, 56)
    offset = _MESSAGE_BYTES
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if kind == _INFO:
            sent, _, received = struct.unpack_from("=III", body, offset + 4 + _AGES_OFFSET)
            return TcpConnection(sent / 1000, received / 1000, pending=bool(unread or unsent))
        if length < 4:
            break
        offset += (length + 3) & ~3
    return TcpConnection(0.0, 0.0, pending=True)
