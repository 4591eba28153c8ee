"""From a URI to a verified file: attempts, resuming, retries, disk space.

What an attempt's end means:

| end | next |
|---|---|
| complete, digest right | published |
| complete, digest wrong, part of it from an earlier attempt | from the start, but only once |
| complete, digest wrong | DigestMismatch |
| cut off, stalled, refused for now | again after a pause, from where it stopped if the server can |
| so many such ends in a row without a byte gained | SourceUnreachable |
| does not fit | InsufficientStorage |
"""

import errno
import http.client
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.failures import FetchFailedError, TransientError
from tailbound.fetch.partial import CHUNK_BYTES, Partial, sha256_of
from tailbound.fetch.progress import Emit, Progress, emit, human_bytes
from tailbound.fetch.source import RangeRefusedError, Source, TimeOuts, describe, shown

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
USER_AGENT: Final = "tailbound-fetch"


@dataclass(frozen=True)
class FetchRequest:
    """What to fetch. sha256: 64 lower-case hex digits."""

    uri: str
    sha256: str
    output: Path


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
class Dependencies:
    """Everything that is not the order, so that tests can choose it."""

    policy: AddressPolicy
    time_outs: TimeOuts = field(default_factory=TimeOuts)
    retries: Retries = field(default_factory=Retries)
    emit: Emit = emit
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free


def fetch(order: FetchRequest, world: Dependencies) -> str:
    """Fetch, and say in one sentence what was done. Raises FetchFailedError."""
    if order.output.exists():
        if sha256_of(order.output) == order.sha256:
            size = human_bytes(order.output.stat().st_size)
            return f"{order.output} was here already, {size}, with the right sha256"
        world.emit("replacing a file with another sha256", path=str(order.output))
    partial = Partial(order.output, order.uri)
    if partial.size_bytes:
        world.emit("found a partial file", bytes=partial.size_bytes)
    if partial.size_bytes == 0 or partial.hexdigest() != order.sha256:
        _download(order, partial, world)
    size_bytes = partial.size_bytes
    partial.publish()
    return f"fetched {human_bytes(size_bytes)} from {shown(order.uri)}, with the right sha256"


def _download(order: FetchRequest, partial: Partial, world: Dependencies) -> None:
    source = Source(world.policy, world.time_outs)
    failed = 0
    started_over = False
    while True:
        before = partial.size_bytes
        try:
            resumed = _attempt(order, partial, source, world)
        except TransientError as error:
            failed = failed + 1 if partial.size_bytes <= before else 1
            world.sleep(_pause_seconds(failed, error, world))
            continue
        finally:
            source.close()
        if partial.hexdigest() == order.sha256:
            return
        failure = _mismatch(order, partial)
        partial.discard()
        if started_over or not resumed:
            raise failure
        started_over = True
        world.emit("wrong sha256 after resuming, starting over")


def _pause_seconds(failed: int, error: TransientError, world: Dependencies) -> float:
    """The pause before the next attempt. Raises FetchFailedError if there should be none."""
    if failed >= world.retries.attempts:
        raise FetchFailedError(
            TerminationReason.SOURCE_UNREACHABLE, f"{error} (attempt {failed} of {failed} without progress)"
        ) from error
    pause = world.retries.pause_seconds(failed, error.retry_after_seconds, world.jitter())
    world.emit("trying again", error=str(error), attempt=failed, pause_seconds=round(pause, 1))
    return pause


def _attempt(order: FetchRequest, partial: Partial, source: Source, world: Dependencies) -> bool:
    """Download to the end. True if a part of the file is from an earlier attempt. Raises TransientError."""
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    if partial.size_bytes and partial.validator is not None:
        headers |= {"Range": f"bytes={partial.size_bytes}-", "If-Range": partial.validator}
    try:
        response = source.open(order.uri, headers)
    except RangeRefusedError:
        partial.discard()
        raise
    if not _continues(response, partial):
        partial.restart(_validator(response))
    resumed = partial.size_bytes > 0
    _copy(order, response, partial, world)
    return resumed


def _mismatch(order: FetchRequest, partial: Partial) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.DIGEST_MISMATCH,
        f"{shown(order.uri)} has sha256 {partial.hexdigest()}, but spec.model.sha256 is {order.sha256}: "
        "set it to the digest of the model that you mean, or correct the URI",
    )


def _copy(
    order: FetchRequest, response: http.client.HTTPResponse, partial: Partial, world: Dependencies
) -> None:
    total = None if response.length is None else partial.size_bytes + response.length
    _check_space(order, partial, total, world)
    progress = Progress(partial.size_bytes, total, world.emit)
    while True:
        try:
            chunk = response.read1(CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{shown(order.uri)} broke off: {describe(error)}") from error
        if not chunk:
            break
        try:
            partial.append(chunk)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise _no_space(order, partial, total, world) from error
        if progress.update(partial.size_bytes):
            _check_space(order, partial, total, world)
    if total is not None and partial.size_bytes < total:
        raise TransientError(f"{shown(order.uri)} broke off after {partial.size_bytes} of {total} bytes")


def _check_space(order: FetchRequest, partial: Partial, total: int | None, world: Dependencies) -> None:
    if total is not None and total - partial.size_bytes > world.free_bytes(partial.directory):
        raise _no_space(order, partial, total, world)


def _no_space(
    order: FetchRequest, partial: Partial, total: int | None, world: Dependencies
) -> FetchFailedError:
    """The arithmetic, and the space given back: other pods of the node may need it."""
    have, free = partial.size_bytes, world.free_bytes(partial.directory)
    partial.discard()
    if total is None:
        need = f"{shown(order.uri)} does not say how large it is; after {human_bytes(have)} the disk was full"
    else:
        need = (
            f"{shown(order.uri)} has {human_bytes(total)}, of which {human_bytes(total - have)} are yet to "
            f"come, but {partial.directory} has {human_bytes(free)} free: "
            f"{human_bytes(max(0, total - have - free))} short"
        )
    return FetchFailedError(
        TerminationReason.INSUFFICIENT_STORAGE,
        f"{need}. Free space on the node, or use nodes with more of it",
    )


def _continues(response: http.client.HTTPResponse, partial: Partial) -> bool:
    """Whether the body goes on exactly where the partial file ends."""
    start = response.getheader("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return response.status == 206 and start == str(partial.size_bytes)


def _validator(response: http.client.HTTPResponse) -> str | None:
    """A strong ETag, else the date of the last change; a weak ETag must not be used for ranges."""
    etag = response.getheader("ETag")
    if etag is not None and not etag.startswith("W/"):
        return etag
    return response.getheader("Last-Modified")
