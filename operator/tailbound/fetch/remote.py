"""What a download needs of a source: one file of it, from some byte on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

LARGEST_FILE_BYTES: Final = (1 << 63) - 1
"""No file system has a larger file."""


@dataclass(frozen=True)
class Body:
    """The bytes of a file from `start` on.

    total: size of the whole file, None if the source does not say. validator: names this version of the file,
    None if a later request could not ask for the same one. read: the next bytes, empty at the end; it raises
    TransientError. content_type: what the source calls it; encoding: how it was compressed on its way,
    although it was asked for as it is, empty if it was not. end_stated: whether a connection that breaks off
    looks other than the end of the file.
    """

    start: int
    total: int | None
    validator: str | None
    read: Callable[[], bytes]
    content_type: str = ""
    encoding: str = ""
    end_stated: bool = True


@dataclass(frozen=True)
class Version:
    """A version of a file, of which all parts must be. validator: names it (`Body`); total: its bytes."""

    validator: str
    total: int


class Remote(Protocol):
    """One file of a source."""

    @property
    def shown(self) -> str:
        """Its URL for logs and messages, without secrets."""

    def open(self, start: int, validator: str | None) -> Body:
        """The file from byte `start` on if it still is the version `validator`, else from the beginning.

        Raises FetchFailedError or TransientError.
        """

    def close(self) -> None:
        """Close what is open. `open` can be called again."""


@runtime_checkable
class RangedRemote(Remote, Protocol):
    """One file of a source, of which parts can be read at once."""

    def another(self) -> "RangedRemote":
        """A reader of the same file with a connection of its own, for another thread."""

    def part(self, start: int, end: int, version: Version) -> Callable[[], bytes]:
        """What reads the bytes from `start` to before `end` of this version, empty at their end.

        Raises FetchFailedError, TransientError, and RangeRefusedError if the source gives something else.
        """
