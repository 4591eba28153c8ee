"""Header blocks of one HTTP/2 connection: decoded (HPACK, RFC 7541), checked, and written.

| a block | then |
|---|---|
| cannot be decoded, or is too long | Http2Error: the tables of both ends differ from now on |
| has a name or value that HTTP/2 forbids, or headers of one connection | `malformed`: the stream ends |
| otherwise | its headers, by name; of a name that comes twice all values, with commas between them |
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, TypeVar

from hpack import HPACKError
from hpack.hpack import decode_integer
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from tailbound_runtime.http2_frames import Code, Http2Error

LONGEST_LIST: Final = 32 * 2**10
"""Bytes of the headers of one block, decoded, with 32 for each."""
_ENTRY_BYTES: Final = 32
_LONGEST_INTEGER: Final = 16  # bytes, more than the library takes
_LONGEST_KNOWN: Final = 2 * 2**10  # decoded: a short block may name long headers of the table
_MOST_KNOWN: Final = 64

_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
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
        self._decoder = BlockDecoder()
        self._known: dict[bytes, T] = {}

    def read(self, block: bytes) -> T:
        """What this block means now. Raises Http2Error."""
        known = self._known.get(block)
        if known is not None:
            return known
        changes = self._decoder.changes
        try:
            headers = self._decoder.decode(block)
        except HPACKError as error:
            raise Http2Error(Code.COMPRESSION_ERROR, str(error)) from None
        made = self._make(checked(headers))
        if self._decoder.changes > changes:
            self._known.clear()
        elif self._decoder.size <= _LONGEST_KNOWN and len(self._known) < _MOST_KNOWN:
            self._known[block] = made
        return made


class BlockDecoder:
    """Decodes with the tables of the library hpack, whose own loop over a block takes twice as long.

    changes: how often the dynamic table has changed
    size: bytes of the last block's headers, with 32 for each
    """

    def __init__(self) -> None:
        self._table = HeaderTable()
        self.changes = self.size = 0

    def decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """The headers. Raises HPACKError, and Http2Error for too many."""
        headers: list[tuple[bytes, bytes]] = []
        at = self.size = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                header = self._table.get_by_index(index)
            elif first & 0xE0 == 0x20:
                at = self._resize(block, at, bool(headers))
                continue
            else:
                header, at = self._literal(block, at)
            headers.append(header)
            self.size += len(header[0]) + len(header[1]) + _ENTRY_BYTES
            if self.size > LONGEST_LIST:
                raise Http2Error(
                    Code.ENHANCE_YOUR_CALM,
                    f"the headers are longer than {LONGEST_LIST} bytes, the limit here",
                )
        return headers

    def _literal(self, block: bytes, at: int) -> tuple[tuple[bytes, bytes], int]:
        """A header that is written out, at least its value; it may be for the table."""
        kept = block[at] & 0x40
        index, at = _integer(block, at, 6 if kept else 4)
        if index:
            name = self._table.get_by_index(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        if kept:
            self._table.add(name, value)
            self.changes += 1
        return (name, value), at

    def _resize(self, block: bytes, at: int, late: bool) -> int:
        size, at = _integer(block, at, 5)
        if late or size > HeaderTable.DEFAULT_SIZE:
            raise HPACKError("the size of the table is changed in the middle of a block, or beyond its limit")
        self._table.maxsize = size
        self.changes += 1
        return at


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number whose first byte has so many bits of it, and where it ends. Raises HPACKError."""
    most = (1 << bits) - 1
    value = block[at] & most if at < len(block) else most
    if value < most:
        return value, at + 1
    value, size = decode_integer(block[at : at + _LONGEST_INTEGER], bits)
    return value, at + size


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """A text, and where it ends. Raises HPACKError."""
    begins = at
    length, at = _integer(block, at, 7)
    ends = at + length
    if ends > len(block):
        raise HPACKError("a header ends after its block")
    text = block[at:ends]
    return decode_huffman(text) if block[begins] & 0x80 else text, ends


def checked(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes] | None:
    """The headers by name; None if they are malformed (RFC 9113, 8.2 and 8.3)."""
    named: dict[bytes, bytes] = {}
    regular = False
    for name, value in headers:
        if not _is_name(name) or not _VALUE.fullmatch(value) or name in _OF_CONNECTION:
            return None
        pseudo = name.startswith(b":")
        if pseudo and (regular or name in named or name not in _PSEUDO):
            return None
        if name == b"te" and value != b"trailers":
            return None
        regular = regular or not pseudo
        named[name] = b"%s,%s" % (named[name], value) if name in named else value
    return named


@lru_cache(1024)
def _is_name(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None


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
