"""What the head of a gRPC call says. Calls with the same head share it.

| a head | the call is |
|---|---|
| with another method than POST | answered with HTTP status 405 |
| whose content-type is not application/grpc or application/grpc+proto | answered with HTTP status 415 |
| of a path that this server has not | refused: UNIMPLEMENTED |
| with a grpc-encoding other than identity, gzip and deflate | refused: UNIMPLEMENTED |
| with a grpc-timeout or a latency bound that is none | refused: INVALID_ARGUMENT |
| otherwise | begun |
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tailbound_runtime.errors import ApiError
from tailbound_runtime.reception import Head, Limits

ACCEPTED: Final = (b"grpc-accept-encoding", b"gzip, deflate, identity")
_CONTENT: Final = (b"application/grpc", b"application/grpc+proto")
_PACKINGS: Final[Mapping[bytes, bytes | None]] = {b"identity": None, b"gzip": b"gzip", b"deflate": b"deflate"}
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class RpcHead(Head):
    """method: what makes the call, None if there is none of this path

    status: of HTTP, for what is no call of gRPC; None otherwise
    packing: how messages are packed that are
    seconds: the caller's deadline, from the head on; None without one
    """

    __slots__ = ("method", "packing", "seconds", "status")

    def __init__(
        self, headers: Mapping[bytes, bytes], methods: Mapping[bytes, Callable[..., Any]], limits: Limits
    ) -> None:
        path = headers[b":path"]
        super().__init__(path, headers, limits)
        self.method = methods.get(path)
        self.status = _status(headers)
        self.packing: bytes | None = None
        self.seconds: float | None = None
        try:
            if self.method is None:
                raise ApiError(501, f"this server has no method {path.decode('latin-1')}")
            self.packing = _packing_of(headers)
            self.seconds = _seconds_of(headers)
        except ApiError as error:
            self.refusal = error


def head_of(
    headers: Mapping[bytes, bytes] | None, methods: Mapping[bytes, Callable[..., Any]], limits: Limits
) -> RpcHead | None:
    """What these headers say; None if no request may have them."""
    if headers is None or not all(headers.get(name) for name in (b":method", b":scheme", b":path")):
        return None
    if not headers.get(b"content-length", b"0").isdigit():
        return None
    return RpcHead(headers, methods, limits)


def _status(headers: Mapping[bytes, bytes]) -> int | None:
    if headers[b":method"] != b"POST":
        return 405
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return None if kind in _CONTENT else 415


def _packing_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    name = headers.get(b"grpc-encoding", b"identity")
    if name not in _PACKINGS:
        said = name.decode("latin-1")
        raise ApiError(
            501, f"grpc-encoding {said!r} is not supported: send gzip, deflate or identity", [ACCEPTED]
        )
    return _PACKINGS[name]


def _seconds_of(headers: Mapping[bytes, bytes]) -> float | None:
    value = headers.get(b"grpc-timeout")
    if value is None:
        return None
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        said = value.decode("latin-1")
        raise ApiError(400, f"grpc-timeout is {said!r}: write up to 8 digits and one of H, M, S, m, u, n")
    return int(found[1]) * _UNITS[found[2]]
