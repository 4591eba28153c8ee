"""A ModelInferRequest as it came: its raw tensors, and the bytes of everything else.

Protobuf gives the tensors out as copies, and parses the rest for each request. Here the tensors are cut out
of the message, without a copy of long ones. What is left is the same bytes in each request of most clients:
what it means is remembered.
"""

from typing import Final, NamedTuple

from tailbound_runtime.binary import COPIED_BYTES
from tailbound_runtime.errors import ApiError
from tailbound_runtime.inference_pb2 import ModelInferRequest
from tailbound_runtime.protocol import Body

MOST_FIELDS: Final = 4096
"""Fields of a message, each repetition counted: an empty one takes 50 times its 2 bytes once it is parsed."""

_NAME: Final = ModelInferRequest.MODEL_NAME_FIELD_NUMBER << 3 | 2
_VERSION: Final = ModelInferRequest.MODEL_VERSION_FIELD_NUMBER << 3 | 2
_RAW: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER << 3 | 2
_KIND: Final = 7  # of a tag: how the field's value is written
_VARINT: Final = 0
_SIZED: Final = 2
_FIXED: Final = {1: 8, 5: 4}  # bytes


class Asked(NamedTuple):
    """name, version: of the model; rest: the message without the raw tensors; raw: these, in order"""

    name: str
    version: str
    rest: bytes
    raw: list[bytes | memoryview]


class _UnreadableError(Exception):
    pass


def split(message: Body) -> Asked:
    """The message in two. Raises ApiError for what is no message.

    Fields of one kind keep their order, and protobuf gives no meaning to that of different kinds.
    """
    try:
        return _split(message)
    except (_UnreadableError, IndexError, UnicodeDecodeError):
        raise no_message() from None


def no_message() -> ApiError:
    """The refusal of what is no message."""
    return ApiError(400, "the message is no ModelInferRequest of inference.GRPCInferenceService")


def _split(message: Body) -> Asked:
    view = memoryview(message)
    raw: list[bytes | memoryview] = []
    kept: list[memoryview] = []
    name = version = b""
    at = since = fields = 0
    while at < len(message):
        begins = at
        fields += 1
        if fields > MOST_FIELDS:
            raise ApiError(400, f"the message has more than {MOST_FIELDS} fields")
        tag, at = _varint(message, at)
        content, at = _content(message, tag & _KIND, at)
        if tag == _NAME:
            name = bytes(view[content:at])
        elif tag == _VERSION:
            version = bytes(view[content:at])
        elif tag == _RAW:
            kept.append(view[since:begins])
            raw.append(bytes(view[content:at]) if at - content <= COPIED_BYTES else view[content:at])
            since = at
        elif tag >> 3 in (0, _RAW >> 3):
            raise _UnreadableError
    if at > len(message):
        raise _UnreadableError
    kept.append(view[since:])
    return Asked(name.decode(), version.decode(), b"".join(kept), raw)


def _content(message: Body, kind: int, at: int) -> tuple[int, int]:
    """Where the content of a field begins and ends, whose value is here."""
    if kind == _SIZED:
        length, at = _varint(message, at)
        return at, at + length
    if kind == _VARINT:
        return at, _varint(message, at)[1]
    if kind in _FIXED:
        return at, at + _FIXED[kind]
    raise _UnreadableError


def _varint(message: Body, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = message[at]
    if value < 0x80:
        return value, at + 1
    value, shift = value & 0x7F, 7
    while shift < 64:
        at += 1
        byte = message[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise _UnreadableError
