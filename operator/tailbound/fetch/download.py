"""Downloads a file: attempts, resuming, retries, disk space.

What an attempt's end means:

| end | next |
|---|---|
| complete | the caller compares the digest |
| cut off, stalled, refused for now | again after a pause, from where it stopped if the source can |
| several such ends in a row without a byte gained | SourceUnreachable |
| does not differ from a break, and no digest is compared | SourceUnreachable |
| does not fit on the disk, or is larger than the pod may store | InsufficientStorage |
"""

import contextlib
import random
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.dial import TimeOuts
from tailbound.fetch.disk import NO_SPACE, POD_DISK
from tailbound.fetch.failures import FetchFailedError, NoRangesError, RangeRefusedError, TransientError
from tailbound.fetch.partial import Partial
from tailbound.fetch.progress import Emit, Progress, emit, human_bytes
from tailbound.fetch.ranges import LEAST_BYTES, RangeDownload, Rest
from tailbound.fetch.remote import Body, RangedRemote, Remote, Version

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Retries:
    """attempts: in a row without a byte gained. The pauses double from the first to the longest, with jitter.

    The defaults give up after about half a minute; from then on the kubelet's own back-off paces the retries.
    """

    attempts: int = 6
    first_pause_seconds: float = 1
    longest_pause_seconds: float = 15

    def pause_seconds(self, failed: int, asked: float | None, jitter: float) -> float:
        """The pause after `failed` attempts in a row. asked: Retry-After; jitter: from 0 to 1."""
        pause = min(self.longest_pause_seconds, self.first_pause_seconds * 2.0 ** (failed - 1))
        return max(asked or 0.0, pause * (1 - jitter / 2))


@dataclass(frozen=True)
class DownloadLimits:
    """total_seconds: of the whole fetch, after which the process ends; total_bytes: of all that it stores.

    if_too_large, if_full: what a person can do about a model that exceeds total_bytes, or the disk.
    """

    total_seconds: int = 3600
    total_bytes: int = 1 << 50
    if_too_large: str = "raise spec.resources.ephemeralStorage"
    if_full: str = POD_DISK.if_full


@dataclass(frozen=True)
class FetchDependencies:
    """The bounds of a fetch, and pauses, the disk, the log and names, so that tests can choose them.

    new_name: one that no other process has.
    """

    time_outs: TimeOuts = field(default_factory=TimeOuts)
    retries: Retries = field(default_factory=Retries)
    limits: DownloadLimits = field(default_factory=DownloadLimits)
    emit: Emit = emit
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    new_name: Callable[[], str] = lambda: secrets.token_hex(8)


@dataclass(frozen=True)
class Downloaded:
    """The outcome of a download. resumed: a part of the file is from an earlier attempt.

    content_type, encoding: as the source says (`Body`).
    """

    resumed: bool
    content_type: str
    encoding: str


class Download:
    """The downloads of one fetch, which share its limit of bytes."""

    def __init__(self, world: FetchDependencies, *, pinned: bool, total_bytes: int | None = None) -> None:
        """pinned: the caller compares a digest. total_bytes: of all files together; None for a single one."""
        self._world = world
        self._pinned = pinned
        self._total = total_bytes
        self._overall: Progress | None = None
        self._stored = 0
        self._in_ranges = True

    def run(self, remote: Remote, partial: Partial) -> Downloaded:
        """Download to the end. Raises FetchFailedError."""
        failed, most = 0, partial.size_bytes
        while True:
            try:
                done = self._attempt(remote, partial)
            except TransientError as error:
                if isinstance(error, NoRangesError):
                    self._in_ranges = False
                elif isinstance(error, RangeRefusedError):
                    partial.discard()
                failed = failed + 1 if partial.size_bytes <= most else 1
                most = max(most, partial.size_bytes)
                self._world.sleep(self._pause_seconds(failed, error))
                continue
            finally:
                remote.close()
            self._stored += partial.size_bytes
            return done

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a small request, asked again after transient errors. Raises FetchFailedError."""
        failed = 0
        while True:
            try:
                return question()
            except TransientError as error:
                failed += 1
                self._world.sleep(self._pause_seconds(failed, error))

    def found(self, size_bytes: int) -> None:
        """A file of this size was here already."""
        self._stored += size_bytes

    def forget(self) -> None:
        """What was stored so far is gone again."""
        self._stored, self._overall = 0, None

    def _pause_seconds(self, failed: int, error: TransientError) -> float:
        """The pause before the next attempt. Raises FetchFailedError if there should be none."""
        world = self._world
        if failed >= world.retries.attempts:
            raise FetchFailedError(
                TerminationReason.SOURCE_UNREACHABLE,
                f"{error} (attempt {failed} of {failed} without progress)",
            ) from error
        pause = world.retries.pause_seconds(failed, error.retry_after_seconds, world.jitter())
        world.emit("trying again", error=str(error), attempt=failed, pause_seconds=round(pause, 1))
        return pause

    def _attempt(self, remote: Remote, partial: Partial) -> Downloaded:
        validator = partial.validator
        body = remote.open(partial.size_bytes if validator is not None else 0, validator)
        if not (self._pinned or body.end_stated):
            raise _endless(remote)
        if body.start == 0 or body.start != partial.size_bytes:
            partial.restart(body.validator, body.total)
        elif partial.total not in (None, body.total):
            raise RangeRefusedError(f"{remote.shown} has another length than before")
        resumed = partial.size_bytes > 0
        rest = self._rest(body, partial)
        if rest is not None and isinstance(remote, RangedRemote):
            remote.close()
            self._copy_ranges(remote, rest, partial)
        else:
            self._copy(remote, body, partial)
        return Downloaded(resumed, body.content_type, body.encoding)

    def _rest(self, body: Body, partial: Partial) -> Rest | None:
        """What several connections can download; None if one is enough, or the source has no ranges."""
        start = partial.size_bytes
        if not self._in_ranges or body.total is None or partial.validator is None:
            return None
        version = Version(partial.validator, body.total)
        return Rest(start, version) if body.total - start >= LEAST_BYTES else None

    def _copy_ranges(self, remote: RangedRemote, rest: Rest, partial: Partial) -> None:
        def pause(failed: int, error: TransientError) -> None:
            if isinstance(error, RangeRefusedError):
                raise NoRangesError(str(error)) from error
            self._world.sleep(self._pause_seconds(failed, error))

        blocks = RangeDownload(remote, rest, pause).blocks()
        with contextlib.closing(blocks):
            self._store(remote, rest.version.total, partial, lambda: next(blocks, b""))

    def _copy(self, remote: Remote, body: Body, partial: Partial) -> None:
        self._store(remote, body.total, partial, body.read)

    def _store(self, remote: Remote, total: int | None, partial: Partial, read: Callable[[], bytes]) -> None:
        world = self._world
        self._check_space(remote, partial, total)
        progress, before = self._progress(partial, total)
        while chunk := read():
            try:
                partial.append(chunk)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                raise self._no_space(remote, partial, total) from error
            if self._stored + partial.size_bytes > world.limits.total_bytes:
                raise self._too_large(remote, partial, partial.size_bytes)
            if progress.update(before + partial.size_bytes):
                self._check_space(remote, partial, total)
        if total is not None and partial.size_bytes < total:
            raise TransientError(f"{remote.shown} broke off after {partial.size_bytes} of {total} bytes")

    def _progress(self, partial: Partial, total: int | None) -> tuple[Progress, int]:
        """The progress of all files together, or of the only one; and the bytes before this file."""
        if self._total is None:
            return Progress(partial.size_bytes, total, self._world.emit), 0
        done = self._stored + partial.size_bytes
        self._overall = self._overall or Progress(done, self._total, self._world.emit)
        return self._overall, self._stored

    def _check_space(self, remote: Remote, partial: Partial, total: int | None) -> None:
        if total is None:
            return
        if total - partial.size_bytes > self._world.free_bytes(partial.directory):
            raise self._no_space(remote, partial, total)
        if self._stored + total > self._world.limits.total_bytes:
            raise self._too_large(remote, partial, total)

    def _too_large(self, remote: Remote, partial: Partial, size: int) -> FetchFailedError:
        partial.discard()
        limit = self._world.limits.total_bytes
        before = f" after {human_bytes(self._stored)} of other files" if self._stored else ""
        return FetchFailedError(
            TerminationReason.INSUFFICIENT_STORAGE,
            f"{remote.shown} has at least {human_bytes(size)}{before}, and the pod may store "
            f"{human_bytes(limit)}: {self._world.limits.if_too_large}",
        )

    def _no_space(self, remote: Remote, partial: Partial, total: int | None) -> FetchFailedError:
        """The arithmetic, and the space given back: other pods of the node may need it."""
        have, free = partial.size_bytes, self._world.free_bytes(partial.directory)
        partial.discard()
        if total is None:
            need = f"{remote.shown} does not say how large it is; after {human_bytes(have)} the disk was full"
        else:
            need = (
                f"{remote.shown} has {human_bytes(total)}, of which {human_bytes(total - have)} are yet to "
                f"come, but {partial.directory} has {human_bytes(free)} free: "
                f"{human_bytes(max(0, total - have - free))} short"
            )
        return FetchFailedError(
            TerminationReason.INSUFFICIENT_STORAGE,
            f"{need}. What to do: {self._world.limits.if_full}",
        )


def _endless(remote: Remote) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.SOURCE_UNREACHABLE,
        f"{remote.shown} says neither Content-Length nor where its chunks end, so that a part of it would "
        "look whole, and there is no digest to compare it with: set spec.model.sha256 (sha256sum FILE), or "
        "have the server say its length",
    )
