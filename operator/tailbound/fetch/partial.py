"""The file while it is on its way: OUTPUT.part, and beside it what it takes to go on after a break.

The digest is always rebuilt from the bytes on disk. Nothing else is believed after a crash.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from tailbound.fetch.disk import naming
from tailbound.fetch.page import HEAD_BYTES

CHUNK_BYTES: Final = 1 << 20
PART: Final = ".part"
"""The end of the name of a file while it is on its way."""


def sha256_of(path: Path) -> str:
    """The file's digest in lower-case hex."""
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Partial:
    """A partial download of one URI into one output file."""

    def __init__(self, output: Path, uri: str) -> None:
        self._output = output
        self._uri = uri
        self._part = output.with_name(output.name + PART)
        self._meta = output.with_name(f"{output.name}{PART}.json")
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.validator: str | None = None
        self.total: int | None = None
        self._resume()

    @property
    def directory(self) -> Path:
        return self._output.parent

    def discard(self) -> None:
        """Remove what was downloaded, and begin from nothing."""
        self._meta.unlink(missing_ok=True)  # first: no crash may leave it beside bytes of another download
        self._part.unlink(missing_ok=True)
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.validator = self.total = None

    def restart(self, validator: str | None, total: int | None = None) -> None:
        """Begin from nothing. validator: for If-Range later, or None if resuming would be unsafe.

        total: the bytes of the whole file, None if the source does not say.
        """
        self.discard()
        self._part.touch()
        self.validator, self.total = validator, total
        if validator is not None:
            with naming(self._meta):
                self._meta.write_text(json.dumps({"uri": self._uri, "validator": validator, "total": total}))

    def append(self, data: bytes) -> None:
        """Write and digest. Raises OSError; what was written before it stays counted."""
        with naming(self._part), self._part.open("ab", buffering=0) as file:
            view = memoryview(data)
            while view:
                written = file.write(view)
                self._digest.update(view[:written])
                self.size_bytes += written
                view = view[written:]

    def head(self) -> bytes:
        """The first bytes, for telling what it is."""
        try:
            with self._part.open("rb") as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError:
            return b""

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def publish(self) -> None:
        """Make it the output file, in one step that survives a crash."""
        with naming(self._part), self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._output)
        self._meta.unlink(missing_ok=True)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _resume(self) -> None:
        try:
            meta = json.loads(self._meta.read_text())
            if meta["uri"] != self._uri:
                return
            with self._part.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    self._digest.update(chunk)
                    self.size_bytes += len(chunk)
            total = meta.get("total")
            self.validator, self.total = str(meta["validator"]), total if isinstance(total, int) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # Nothing usable: the next attempt starts from nothing.
            self._digest = hashlib.sha256()
            self.size_bytes = 0
