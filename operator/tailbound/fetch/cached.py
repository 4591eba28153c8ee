"""A model on a volume that pods share: the first pod downloads it there, and every pod links to it.

| on the volume | the lock | next |
|---|---|---|
| a complete model of this digest | any | linked, nothing is downloaded |
| a marker, and files that are missing or have another size | free | taken over, filled again, linked |
| a part of one, as of a pod that was killed | free | taken over, filled from there if it can be, linked |
| anything incomplete | held by another pod | waits until it is complete, or the lock is free |
| a part that another pod took from this one | any | begins again at the top, and with nothing |

A Job that finds the digest of a source downloads to such a volume, too: of any digest, which the marker says.

The lock is that of the file system, which ends with its holder. It saves downloads, and no more: `filling`
says why a lock that is lost harms no model. The marker is written last, by the process that has verified the
digest, and says which files there are and how large they are. No other container of a pod can write to the
volume, so that this is all that is checked of a complete model.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.disk import CACHE_VOLUME, disk_failure
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.filling import MODEL, Filling, own_name, remove_leftovers, synced
from tailbound.fetch.pin import Fetched
from tailbound.fetch.progress import Emit, human_bytes

_MARKER: Final = "complete.json"
_LOCK: Final = "lock"
_LOOK_SECONDS: Final = 1.0
_SAY_EVERY: Final = 10
_LOCKED: Final = frozenset({errno.EAGAIN, errno.EACCES})


class ModelVolume:
    """A volume for one model, as `holder` uses it: a name that no other pod has.

    sha256: the digest of the model, None where it is yet to be found; emit, sleep: the log and the pauses.
    """

    def __init__(
        self, mount: Path, sha256: str | None, holder: str, emit: Emit, sleep: Callable[[float], None]
    ) -> None:
        self._mount = mount
        self._sha256 = sha256
        self._holder = holder
        self._was_taken_over = False
        self._emit = emit
        self._sleep = sleep

    @property
    def folder(self) -> Path:
        """The folder in which the model lies."""
        return self._mount / MODEL

    def model(self, fill: Callable[[Path], Fetched]) -> Fetched:
        """The complete model, which `fill` downloads to the folder that it is given, where it is missing.

        Raises FetchFailedError.
        """
        looks = 0
        while True:
            present = self._complete()
            if present is not None:
                return present
            with self._lock() as mine:
                # Another pod may have filled it between the look and the lock.
                if mine and self._complete() is None:
                    filled = self._filled(fill)
                    if filled is not None:
                        return filled
                    continue
            if looks % _SAY_EVERY == 0:
                self._emit("waiting for the pod that fills the cache")
            looks += 1
            self._sleep(_LOOK_SECONDS)

    def _filled(self, fill: Callable[[Path], Fetched]) -> Fetched | None:
        """What `fill` has found, once it is the model of the volume; None if another pod was in the way."""
        with self._named_failures():
            self._remove_damaged_marker()
            with Filling.opened(
                self._mount,
                self._holder,
                self._emit,
                take_over=not self._was_taken_over,
                is_model=lambda folder: self._complete(folder) is not None,
            ) as filling:
                if self._complete() is not None:
                    filling.remove()
                    return None
                try:
                    found, files = fill(filling.folder), filling.files()
                except (FetchFailedError, OSError):
                    if filling.is_mine:
                        raise
                else:
                    if self._complete() is not None:
                        filling.remove()
                        return None
                    if filling.is_mine and self._published(filling, files, found.sha256):
                        return found
                # The pod that took it knows of no lock of this one: from now on each goes on by itself.
                self._emit("another pod has taken the download over, starting over")
                self._was_taken_over = True
                filling.remove()
        return None

    def _remove_damaged_marker(self) -> None:
        """Set it aside first: by then it can be that of a pod which has published a model meanwhile."""
        marker, aside = self._mount / _MARKER, own_name(self._mount, f"{self._holder}-marker")
        if not marker.exists():
            return
        self._emit("replacing a damaged model in the cache")
        with suppress(FileNotFoundError):
            marker.rename(aside)
            if self._complete(marker=aside) is not None:
                aside.rename(marker)
            else:
                aside.unlink()

    def _published(self, filling: Filling, files: Mapping[str, int], sha256: str | None) -> bool:
        """Whether the folder with these files is the model of the volume now."""
        if not filling.publish():
            return False
        new = filling.folder.with_suffix(".json")
        new.write_text(json.dumps({"sha256": sha256, "files": files}))
        with suppress(FileNotFoundError):  # removed by another pod that has published at the same time
            synced(new)
            new.replace(self._mount / _MARKER)
        remove_leftovers(self._mount)
        return self._complete() is not None

    def _complete(self, folder: Path | None = None, marker: Path | None = None) -> Fetched | None:
        """The complete model; None if it is not complete. folder, marker: where they are, if elsewhere."""
        model = folder or self.folder
        try:
            said: Any = json.loads((marker or self._mount / _MARKER).read_text())
            files, sha256 = dict(said["files"]), str(said["sha256"])
            whole = self._sha256 in (None, sha256) and all(
                (model / path).stat().st_size == size for path, size in files.items()
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        size = sum(files.values())
        verdict = "the right digest" if self._sha256 is not None else f"digest {sha256}"
        found = f"found {human_bytes(size)} on the volume of spec.model.cache, with {verdict}"
        return Fetched(found, sha256, size) if whole else None

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
            raise FetchFailedError(
                TerminationReason.CACHE_UNUSABLE,
                f"{CACHE_VOLUME.name} cannot be locked ({error.strerror}): use a StorageClass with file "
                "locks",
            ) from error
        return True

    @contextmanager
    def _named_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise disk_failure(error, CACHE_VOLUME) from error
