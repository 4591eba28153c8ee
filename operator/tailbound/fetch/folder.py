"""Fetches a folder: file after file, and then one comparison of all of them with the pin.

What lies in the folder already is from an earlier start of the container, and is read again instead of
fetched. If the comparison fails although something was read again or resumed, everything is fetched again,
once.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.download import Download, FetchDependencies
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.manifest import ManifestEntry, check_paths, entry_of, manifest_digest
from tailbound.fetch.partial import PART, Partial
from tailbound.fetch.pin import Fetched, Pin
from tailbound.fetch.progress import human_bytes
from tailbound.fetch.remote import Remote


@dataclass(frozen=True)
class RemoteFolder:
    """A folder of a source. files: path and size of each that is fetched, paths relative to the folder."""

    shown: str
    files: Sequence[tuple[str, int]]
    remote: Callable[[str], Remote]
    """The file at a path."""
    stated: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of files by path, as far as the source states them."""
    is_same: Callable[[], bool] = lambda: True
    """Asks the source whether it has the same files in the same versions still."""


def fetch_folder(folder: RemoteFolder, pin: Pin | None, root: Path, world: FetchDependencies) -> Fetched:
    """Fetch the folder into `root`, and say what was done. Raises FetchFailedError.

    Without a pin nothing of an earlier start is kept, and the source is listed again at the end: no
    comparison would find files of two versions. Files whose digest the source states are not fetched then:
    only their digests are wanted.
    """
    check_paths([path for path, _ in folder.files], folder.shown)
    stated = folder.stated if pin is None else {}
    total = sum(size for path, size in folder.files if path not in stated)
    world.emit("fetching a folder", files=len(folder.files) - len(stated), total_bytes=total)
    if total > world.limits.total_bytes:
        raise FetchFailedError(
            TerminationReason.INSUFFICIENT_STORAGE,
            f"{folder.shown} has {human_bytes(total)}, and the pod may store "
            f"{human_bytes(world.limits.total_bytes)}: {world.limits.if_too_large}",
        )
    download = Download(world, pinned=pin is not None, total_bytes=total)
    if pin is None and root.is_dir():
        clear(root)
    entries, fresh = _fetch_files(folder, root, download, world, stated)
    if pin is not None and manifest_digest(entries) != pin.sha256 and not fresh:
        world.emit("wrong digest after resuming, starting over")
        clear(root)
        download.forget()
        entries, _ = _fetch_files(folder, root, download, world, stated)
    found = manifest_digest(entries)
    if pin is None and not download.ask(folder.is_same):
        clear(root)
        raise FetchFailedError(
            TerminationReason.SOURCE_CHANGED,
            f"files of {folder.shown} have changed while they were read to find its digest, which is tried "
            "again: write each version of a model to a folder of its own, or set spec.model.sha256",
        )
    if pin is not None and found != pin.sha256:
        clear(root)
        raise folder_mismatch(folder.shown, entries, pin)
    verdict = "with the right digest" if pin is not None else f"with digest {found}"
    size = sum(entry.size_bytes for entry in entries)
    of_these = f" ({len(stated)} of them by the digests that it states)" if stated else ""
    said = f"fetched {len(entries)} files{of_these}, {human_bytes(size)}, from {folder.shown}, {verdict}"
    return Fetched(said, found, size, frozenset(stated))


def folder_mismatch(shown: str, entries: Sequence[ManifestEntry], pin: Pin) -> FetchFailedError:
    """A folder that is not the pinned one."""
    return pin.mismatch(
        f"{shown} is a folder of {len(entries)} files with digest {manifest_digest(entries)}",
        " (tailbound digest FOLDER prints it)",
    )


def _fetch_files(
    folder: RemoteFolder, root: Path, download: Download, world: FetchDependencies, stated: Mapping[str, str]
) -> tuple[list[ManifestEntry], bool]:
    """Every file, and whether all bytes came from the source now. stated: digests of files not to fetch."""
    fresh = not remove_others(root, {path for path, _ in folder.files})
    entries: list[ManifestEntry] = []
    for path, size in sorted(folder.files):
        output = root / path
        if path in stated:
            entries.append(ManifestEntry(path, size, stated[path]))
            continue
        if output.is_file():
            fresh = False
            entries.append(entry_of(root, path))
            download.found(entries[-1].size_bytes)
            continue
        output.parent.mkdir(parents=True, exist_ok=True)
        remote = folder.remote(path)
        partial = Partial(output, remote.shown)
        fresh = not download.run(remote, partial).resumed and fresh
        entries.append(ManifestEntry(path, partial.size_bytes, partial.hexdigest()))
        partial.publish()
        world.emit("fetched a file", path=path, bytes=partial.size_bytes)
    return entries, fresh


def remove_others(root: Path, wanted: Set[str]) -> bool:
    """Remove what the source does not have, parts of wanted files apart. True if there was any file of it.

    It is of another source that had the same place, whose download ended before it was verified. A folder of
    it may have the name of a wanted file.
    """
    kept = wanted | {f"{path}{end}" for path in wanted for end in (PART, f"{PART}.json")}
    folders = {str(parent) for path in wanted for parent in PurePosixPath(path).parents}
    found = False
    for here, names, files in os.walk(root, topdown=False):
        for path in (Path(here, name) for name in (*files, *names)):
            inside = str(path.relative_to(root))
            if path.is_dir() and not path.is_symlink():
                if inside not in folders:
                    path.rmdir()
            elif inside not in kept:
                path.unlink()
                found = True
    return found


def clear(root: Path, but: str = "") -> None:
    """Remove everything in a folder but the entry of this name."""
    for path in root.iterdir():
        if path.name == but:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
