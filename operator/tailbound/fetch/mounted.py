"""A model on a volume of the pod: a PersistentVolumeClaim or an image. Nothing is copied.

The files are verified, and symbolic links lead to them from the folder in which the server looks.

| at the path | becomes |
|---|---|
| a file | a link of the name that the server expects |
| a folder | a link for each entry of it |
| nothing, or an empty volume, or no volume at all | SourceNotFound |
| a way out of the volume | SourceForbidden |
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.folder import folder_mismatch
from tailbound.fetch.manifest import check_entry, check_folders, check_paths, entry_of, manifest_digest
from tailbound.fetch.partial import sha256_of
from tailbound.fetch.patterns import no_folder, selected
from tailbound.fetch.pin import Fetched, Pin
from tailbound.fetch.progress import Emit, human_bytes

_OF_THE_FILE_SYSTEM: Final = "lost+found"


@dataclass(frozen=True)
class MountedModel:
    """A model on a volume. source: its path below `mount`; files: patterns, none for all files."""

    source: Path
    mount: Path
    shown: str
    files: Sequence[str] = ()


def link_mounted(
    model: MountedModel, pin: Pin | None, output: Path, root: Path, emit: Emit, *, resolve: bool = False
) -> Fetched:
    """Verify a model, and link it below `root`. Raises FetchFailedError.

    pin: None for an image, whose reference pins it, and where the digest is yet to be found (`resolve`).
    """
    mount, shown, files = model.mount, model.shown, model.files
    read = pin is not None or resolve
    if not mount.is_dir():
        # A server that does not know the kind of the volume drops it and its mounts without a word.
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND,
            f"{shown} is not mounted: this cluster does not know image volumes, which need Kubernetes 1.35 "
            "or newer",
        )
    found = _inside(model.source, mount, shown)
    if found.is_file():
        return _link_file(found, model, pin, output, emit, read=read)
    paths = sorted(selected(_files(found, mount, shown), files, shown))
    if not paths:
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND, f"{shown} is an empty folder: check spec.model.uri"
        )
    check_paths(paths, shown)
    if read:
        emit("verifying", path=str(found), files=len(paths))
    with _readable(shown):
        entries = [entry_of(found, path) for path in paths] if read else []
    digest = manifest_digest(entries) if read else None
    if pin is not None and digest != pin.sha256:
        raise folder_mismatch(shown, entries, pin)
    # Whole entries are linked where all of them belong to the model: a folder can have many files.
    for entry in paths if files else sorted({path.split("/")[0] for path in paths}):
        _link(root / entry, found / entry)
    size = sum(entry.size_bytes for entry in entries)
    return Fetched(f"linked {shown}, {len(paths)} files{_verdict(pin, digest)}", digest, size)


def _link_file(
    file: Path, model: MountedModel, pin: Pin | None, output: Path, emit: Emit, *, read: bool
) -> Fetched:
    if model.files:
        raise no_folder(model.shown)
    size = file.stat().st_size
    emit("verifying", path=str(file), bytes=size)
    with _readable(model.shown):
        digest = sha256_of(file) if read else None
    if pin is not None and digest != pin.sha256:
        raise pin.mismatch(f"{model.shown} has sha256 {digest}")
    _link(output, file)
    return Fetched(f"linked {model.shown}, {human_bytes(size)}{_verdict(pin, digest)}", digest, size)


def link_entries(folder: Path, root: Path) -> None:
    """Link every entry of a folder below `root`."""
    for entry in sorted(folder.iterdir()):
        _link(root / entry.name, entry)


def _verdict(pin: Pin | None, digest: str | None) -> str:
    if pin is not None:
        return ", with the right digest"
    return f", with digest {digest}" if digest is not None else ""


@contextmanager
def _readable(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unreadable(shown, error) from error


def _unreadable(shown: str, error: OSError) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.SOURCE_FORBIDDEN,
        f"{shown} cannot be read by user {os.getuid()}: {error.strerror}: {error.filename}",
    )


def _files(folder: Path, mount: Path, shown: str) -> Iterator[str]:
    """The paths of all files, relative to the folder. Links to files inside the volume count as files."""

    def fail(error: OSError) -> None:
        if folder == mount and Path(error.filename or "").name == _OF_THE_FILE_SYSTEM:
            return
        raise _unreadable(shown, error)

    for parent, folders, files in os.walk(folder, onerror=fail):
        here = Path(parent)
        check_folders(here, folders, shown)
        if here == mount and _OF_THE_FILE_SYSTEM in folders:
            folders.remove(_OF_THE_FILE_SYSTEM)
        for name in files:
            _inside(here / name, mount, shown)
            check_entry(here / name, shown)
            yield str((here / name).relative_to(folder))


def _inside(path: Path, mount: Path, shown: str) -> Path:
    """The path with links resolved, which must not lead out of the volume."""
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        if not any(mount.iterdir()):
            raise FetchFailedError(
                TerminationReason.SOURCE_NOT_FOUND, f"the volume of {shown} is empty"
            ) from error
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND, f"{shown} does not exist on the volume: check spec.model.uri"
        ) from error
    if not found.is_relative_to(mount.resolve()):
        raise FetchFailedError(
            TerminationReason.SOURCE_FORBIDDEN, f"{shown} leads out of the volume by a link: remove the link"
        )
    return found


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
