"""Header blocks of one HTTP/2 connection: decoded (HPACK, RFC 7541), checked, and written.

| a block | then |
|---|---|
| cannot be decoded, or is too long | Http2Error: the tables of both ends differ from now on |
| has a name or value that HTTP/2 forbids, or headers of one connection | `malformed`: the stream ends |
| otherwise | its headers, by name; of a name that comes twice all values, with commas between them |
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from hpack import Decoder, HPACKError
from hpack.exceptions import OversizedHeaderListError

from tailbound_runtime.http2_frames import Code, Http2Error

LONGEST_LIST: Final = 32 * 2**10
"""Bytes of the headers of one block, decoded, with 32 for each."""
_LONGEST_KNOWN: Final = 2**10
_MOST_KNOWN: Final = 64

_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"[^\0\r\n]*")
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_OF_CONNECTION: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)

T = TypeVar("T")


class Blocks(Generic[T]):
    """Makes something of each block; the bytes of a block that came before are not decoded again.

    What a block means depends on the blocks before it, which made the dynamic table. So a block that changes
    this table is not kept, and what was kept before it is forgotten.

    make: gets the headers, None for malformed ones
    """

    def __init__(self, make: Callable[[Mapping[bytes, bytes] | None], T]) -> None:
        self._make = make
        self._decoder = Decoder(LONGEST_LIST)
        self._known: dict[bytes, T] = {}

    def read(self, block: bytes) -> T:
        """What this block means now. Raises Http2Error."""
        known = self._known.get(block)
        if known is not None:
            return known
        before = self._table()
        try:
            headers = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            message = f"the headers are longer than {LONGEST_LIST} bytes, the limit here"
            raise Http2Error(Code.ENHANCE_YOUR_CALM, message) from None
        except HPACKError as error:
            raise Http2Error(Code.COMPRESSION_ERROR, str(error)) from None
        made = self._make(checked(headers))
        if self._table() != before:
            self._known.clear()
        elif len(block) <= _LONGEST_KNOWN and len(self._known) < _MOST_KNOWN:
            self._known[block] = made
        return made

    def _table(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        table = self._decoder.header_table
        return table.maxsize, list(table.dynamic_entries)


def checked(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """The headers by name; None if they are malformed (RFC 9113, 8.2 and 8.3)."""
    named: dict[bytes, bytes] = {}
    regular = False
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in _OF_CONNECTION:
            return None
        pseudo = name.startswith(b":")
        if pseudo and (regular or name in named or name not in _PSEUDO):
            return None
        if name == b"te" and value != b"trailers":
            return None
        regular = regular or not pseudo
        named[name] = b"%s,%s" % (named[name], value) if name in named else value
    return named


def literal(name: bytes, value: bytes) -> bytes:
    """A header as part of a block that changes no table."""
    return b"\0%s%s%s%s" % (_length(len(name)), name, _length(len(value)), value)


def _length(size: int) -> bytes:
    if size < 0x7F:
        return bytes((size,))
    size -= 0x7F
    parts = [0x7F]
    while size > 0x7F:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    parts.append(size)
    return bytes(parts)
