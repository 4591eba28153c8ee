"""A client of HTTP/2 that sends what it is told, right or wrong."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hpack import Decoder, Encoder

from tests.runtime.process import Server, rpc_address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
PROTOCOL_ERROR, FLOW_CONTROL, STREAM_CLOSED, FRAME_SIZE, REFUSED, CANCEL, COMPRESSION, CALM = (
    1,
    3,
    5,
    6,
    7,
    8,
    9,
    11,
)
LIVE = "/inference.GRPCInferenceService/ServerLive"
INFER = "/inference.GRPCInferenceService/ModelInfer"
NOTHING = bytes(5)  # a message without fields
HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", LIVE),
    (":authority", "test"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload


def number(value: int) -> bytes:
    return struct.pack(">I", value)


@dataclass
class Raw:
    """A client that sends what it is told. status: of the calls that have ended, by stream"""

    sock: socket.socket
    encoder: Encoder = field(default_factory=Encoder)
    decoder: Decoder = field(default_factory=Decoder)
    data: bytes = b""

    def send(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def head(self, stream: int, *more: tuple[str, str], **changes: str) -> bytes:
        headers = [(name, changes.get(name.strip(":").replace("-", "_"), value)) for name, value in HEAD]
        return frame(HEADERS, END_HEADERS, stream, self.encoder.encode([*headers, *more]))

    def call(self, stream: int, message: bytes = NOTHING, **changes: str) -> bytes:
        return self.head(stream, **changes) + frame(DATA, END_STREAM, stream, message)

    def next(self) -> tuple[int, int, int, bytes]:
        """The next frame. Raises EOFError."""
        while True:
            if len(self.data) >= 9:
                length, kind = divmod(struct.unpack(">I", self.data[:4])[0], 256)
                if len(self.data) >= 9 + length:
                    flags, stream = struct.unpack(">BI", self.data[4:9])
                    payload, self.data = self.data[9 : 9 + length], self.data[9 + length :]
                    return kind, flags, stream, payload
            try:
                read = self.sock.recv(65536)
            except ConnectionResetError:
                read = b""
            if not read:
                raise EOFError
            self.data += read

    def until(self, *kinds: int) -> tuple[int, int, int, bytes]:
        """The next frame of one of these kinds."""
        while True:
            got = self.next()
            if got[0] in kinds:
                return got

    def headers(self) -> tuple[int, dict[str, str], bool]:
        """The next block: its stream, its headers, and whether it ends the stream."""
        _, flags, stream, payload = self.until(HEADERS)
        headers = {str(name): str(value) for name, value in self.decoder.decode(payload)}
        assert "connection" not in headers
        return stream, headers, bool(flags & END_STREAM)

    def status(self) -> tuple[int, str]:
        """The stream and the status of the next call that ends, or its status of HTTP."""
        while True:
            stream, headers, ends = self.headers()
            if ends:
                return stream, headers.get("grpc-status", headers.get(":status", ""))

    def ended(self) -> int:
        """The code of the GOAWAY with which the connection ends."""
        code = -1
        try:
            while True:
                code = struct.unpack(">I", self.until(GOAWAY)[3][4:8])[0]
        except EOFError:
            return code


@contextmanager
def connected(server: Server, settings: bytes = b"") -> Iterator[Raw]:
    host, _, port = rpc_address(server).partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw = Raw(sock)
        raw.send(PREFACE, frame(SETTINGS, 0, 0, settings))
        yield raw
