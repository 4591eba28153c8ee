"""The folder of one pod on a shared volume, in which it makes the model before every pod can see it.

A lock of the file system keeps pods from downloading at once. It can be lost while its holder lives: a frozen
pod, a server that forgets locks, a mount without them. So no file is ever written by two pods, whatever the
locks do: each pod writes to a folder of a name of its own, and what another has left is taken over so:

| left by another pod | becomes |
|---|---|
| the folder | renamed first: the other pod finds it gone, and gives up |
| a complete file in it | moved to the pod's own folder: no process writes to it now |
| a part of a file | copied there: the other pod may still have it open, and write to it |
| a part for whose copy the volume is too full | removed |
| the folder, where it turns out to be a model that was published meanwhile | put back |
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from tailbound.fetch.disk import NO_SPACE, naming
from tailbound.fetch.partial import PART
from tailbound.fetch.progress import Emit

MODEL: Final = "model"
"""The folder of the model on the volume."""
_OWN: Final = "filling-"


class Filling:
    """The folder of one pod on a volume. handle: of the folder, so that no other one can get its number."""

    def __init__(self, folder: Path, handle: int) -> None:
        self.folder = folder
        self._handle = handle

    @classmethod
    @contextmanager
    def opened(
        cls, mount: Path, holder: str, emit: Emit, *, take_over: bool, is_model: Callable[[Path], bool]
    ) -> Iterator[Self]:
        """The folder of `holder`, a name that no other pod has. Raises OSError.

        take_over: begin with what another pod has left, rather than with nothing. is_model: whether a folder
        is the complete model, which is not taken over.
        """
        folder = own_name(mount, holder)
        handle = _made(folder)
        try:
            if take_over:
                _take_over(mount, folder, emit, is_model)
            yield cls(folder, handle)
        finally:
            os.close(handle)

    @property
    def is_mine(self) -> bool:
        """Whether the folder is still the one that was opened: no other pod has taken it over."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.folder.stat())
        except OSError:
            return False

    def files(self) -> dict[str, int]:
        """The size of each file in bytes by its path, once all will survive the end of the node."""
        return {
            str(path.relative_to(self.folder)): synced(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def publish(self) -> bool:
        """Make the folder that of the model, in place of another one. False if another pod has taken it.

        Raises OSError.
        """
        model, replaced = self.folder.with_name(MODEL), self.folder.with_name(f"{self.folder.name}-replaced")
        with suppress(FileNotFoundError):
            model.rename(replaced)
        try:
            self.folder.rename(model)
        except FileNotFoundError:
            return False
        shutil.rmtree(replaced, ignore_errors=True)
        return True

    def remove(self) -> None:
        """Remove what lies under the name of the folder, which only this pod uses."""
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_leftovers(mount: Path, but: Collection[Path] = ()) -> None:
    """Remove what pods have left that have not published it; one that lives gives up then."""
    for path in mount.glob(f"{_OWN}*"):
        if path in but:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def synced(path: Path) -> int:
    """The size of a file in bytes, once it will survive the end of the node."""
    with naming(path), path.open("rb") as file:
        os.fsync(file.fileno())
        return path.stat().st_size


def own_name(mount: Path, holder: str) -> Path:
    """A name on the volume that only this holder uses, and which is removed as a leftover after its end."""
    return mount / f"{_OWN}{holder}"


def _made(folder: Path) -> int:
    """A handle of the folder, which is made; another pod may take it over at any time."""
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
        with suppress(FileNotFoundError):
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _take_over(mount: Path, own: Path, emit: Emit, is_model: Callable[[Path], bool]) -> None:
    """Move the files of the folder with the most bytes to `own`.

    That of the model can be it, as it is not complete here. No folder is kept: the other pod may be about to
    remove what is in one.
    """
    found = [path for path in (*mount.glob(f"{_OWN}*"), mount / MODEL) if path.is_dir() and path != own]
    left, taken = max(found, key=_bytes_in, default=None), own.with_name(f"{own.name}-taken")
    if left is None:
        return
    with suppress(OSError):  # another pod was faster, or it is another user's, which cannot be renamed
        left.rename(taken)
        if is_model(taken):
            taken.rename(left)
            return
    remove_leftovers(mount, but=(own, taken))
    for parent, _, names in os.walk(taken):
        for file in (Path(parent, name) for name in names):
            target = own / file.relative_to(taken)
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                _move(file, target, emit)
    shutil.rmtree(taken, ignore_errors=True)


def _bytes_in(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(parent, name).stat().st_size
    return size


def _move(file: Path, target: Path, emit: Emit) -> None:
    if file.suffix != PART:
        file.rename(target)
        return
    try:
        with naming(target):
            shutil.copyfile(file, target)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        target.unlink()
        emit("no room to copy what another pod has left of a file, starting over with it", path=str(target))
