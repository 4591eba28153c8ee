"""The model files that this server was given: some files, or a folder.

A folder has NAME/VERSION/model.onnx, a version being a whole number above 0; the greatest one is served.
Files beside model.onnx are the model's too, such as its weights.
"""

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tailbound_runtime.signature import MODEL_VERSION

FILE_NAME: Final = "model.onnx"
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_MEMORY: Final = Path("/proc/meminfo")
_LOST: Final = "lost+found"  # at the root of a file system


class RepositoryError(Exception):
    """The folder, or one model in it, is not laid out as it should be; the text says which and how."""


@dataclass(frozen=True)
class ModelFile:
    """size_bytes: of the model's files together"""

    name: str
    version: str
    path: Path
    size_bytes: int


class Repository(Protocol):
    """Reads the file system, and blocks."""

    def names(self) -> Sequence[str]:
        """The models that there are now. Raises RepositoryError."""

    def find(self, name: str) -> ModelFile | None:
        """The version to serve; None if there is no model of this name. Raises RepositoryError."""


@dataclass(frozen=True)
class Files:
    """Model files by name."""

    paths: Mapping[str, Path]

    def names(self) -> Sequence[str]:
        """In the order given."""
        return list(self.paths)

    def find(self, name: str) -> ModelFile | None:
        """The file as it is now; what begins with its name belongs to it: model.onnx.data."""
        path = self.paths.get(name)
        if path is None:
            return None
        parts = path.parent.glob(f"{glob.escape(path.name)}*") if path.is_file() else ()
        return ModelFile(name, MODEL_VERSION, path, sum(part.stat().st_size for part in parts))


@dataclass(frozen=True)
class Folder:
    """A repository folder."""

    path: Path

    def names(self) -> Sequence[str]:
        """In alphabetical order. Raises RepositoryError if the folder cannot be read."""
        try:
            found = [each.name for each in self.path.iterdir() if each.is_dir()]
        except OSError as error:
            raise RepositoryError(f"the model repository {self.path} cannot be read: {error}") from error
        return sorted(name for name in found if not name.startswith(".") and name != _LOST)

    def find(self, name: str) -> ModelFile | None:
        """Its greatest version. Raises RepositoryError if there is none."""
        if name not in self.names():  # never a path that a client makes up
            return None
        folder = self.path / name
        if not name.isprintable():  # as bytes that are no UTF-8 are not
            raise RepositoryError(f"the name of {str(folder)!r} can be part of no URL: rename it")
        versions = [
            int(each.name)
            for each in folder.iterdir()
            if each.name.isascii()
            and each.name.isdigit()
            and not each.name.startswith("0")
            and (each / FILE_NAME).is_file()
        ]
        if not versions:
            raise RepositoryError(
                f"{folder} has no version of the model: put it at {name}/VERSION/{FILE_NAME}, where VERSION "
                "is a whole number such as 1"
            )
        latest = folder / str(max(versions))
        return ModelFile(name, latest.name, latest / FILE_NAME, _size_bytes(latest))


def _size_bytes(folder: Path) -> int:
    """The bytes of all files, also behind links to folders, which may lead in circles: each folder once."""
    seen, size = set[tuple[int, int]](), 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = Path(parent)
        identity = (here.stat().st_dev, here.stat().st_ino)
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        size += sum((here / name).stat().st_size for name in names if (here / name).is_file())
    return size


def half_of_memory() -> int:
    """Bytes: half of what this container may use, or of what the machine has."""
    kibibytes = next(line.split()[1] for line in _MEMORY.read_text().splitlines() if "MemTotal" in line)
    most = int(kibibytes) * 2**10
    if _CGROUP_LIMIT.is_file():
        limit = _CGROUP_LIMIT.read_text().strip()
        most = min(most, int(limit)) if limit.isdigit() else most
    return most // 2
