"""A model on a volume that pods share: the first pod downloads it there, and every pod links to it.

| on the volume | the lock | next |
|---|---|---|
| a complete model of this digest | any | linked, nothing is downloaded |
| a marker, and files that are missing or have another size | free | removed, filled again, linked |
| a part of one, as of a pod that was killed | free | filled from there if the source can, linked |
| anything incomplete | held by another pod | waits until it is complete, or the lock is free |

The lock is that of the file system, which ends with its holder. The marker is written last, by the process
that has verified the digest, and says which files there are and how large they are. No other container of a
pod can write to the volume, so that this is all that is checked of a complete model.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.folder import clear
from tailbound.fetch.pin import Fetched
from tailbound.fetch.progress import Emit, human_bytes

MODEL: Final = "model"
"""The folder of the model on the volume."""
_MARKER: Final = "complete.json"
_LOCK: Final = "lock"
_LOOK_SECONDS: Final = 1.0
_SAY_EVERY: Final = 10
_LOCKED: Final = frozenset({errno.EAGAIN, errno.EACCES})


class ModelVolume:
    """A volume for the model of one digest. emit, sleep: the log and the pauses."""

    def __init__(self, mount: Path, sha256: str, emit: Emit, sleep: Callable[[float], None]) -> None:
        self._mount = mount
        self._sha256 = sha256
        self._emit = emit
        self._sleep = sleep

    @property
    def folder(self) -> Path:
        """The folder in which the model lies."""
        return self._mount / MODEL

    def model(self, fill: Callable[[], Fetched]) -> Fetched:
        """The complete model, which `fill` downloads to the folder where it is missing.

        Raises FetchFailedError.
        """
        looks = 0
        while True:
            present = self._complete()
            if present is not None:
                said = (
                    f"found {human_bytes(present)} on the volume of spec.model.cache, with the right digest"
                )
                return Fetched(said, self._sha256, present)
            with self._lock() as mine:
                # Another pod may have filled it between the look and the lock.
                if mine and self._complete() is None:
                    return self._filled(fill)
            if looks % _SAY_EVERY == 0:
                self._emit("waiting for the pod that fills the cache")
            looks += 1
            self._sleep(_LOOK_SECONDS)

    def _filled(self, fill: Callable[[], Fetched]) -> Fetched:
        marker = self._mount / _MARKER
        if marker.exists():
            self._emit("replacing a damaged model in the cache")
            marker.unlink()
            if self.folder.is_dir():
                clear(self.folder)
        with self._named_failures():
            self.folder.mkdir(exist_ok=True)
            found = fill()
            files = {str(path.relative_to(self.folder)): _synced(path) for path in _files(self.folder)}
            new = marker.with_suffix(".new")
            new.write_text(json.dumps({"sha256": self._sha256, "files": files}))
            _synced(new)
            new.replace(marker)
        return found

    def _complete(self) -> int | None:
        """The size of the complete model in bytes; None if it is not complete."""
        try:
            said: Any = json.loads((self._mount / _MARKER).read_text())
            files = dict(said["files"])
            whole = said["sha256"] == self._sha256 and all(
                (self.folder / path).stat().st_size == size for path, size in files.items()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return sum(files.values()) if whole else None

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Whether this process may fill the volume now, until the context ends."""
        with self._named_failures():
            handle = os.open(self._mount / _LOCK, os.O_RDWR | os.O_CREAT, 0o660)
        try:
            yield self._locks(handle)
        finally:
            os.close(handle)

    def _locks(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _LOCKED:
                return False
            raise _unusable(
                f"cannot be locked ({error.strerror}): use a StorageClass with file locks"
            ) from error
        return True

    @contextmanager
    def _named_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _unusable(
                f"cannot be written by user {os.getuid()} ({error.strerror}: {error.filename}): use a "
                "StorageClass that sets the group of the volume (fsGroup), or give it write access"
            ) from error


def _unusable(what: str) -> FetchFailedError:
    return FetchFailedError(TerminationReason.CACHE_UNUSABLE, f"the volume of spec.model.cache {what}")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _synced(path: Path) -> int:
    """The size of a file in bytes, once it will survive the end of the node."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return path.stat().st_size
