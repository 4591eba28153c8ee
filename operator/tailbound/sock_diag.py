"""The TCP sockets of this network namespace, which the containers of a pod share, as the kernel lists them.

The kernel answers through a netlink socket (sock_diag(7)), which needs no privilege. It looks only at sockets
of the asked state: /proc/net/tcp lists all, which takes long on a busy node.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_DUMP_REQUEST: Final = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3
_INFO: Final = 2  # INET_DIAG_INFO, which holds a struct tcp_info
_TCP: Final = 6
_HEADER = struct.Struct("=IHHII")
_MESSAGE_BYTES: Final = 72  # of a struct inet_diag_msg
_TIMEOUT_SECONDS: Final = 5.0


class TcpState(IntEnum):
    """States of a TCP socket, by the kernel's numbers."""

    ESTABLISHED = 1
    LISTEN = 10


@dataclass(frozen=True)
class TcpSocket:
    """One socket. Of one that listens, `unread` is the number of connections that wait to be accepted."""

    port: int
    """Its own port."""
    unread: int
    """Bytes that its process has not read."""
    unsent: int
    """Bytes that its peer has not taken."""
    info: bytes | None
    """A struct tcp_info, if the kernel tells it."""


def tcp_sockets(state: TcpState) -> Iterator[TcpSocket]:
    """The sockets of both address families in this state. Raises OSError if the kernel does not list them."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            yield from _listed(family, state)
        except struct.error as error:
            raise OSError(f"a message is malformed: {error}") from error


def _listed(family: int, state: TcpState) -> Iterator[TcpSocket]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT_SECONDS)
        kernel.send(_question(family, state))
        while True:
            answer = kernel.recv(65536)
            for kind, body in _messages(answer):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError(f"error {-struct.unpack_from('=i', body)[0]}")
                yield _socket(body)


def _question(family: int, state: TcpState) -> bytes:
    """A request for every TCP socket of a family in a state, with its struct tcp_info."""
    body = struct.pack("=BBBBI", family, _TCP, 1 << (_INFO - 1), 0, 1 << state) + bytes(48)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0) + body


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(answer):
        length, kind, *_ = _HEADER.unpack_from(answer, offset)
        if length < _HEADER.size:
            raise OSError("a message is malformed")
        yield kind, answer[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _socket(body: bytes) -> TcpSocket:
    """The socket of one struct inet_diag_msg."""
    port = struct.unpack_from("!H", body, 4)[0]
    unread, unsent = struct.unpack_from("=II", body, 56)
    return TcpSocket(port, unread, unsent, _info(body))


def _info(body: bytes) -> bytes | None:
    offset = _MESSAGE_BYTES
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if kind == _INFO:
            return body[offset + 4 : offset + length]
        if length < 4:
            break
        offset += (length + 3) & ~3
    return None
