"""Models of the Hugging Face hub, through its documented HTTP interface: the tree of a revision, and files.

The tree states the SHA-256 of each file in LFS, so of all large ones. The hub redirects downloads to other
hosts; credentials are sent to the hub alone.
"""

import http.client
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.failures import FetchFailedError, TransientError
from tailbound.fetch.folder import RemoteFolder
from tailbound.fetch.patterns import chosen
from tailbound.fetch.remote import LARGEST_FILE_BYTES
from tailbound.fetch.source import USER_AGENT, HttpFile, Source, describe, joined
from tailbound.objects.fields import child

HUB: Final = "https://huggingface.co"
_LARGEST_PAGE_BYTES: Final = 32 * 1024 * 1024
_NEXT: Final = re.compile(r"<([^<>]+)>\s*;\s*rel=\"next\"")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_URI: Final = re.compile(r"hf://([^/@]+/[^/@]+)@([^/]+)(?:/(.*))?")


@dataclass(frozen=True)
class HubFile:
    """A file of a repository. sha256: as the hub states it, None for a file that is not in LFS."""

    remote: HttpFile
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True)
class _Entry:
    """A file in the tree. version: as git names it."""

    size_bytes: int
    sha256: str | None
    version: str


@dataclass(frozen=True)
class HubModel:
    """A repository at a revision, and the path in it: of a file or of a folder, empty for all of it."""

    repository: str
    revision: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> "HubModel":
        """Raises FetchFailedError: it wants hf://OWNER/NAME@REVISION, and a path behind it if need be."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise FetchFailedError(
                TerminationReason.SOURCE_NOT_FOUND,
                f"{uri} does not name a revision: write hf://OWNER/NAME@REVISION",
            )
        return cls(match[1], match[2], (match[3] or "").strip("/"))

    @property
    def shown(self) -> str:
        return f"hf://{self.repository}@{self.revision}"

    def file(self, source: Source, path: str) -> HttpFile:
        """A file of the repository."""
        return HttpFile(source, f"{HUB}/{self.repository}/resolve/{quote(self.revision)}/{quote(path)}")

    def find(self, source: Source, patterns: Sequence[str] = ()) -> HubFile | RemoteFolder:
        """The file at the path, or else what matches a pattern below it, or all of it.

        Raises FetchFailedError or TransientError.
        """
        if self.path:
            entry = self._entry(source)
            if entry is not None:
                return HubFile(self.file(source, self.path), entry.size_bytes, entry.sha256)
        below = f"{self.path}/" if self.path else ""

        def listed() -> dict[str, _Entry]:
            try:
                return dict(chosen(self._files(source, below), patterns, f"{self.shown}/{below}"))
            finally:
                source.close()

        inside = listed()
        if not inside:
            raise self._absent()
        return RemoteFolder(
            f"{self.shown}/{below}",
            [(path, each.size_bytes) for path, each in inside.items()],
            lambda path: self.file(source, below + path),
            {path: each.sha256 for path, each in inside.items() if each.sha256 is not None},
            lambda: listed() == inside,
        )

    def _entry(self, source: Source) -> _Entry | None:
        """The file at the path; None where it is a folder. Only the folder around it is listed."""
        around = self.path.rpartition("/")[0]
        for entry in self._tree(source, around, recursive=False):
            if entry.get("path") == self.path:
                return self._file(entry)[1] if entry.get("type") == "file" else None
        raise self._absent()

    def _absent(self) -> FetchFailedError:
        return FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND,
            f"{self.shown} has no file {self.path!r} and none below it: check spec.model.uri",
        )

    def _files(self, source: Source, below: str) -> Iterator[tuple[str, _Entry]]:
        """Each file below the path, by its path there."""
        for entry in self._tree(source, self.path, recursive=True):
            if entry.get("type") == "file":
                path, file = self._file(entry)
                if path.startswith(below):
                    yield path.removeprefix(below), file

    def _tree(self, source: Source, folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
        """The entries of a folder, page after page."""
        url = f"{HUB}/api/models/{self.repository}/tree/{quote(self.revision)}/{quote(folder)}".rstrip("/")
        url += "?recursive=true" if recursive else ""
        while url:
            response = source.open(url, {"User-Agent": USER_AGENT, "Accept": "application/json"})
            yield from self._page(response)
            following = _NEXT.search(response.getheader("Link", ""))
            url = joined(url, following[1]) if following else ""
            if url and not url.startswith(HUB + "/"):
                raise FetchFailedError(
                    TerminationReason.SOURCE_UNREACHABLE, f"the list of {self.shown} goes on at another host"
                )

    def _file(self, entry: dict[str, Any]) -> tuple[str, _Entry]:
        path, size = entry.get("path"), entry.get("size")
        if not isinstance(path, str) or type(size) is not int or not 0 <= size <= LARGEST_FILE_BYTES:
            raise TransientError(f"the list of {self.shown} has a file without a path or a size")
        return path, _Entry(size, _stated(entry), str(entry.get("oid")))

    def _page(self, response: http.client.HTTPResponse) -> list[dict[str, Any]]:
        try:
            text = response.read(_LARGEST_PAGE_BYTES)
            page = json.loads(text)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"the list of {self.shown} broke off: {describe(error)}") from error
        except ValueError as error:
            raise TransientError(f"the list of {self.shown} is no JSON") from error
        if not isinstance(page, list) or not all(isinstance(entry, dict) for entry in page):
            raise TransientError(f"the list of {self.shown} is not one of files")
        return page


def _stated(entry: dict[str, Any]) -> str | None:
    """The SHA-256 of a file in LFS; None for any other."""
    digest = child(entry, "lfs").get("oid")
    return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None
