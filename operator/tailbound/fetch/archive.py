"""Unpacking of a model that comes as an archive, whose author may have made it to do harm.

| a member | what follows |
|---|---|
| a file, at a path below the folder | written, if it matches a pattern of spec.model.files or there is none |
| a folder | made with the files in it |
| one that matches no pattern | passed over, whatever it is |
| a file whose name the disk takes for that of another one | the archive is refused |
| a link, a device, a pipe | the archive is refused |
| at an absolute path, or with .. in it | the archive is refused |
| files that match: more of them, or more bytes, than a pod may store | the archive is refused |
| any: more bytes than are read to find those, or more than a million of them | the archive is refused |
| a size below 0, or a header of more than 1 MiB, which would be read into memory | the archive is refused |
| anything whose reading takes more than 192 MiB of memory | the archive is refused |

The sizes that members declare are added up before anything is written, and no more than them is written. What
is passed over takes no disk; but a compressed tar is decompressed up to its last member, so that the bytes of
all members are bounded, too: by what the pod may store, or by 100 times the archive if that is more.
"""

import errno
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Final, Self

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.disk import naming
from tailbound.fetch.download import DownloadLimits
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.manifest import check_paths
from tailbound.fetch.memory import MOST_MEMORY_BYTES, bounded_memory
from tailbound.fetch.partial import CHUNK_BYTES
from tailbound.fetch.patterns import MOST_LISTED, chosen
from tailbound.fetch.progress import human_bytes

ARCHIVE: Final = ".archive"
"""The archive's own name in the folder while it is unpacked."""
_MOST_HEADER_BYTES: Final = 1 << 20
_MOST_EXPANSION: Final = 100
"""Models and texts become some 20 times as large at most; what is made to do harm becomes 1000 times."""
_HEADERS: Final = frozenset(
    {
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
    }
)
_UNREADABLE: Final = frozenset({None, errno.EINVAL})
"""An OSError of a library without a number, or of a place in the archive that cannot be: not of the disk."""
_DAMAGED: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,  # an encrypted member of a zip; or, as NotImplementedError, an unknown compression
    ValueError,
)


@dataclass(frozen=True)
class Member:
    """A member of an archive. path: as it is written there; a plain file is neither a link nor a device."""

    path: str
    size_bytes: int
    is_folder: bool
    is_plain_file: bool


Contents = Iterator[tuple[Member, Callable[[], IO[bytes]]]]
"""Each member of an archive with what opens it, in the order of the archive."""


def unpack(
    archive: Path, kind: str, root: Path, files: Sequence[str], limits: DownloadLimits, shown: str
) -> None:
    """Write the files of an archive below `root`. kind: tar or zip. Raises FetchFailedError."""
    with _named_failures(kind, shown), bounded_memory(MOST_MEMORY_BYTES):
        size = archive.stat().st_size
        beside = replace(limits, total_bytes=limits.total_bytes - size)
        readable = replace(beside, total_bytes=max(beside.total_bytes, _MOST_EXPANSION * size))
        with _READERS[kind](archive) as contents:
            members = _readable((member for member, _ in contents), readable, shown)
            kept = _checked(members, files, beside, shown)
        written: set[str] = set()
        with _READERS[kind](archive) as contents:
            for member, opened in contents:
                path = _path(member)
                if member.is_plain_file and path in kept:
                    output = root / path
                    if path not in written and output.exists():
                        raise FetchFailedError(
                            TerminationReason.SOURCE_NOT_FOUND,
                            f"{shown} holds {path!r}, whose name the disk takes for that of another file of "
                            "it: rename one of them, as they may differ only in upper and lower case",
                        )
                    written.add(path)
                    output.parent.mkdir(parents=True, exist_ok=True)
                    with naming(output), opened() as source, output.open("wb") as target:
                        copyfileobj(source, target, CHUNK_BYTES)


def _readable(members: Iterator[Member], limits: DownloadLimits, shown: str) -> Iterator[Member]:
    """The members, as long as looking at them ends. Raises FetchFailedError."""
    total = 0
    for count, member in enumerate(members, start=1):
        if count > MOST_LISTED:
            raise _refused(
                TerminationReason.INSUFFICIENT_STORAGE,
                f"{shown} has more than {MOST_LISTED} members, the most that are looked at",
            )
        if member.size_bytes < 0:  # the next header would lie before this one
            raise _refused(
                TerminationReason.SOURCE_FORBIDDEN,
                f"{shown} holds {member.path[:200]!r} with the size {member.size_bytes}",
            )
        total += member.size_bytes
        if total > limits.total_bytes:
            raise FetchFailedError(
                TerminationReason.INSUFFICIENT_STORAGE,
                f"{shown} unpacks to {human_bytes(total)} or more; only {human_bytes(limits.total_bytes)} "
                f"are read, the larger of what the pod may store and {_MOST_EXPANSION} times the archive: "
                f"make the archive of the model's files only, or {limits.if_too_large}",
            )
        yield member


def _checked(members: Iterator[Member], files: Sequence[str], limits: DownloadLimits, shown: str) -> set[str]:
    """The paths of the files to write. Raises FetchFailedError for an archive that must not be unpacked."""
    found = chosen(((_path(member), member) for member in members if not member.is_folder), files, shown)
    special = next((member for _, member in found if not member.is_plain_file), None)
    if special is not None:
        raise _refused(
            TerminationReason.SOURCE_FORBIDDEN,
            f"{shown} holds {special.path[:200]!r}, which is neither a file nor a folder",
        )
    total = sum(member.size_bytes for _, member in found)
    if total > limits.total_bytes:
        what = f"the files of {shown} that spec.model.files chooses have" if files else f"{shown} unpacks to"
        raise FetchFailedError(
            TerminationReason.INSUFFICIENT_STORAGE,
            f"{what} {human_bytes(total)}, and the pod may store {human_bytes(limits.total_bytes)} beside "
            f"the archive: {limits.if_too_large}",
        )
    paths = [path for path, _ in found]
    check_paths(paths, shown)
    if ARCHIVE in paths:
        raise _refused(TerminationReason.SOURCE_FORBIDDEN, f"{shown} holds {ARCHIVE!r}, which is in use")
    return set(paths)


def _path(member: Member) -> str:
    return member.path.removeprefix("./")


def _refused(reason: TerminationReason, what: str) -> FetchFailedError:
    return FetchFailedError(reason, f"{what}: make the archive of the model's files only")


class _BoundedHeader(tarfile.TarInfo):
    """A header of a tar archive that memory is enough for: long names and extended headers are read whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header in a block. Raises ValueError."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _HEADERS and not 0 <= found.size <= _MOST_HEADER_BYTES:
            raise ValueError(f"a header of {found.size} bytes")
        return found


class _Tar(tarfile.TarFile):
    """A tar archive whose list of headers can be emptied."""

    members: list[tarfile.TarInfo]


@contextmanager
def _tar(archive: Path) -> Iterator[Contents]:
    with _Tar.open(archive, "r:*", tarinfo=_BoundedHeader) as opened:
        yield ((_tar_member(each), partial(_content, opened, each)) for each in _headers(opened))


def _headers(archive: _Tar) -> Iterator[tarfile.TarInfo]:
    for each in iter(archive.next, None):
        archive.members.clear()  # the library keeps them for lookups by name: a million take a gigabyte
        yield each


def _tar_member(info: tarfile.TarInfo) -> Member:
    return Member(info.name, info.size, info.isdir(), info.isreg())


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    source = archive.extractfile(member)
    assert source is not None, "a plain file has content"
    return source


@contextmanager
def _zip(archive: Path) -> Iterator[Contents]:
    with zipfile.ZipFile(archive) as opened:
        yield ((_zip_member(each), partial(opened.open, each)) for each in opened.infolist())


def _zip_member(info: zipfile.ZipInfo) -> Member:
    """Programs for Unix keep the kind of a member in the upper half of its attributes, others keep none."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_folder = info.filename.endswith("/")  # is_dir() fails for a name that is empty
    return Member(info.filename, info.file_size, is_folder, not is_folder and kind in (0, stat.S_IFREG))


_READERS: Final = {"tar": _tar, "zip": _zip}


@contextmanager
def _named_failures(kind: str, shown: str) -> Iterator[None]:
    """Errors of the libraries as failures of the fetch; those of the disk pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise _damaged(kind, shown, error) from error
    except MemoryError as error:
        raise FetchFailedError(
            TerminationReason.NOT_A_MODEL,
            f"{shown} takes more than {human_bytes(MOST_MEMORY_BYTES)} of memory to unpack: make the archive "
            "of fewer files, with shorter names, and with at most the compression of xz -9",
        ) from error
    except _DAMAGED as error:
        raise _damaged(kind, shown, error) from error


def _damaged(kind: str, shown: str, error: Exception) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.NOT_A_MODEL,
        f"{shown} is not a {kind} archive that can be read ({str(error)[:200]}): correct "
        "spec.model.archive, or make the archive again",
    )
