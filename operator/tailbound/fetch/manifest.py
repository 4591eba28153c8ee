"""The files of a model that is a folder, and the one digest that pins them all.

The digest is the SHA-256 of one line for each file, sorted by path: its SHA-256, its size in bytes and its
path, with a space between them and a line feed at the end.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.partial import PART, sha256_of

MOST_FILES: Final = 10_000
_LONGEST_PATH: Final = 1024
_LONGEST_NAME: Final = 255 - len(f"{PART}.json")
"""Bytes, as those of a path: file systems have no longer names, and a download adds this to them."""
_UNWRITABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and what stands for bytes that are no UTF-8."""


@dataclass(frozen=True, order=True)
class ManifestEntry:
    """One file. path: relative to the folder, with slashes; sha256: lower-case hex."""

    path: str
    size_bytes: int
    sha256: str


def manifest_digest(entries: Iterable[ManifestEntry]) -> str:
    """The digest that pins the files, in lower-case hex."""
    lines = (f"{entry.sha256} {entry.size_bytes} {entry.path}\n" for entry in sorted(entries))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def entry_of(root: Path, path: str) -> ManifestEntry:
    """The entry of the file at `path` below `root`, read from the disk."""
    file = root / path
    return ManifestEntry(path, file.stat().st_size, sha256_of(file))


def check_count(files: int, shown: str) -> None:
    """Refuse a folder of more files than the limit; a list of them that ends early would look whole.

    Raises FetchFailedError.
    """
    if files > MOST_FILES:
        raise FetchFailedError(
            TerminationReason.INSUFFICIENT_STORAGE,
            f"{shown} has more than {MOST_FILES} files, the most that are fetched: name a smaller folder, or "
            "choose fewer by spec.model.files",
        )


def check_entry(file: Path, shown: str) -> None:
    """Refuse what is neither a file nor a folder, as a link to nothing. Raises FetchFailedError."""
    if not file.is_file():
        raise FetchFailedError(
            TerminationReason.SOURCE_FORBIDDEN,
            f"{shown} holds {file.name!r}, which is neither a file nor a folder: remove it",
        )


def check_folders(parent: Path, names: Iterable[str], shown: str) -> None:
    """Refuse links to folders, which could lead anywhere and in circles. Raises FetchFailedError."""
    linked = next((name for name in names if (parent / name).is_symlink()), None)
    if linked is not None:
        raise FetchFailedError(
            TerminationReason.SOURCE_FORBIDDEN,
            f"{shown} holds {linked!r}, a link to a folder: put the folder itself there",
        )


def check_paths(paths: Iterable[str], shown: str) -> None:
    """Refuse what must not be written below a folder. Raises FetchFailedError.

    A path is refused if it leads out of the folder, has control characters or bytes that are no UTF-8, or is
    also a folder of another.
    """
    files = list(paths)
    check_count(len(files), shown)
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    for path in files:
        unsafe = (
            any(part in ("", ".", "..") for part in path.split("/"))
            or "\\" in path
            or _UNWRITABLE.search(path) is not None
            or len(path.encode()) > _LONGEST_PATH
            or any(len(part.encode()) > _LONGEST_NAME for part in path.split("/"))
            or path in folders
        )
        if unsafe:
            raise FetchFailedError(
                TerminationReason.SOURCE_NOT_FOUND,
                f"{shown} holds {path[:200]!r}, which cannot be the path of a file in a folder: rename it",
            )
