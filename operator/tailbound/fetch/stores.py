"""Models in object stores. The library's connections pass a `Gate`, and its own retries are off.

| the library raises | it means |
|---|---|
| anything, and the gate has refused a host | the gate's refusal |
| FileNotFoundError, or no such bucket | SourceNotFound |
| permission denied, not authenticated | SourceForbidden |
| precondition failed | the object has changed since the download began: from the start |
| anything else | tried again |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import ObjectStore

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError, RangeRefusedError, TransientError
from tailbound.fetch.folder import RemoteFolder
from tailbound.fetch.gate import Gate
from tailbound.fetch.partial import CHUNK_BYTES
from tailbound.fetch.patterns import chosen
from tailbound.fetch.remote import Body, Version

if TYPE_CHECKING:
    from obstore import GetResult  # only in the stubs

_LONGEST_ERROR: Final = 300
_NO_BUCKET: Final = "NoSuchBucket"
_DEBUG: Final = "Debug source:"

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Listed:
    """An object in the list of a bucket, in one version."""

    size_bytes: int
    etag: str | None
    changed: datetime


class ObjectSource:
    """A bucket behind a gate. It is open while the gate is."""

    def __init__(self, store: ObjectStore, gate: Gate, shown: str) -> None:
        self._store = store
        self._gate = gate
        self._shown = shown

    def has(self, key: str) -> bool:
        """Whether there is an object of exactly this key. Raises FetchFailedError or TransientError."""
        try:
            self.ask(lambda: obstore.head(self._store, key))
        except FetchFailedError as error:
            if error.reason is TerminationReason.SOURCE_NOT_FOUND:
                return False
            raise
        return True

    def file(self, key: str) -> "ObjectFile":
        return ObjectFile(self, key)

    def folder(self, prefix: str, patterns: Sequence[str] = ()) -> RemoteFolder:
        """What matches a pattern below a prefix, or all of it, without empty objects that stand for folders.

        Raises FetchFailedError or TransientError.
        """
        shown = f"{self._shown}/{prefix}".rstrip("/") + "/"
        below = f"{prefix}/" if prefix else ""

        def listed() -> list[tuple[str, _Listed]]:
            return self.ask(lambda: chosen(self._listed(prefix, below), patterns, shown))

        files = listed()
        if not files:
            raise FetchFailedError(
                TerminationReason.SOURCE_NOT_FOUND,
                f"there is neither an object {shown.rstrip('/')} nor one below {shown}: check spec.model.uri",
            )
        return RemoteFolder(
            shown,
            [(path, each.size_bytes) for path, each in files],
            lambda path: self.file(below + path),
            is_same=lambda: listed() == files,
        )

    def get(self, key: str, options: Mapping[str, Any]) -> "GetResult":
        return self.ask(lambda: obstore.get(self._store, key, options=options))  # type: ignore[arg-type]

    def shown(self, key: str) -> str:
        return f"{self._shown}/{key}"

    def ask(self, call: Callable[[], Result]) -> Result:
        """The call's result. Raises FetchFailedError or TransientError."""
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        if self._gate.refusal is not None:
            return self._gate.refusal
        if isinstance(error, FileNotFoundError) or _NO_BUCKET in str(error):
            return FetchFailedError(
                TerminationReason.SOURCE_NOT_FOUND, f"{self._shown} is not found: check spec.model.uri"
            )
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return FetchFailedError(
                TerminationReason.SOURCE_FORBIDDEN,
                f"{self._shown} refuses these credentials, or none were given ({_short(error)}): "
                "spec.model.secretRef must name a Secret with credentials that may list and read",
            )
        if isinstance(error, PreconditionError):
            return RangeRefusedError(f"{self._shown} has changed meanwhile")
        return TransientError(f"{self._shown}: {_short(error)}")

    def _listed(self, prefix: str, below: str) -> Iterator[tuple[str, _Listed]]:
        """Each object by its path below the prefix."""
        for chunk in obstore.list(self._store, prefix or None, chunk_size=1000):
            for meta in chunk:
                key = meta["path"]
                if not key.endswith("/") and key.startswith(below):
                    yield (
                        key.removeprefix(below),
                        _Listed(meta["size"], meta["e_tag"], meta["last_modified"]),
                    )


class ObjectFile:
    """One object."""

    def __init__(self, source: ObjectSource, key: str) -> None:
        self._source = source
        self._key = key

    @property
    def shown(self) -> str:
        return self._source.shown(self._key)

    def open(self, start: int, validator: str | None) -> Body:
        options: dict[str, Any] = {}
        if start and validator is not None:
            options = {"range": {"offset": start}, "if_match": validator}
        result = self._source.get(self._key, options)
        chunks = iter(result.stream(min_chunk_size=CHUNK_BYTES))

        def read() -> bytes:
            chunk = self._source.ask(lambda: next(chunks, None))
            return b"" if chunk is None else bytes(chunk)

        etag = result.meta["e_tag"]
        if result.range[0] and etag != validator:  # a store that does not know If-Match
            raise RangeRefusedError(f"{self.shown} has changed meanwhile")
        return Body(
            start=result.range[0],
            total=result.meta["size"],
            validator=None if etag is None or etag.startswith("W/") else etag,
            read=read,
        )

    def another(self) -> "ObjectFile":
        return self

    def part(self, start: int, end: int, version: Version) -> Callable[[], bytes]:
        result = self._source.get(self._key, {"range": (start, end), "if_match": version.validator})
        found = (result.range[0], result.meta["e_tag"], result.meta["size"])
        if found != (start, version.validator, version.total):
            raise RangeRefusedError(f"{self.shown} gives no range of the version that was begun")
        chunks = iter(result.stream(min_chunk_size=CHUNK_BYTES))

        def read() -> bytes:
            chunk = self._source.ask(lambda: next(chunks, None))
            return b"" if chunk is None else bytes(chunk)

        return read

    def close(self) -> None:
        """The stream closes with its last reference."""


def _short(error: BaseException) -> str:
    """The beginning of the library's message, which can run to pages."""
    line = " ".join(str(error).partition(_DEBUG)[0].split())
    return line if len(line) <= _LONGEST_ERROR else line[:_LONGEST_ERROR] + "…"
