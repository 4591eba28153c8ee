"""Errors of the disk of a model, as failures of the fetch: which file, and what to do.

| the system says | reason | what to do |
|---|---|---|
| full, above a quota, a file too large for it | InsufficientStorage | as the disk says |
| a name is too long | SourceNotFound | rename the file |
| anything else, of the pod's own disk | DiskFailed | look at the node |
| may not be written, of the volume of spec.model.cache | CacheUnusable | give the group write access |
| anything else, of that volume | CacheUnusable | look at the volume |
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_PERMITTED: Final = frozenset({errno.EACCES, errno.EPERM})


@dataclass(frozen=True)
class Disk:
    """A disk that models are stored on.

    name: what it is; broken: the reason where it fails; if_full, if_denied, if_broken: what to do.
    """

    name: str
    broken: TerminationReason
    if_full: str
    if_denied: str
    if_broken: str


POD_DISK: Final = Disk(
    "the disk of the pod",
    TerminationReason.DISK_FAILED,
    "free space on the node, or use nodes with more of it",
    "let the user of the pod write to its volumes",
    "check the disk of the node (its conditions), and delete the pod to get one on another node",
)
CACHE_VOLUME: Final = Disk(
    "the volume of spec.model.cache",
    TerminationReason.CACHE_UNUSABLE,
    "raise spec.model.cache.size",
    "use a StorageClass that sets the group of the volume (fsGroup), or give it write access",
    "check the volume and the server that it is on (its PersistentVolumeClaim), or use another StorageClass",
)


def disk_failure(error: OSError, disk: Disk) -> FetchFailedError:
    """The failure that an error of this disk is."""
    rule = next(rule for applies, rule in _RULES if error.errno in applies or not applies)
    return rule(f"{error.strerror}: {error.filename or 'a file of it'}", disk)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of open files, which do not name them, with the path."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _full(said: str, disk: Disk) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.INSUFFICIENT_STORAGE, f"{disk.name} is full ({said}): {disk.if_full}"
    )


def _long(said: str, disk: Disk) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.SOURCE_NOT_FOUND,
        f"{disk.name} has no names of this length ({said}): rename the file at the source",
    )


def _denied(said: str, disk: Disk) -> FetchFailedError:
    return FetchFailedError(
        disk.broken, f"{disk.name} cannot be written by user {os.getuid()} ({said}): {disk.if_denied}"
    )


def _broken(said: str, disk: Disk) -> FetchFailedError:
    return FetchFailedError(disk.broken, f"{disk.name} cannot be used ({said}): {disk.if_broken}")


_RULES: Final[tuple[tuple[frozenset[int], Callable[[str, Disk], FetchFailedError]], ...]] = (
    (NO_SPACE, _full),
    (frozenset({errno.ENAMETOOLONG}), _long),
    (_NOT_PERMITTED, _denied),
    (frozenset(), _broken),
)
"""The first rule whose errors hold this one, or that has none, applies."""
