"""The frames of HTTP/2 (RFC 9113): their kinds, flags and error codes, and how they are written.

A frame is a head of nine bytes (the payload's length in 24 bits, kind, flags, number of the stream) and a
payload. Stream 0 is the connection itself.
"""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
MOST_PAYLOAD: Final = 2**14
"""The longest payload that is received: HTTP/2's default."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

DEFAULT_WINDOW: Final = 2**16 - 1
MOST_WINDOW: Final = 2**31 - 1
LARGEST_FRAME: Final = 2**24 - 1
LAST_STREAM: Final = 2**31 - 1

HEAD: Final = struct.Struct(">IBI")  # the length and the kind are one number
_SETTING: Final = struct.Struct(">HI")
_NUMBER: Final = struct.Struct(">I")
_PRIORITY_BYTES: Final = 5


class Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Http2Error(Exception):
    """What the other end did ends the connection; the text goes to it."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """What this end asks of the other one."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def window_update(stream: int, more: int) -> bytes:
    """A WINDOW_UPDATE frame: the peer may send `more` bytes."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(more))


def rst_stream(stream: int, code: Code) -> bytes:
    """The stream ends now."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def goaway(last: int, code: Code, message: str = "") -> bytes:
    """Streams after the last one will not be answered on this connection."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + message.encode())


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """What the other end asks for. Raises Http2Error."""
    if len(payload) % _SETTING.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, "the length of SETTINGS is no multiple of 6")
    return list(_SETTING.iter_unpack(payload))


def number_of(payload: bytes, kind: str) -> int:
    """The one number that a frame of this kind has. Raises Http2Error."""
    if len(payload) != _NUMBER.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, f"a {kind} frame has {_NUMBER.size} bytes")
    return int.from_bytes(payload, "big")


def content_of(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without its padding and its priority. Raises Http2Error."""
    padding = 0
    if flags & PADDED:
        if not payload:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "the frame ends before the length of its padding")
        padding, payload = payload[0], payload[1:]
    if flags & PRIORITIZED:
        if len(payload) < _PRIORITY_BYTES:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "HEADERS end before their priority does")
        payload = payload[_PRIORITY_BYTES:]
    if padding > len(payload):
        raise Http2Error(Code.PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[: len(payload) - padding]
