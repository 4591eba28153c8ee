"""Fetches a model, whatever its source: the scheme of the URI says which.

| scheme | source |
|---|---|
| http, https | one file |
| s3, gs, az | an object, else everything below the prefix; only the latter if a path in the folder is given |
| hf | a file of a revision of a repository, else everything below the path |
| pvc, oci | the volume that is mounted in the pod: nothing is downloaded |
"""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tailbound.api.runtime_contract import SOURCE_MOUNT, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.archive import ARCHIVE, unpack
from tailbound.fetch.buckets import BucketConnection, S3Options, open_bucket
from tailbound.fetch.cached import ModelVolume
from tailbound.fetch.credentials import Credentials, authorization_for
from tailbound.fetch.dial import Dialer, Proxy
from tailbound.fetch.disk import CACHE_VOLUME
from tailbound.fetch.download import Download, Downloaded, FetchDependencies
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.folder import RemoteFolder, clear, fetch_folder, remove_others
from tailbound.fetch.gate import Gate
from tailbound.fetch.hub import HUB, HubFile, HubModel
from tailbound.fetch.mounted import MountedModel, link_entries, link_mounted
from tailbound.fetch.page import looks_like_a_page
from tailbound.fetch.partial import Partial, sha256_of
from tailbound.fetch.patterns import no_folder
from tailbound.fetch.pin import Fetched, Pin
from tailbound.fetch.progress import human_bytes
from tailbound.fetch.remote import Remote
from tailbound.fetch.source import HttpFile, Source, shown
from tailbound.fetch.stores import ObjectSource

_MOUNTED: Final = frozenset({"pvc", "oci"})


@dataclass(frozen=True)
class FetchRequest:
    """What to fetch.

    sha256: 64 lower-case hex digits; None for an image, whose reference pins it, and where the digest is yet
    to be found. output: where the server looks for the model's file. path: the end of `output` that is a path
    in the source's folder, None if the source may be a file. mount: where the volume of a mounted source is.
    resolved: the digest is what the source had before, and not in the spec. resolve: find the digest.
    files: patterns of the files of a folder that are fetched; empty: all, and the source may be a file.
    archive: tar or zip, if the source is an archive of the folder; None: it is not. cache: where the volume
    is mounted on which pods share the model, None if there is none.
    """

    uri: str
    sha256: str | None
    output: Path
    path: str | None = None
    s3: S3Options = field(default_factory=S3Options)
    mount: Path = Path(SOURCE_MOUNT)
    resolved: bool = False
    resolve: bool = False
    files: tuple[str, ...] = ()
    archive: str | None = None
    cache: Path | None = None

    @property
    def pin(self) -> Pin | None:
        """The digest that the model must have; None if it is yet to be found, or the source is pinned."""
        return Pin(self.sha256, self.resolved) if self.sha256 is not None else None

    @property
    def root(self) -> Path:
        """The folder that a source's folder becomes."""
        depth = len(Path(self.path).parts) if self.path is not None else 1
        return self.output.parents[depth - 1]


@dataclass(frozen=True)
class Access:
    """How hosts are reached. ca: further certificates, PEM; credentials: None if there is no secretRef."""

    policy: AddressPolicy
    proxy: Proxy | None = None
    ca: str | None = None
    credentials: Credentials | None = None

    def dialer(self, world: FetchDependencies) -> Dialer:
        return Dialer(self.policy, world.time_outs, self.proxy)

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self.ca is not None:
            context.load_verify_locations(cadata=self.ca)
        return context


def fetch(order: FetchRequest, access: Access, world: FetchDependencies) -> Fetched:
    """Fetch, and say what was done. Raises FetchFailedError."""
    scheme = order.uri.partition("://")[0]
    if order.pin is None and not order.resolve and scheme != "oci":
        raise FetchFailedError(
            TerminationReason.DIGEST_MISMATCH, f"there is no digest to verify {shown(order.uri)} with"
        )
    # A source that states digests is not read to find one, and leaves no model to keep.
    if order.cache is not None and (order.pin is not None or scheme != "hf"):
        found = _through_cache(order, order.cache, access, world)
    else:
        found = _downloaded(order, access, world)
    if not order.output.is_file() and str(order.output.relative_to(order.root)) not in found.stated:
        raise _no_model_file(order, found.stated)
    return found


def _through_cache(order: FetchRequest, cache: Path, access: Access, world: FetchDependencies) -> Fetched:
    """The model on the shared volume, downloaded there if it is missing, with links to it."""
    volume = ModelVolume(cache, order.sha256, world.new_name(), world.emit, world.sleep)
    limits = replace(world.limits, if_too_large=CACHE_VOLUME.if_full, if_full=CACHE_VOLUME.if_full)
    inside, path = replace(world, limits=limits), order.output.relative_to(order.root)
    found = volume.model(lambda folder: _downloaded(replace(order, output=folder / path), access, inside))
    link_entries(volume.folder, order.root)
    return found


def _downloaded(order: FetchRequest, access: Access, world: FetchDependencies) -> Fetched:
    fetcher = _FETCHERS.get(order.uri.partition("://")[0], _fetch_url)
    if order.archive is None:
        return fetcher(order, access, world)
    return _unpacked(order, order.archive, lambda file: fetcher(file, access, world), world)


def _unpacked(
    order: FetchRequest, kind: str, fetched: Callable[[FetchRequest], Fetched], world: FetchDependencies
) -> Fetched:
    """The archive fetched and unpacked. What an earlier start has unpacked is removed first."""
    file = order.root / ARCHIVE
    # Not `resolve`: the archive itself is needed, also where the source states its digest.
    found = fetched(replace(order, output=file, path=None, files=(), resolve=False))
    clear(order.root, ARCHIVE)
    world.emit("unpacking", archive=kind, bytes=found.size_bytes)
    unpack(file, kind, order.root, order.files, world.limits, shown(order.uri))
    file.unlink()
    return found


def _fetch_url(order: FetchRequest, access: Access, world: FetchDependencies) -> Fetched:
    source = _http(order.uri, access, world)
    return fetch_file(HttpFile(source, order.uri), order, _download(order, world), world)


def _fetch_from_hub(order: FetchRequest, access: Access, world: FetchDependencies) -> Fetched:
    model, source, download = (
        HubModel.parse(order.uri),
        _http(HUB, access, world),
        _download(order, world),
    )
    try:
        found = download.ask(lambda: model.find(source, order.files))
    finally:
        source.close()
    if isinstance(found, HubFile):
        if order.files:
            raise no_folder(shown(order.uri))
        if order.resolve and found.sha256 is not None:
            said = f"{found.remote.shown} states the sha256 {found.sha256} of {human_bytes(found.size_bytes)}"
            path = str(order.output.relative_to(order.root))
            return Fetched(said, found.sha256, found.size_bytes, frozenset({path}))
        return fetch_file(found.remote, order, download, world)
    return _fetch_folder(found, order, world)


def _download(order: FetchRequest, world: FetchDependencies) -> Download:
    return Download(world, pinned=order.pin is not None)


def _http(url: str, access: Access, world: FetchDependencies) -> Source:
    """HTTP with the credentials for `url`."""
    first = _split(url)
    credentials = access.credentials

    def authorization(target: SplitResult) -> str | None:
        if credentials is None or first is None:
            return None
        return authorization_for(credentials, access.policy, first, target)

    return Source(access.dialer(world), access.tls(), authorization)


def _fetch_object(order: FetchRequest, access: Access, world: FetchDependencies) -> Fetched:
    download = _download(order, world)
    with Gate(access.dialer(world)) as gate:
        trusted = access.proxy is None or access.proxy.trusted
        connection = BucketConnection(gate, world, access.ca, workload_identity=trusted)
        bucket = open_bucket(order.uri, order.s3, access.credentials, connection)
        source, key = ObjectSource(bucket.store, gate, bucket.shown), bucket.key
        is_file = (
            order.path is None
            and not order.files
            and key != ""
            and not key.endswith("/")
            and download.ask(lambda: source.has(key))
        )
        if is_file:
            return fetch_file(source.file(key), order, download, world)
        folder = download.ask(lambda: source.folder(key.strip("/"), order.files))
        return _fetch_folder(folder, order, world)


def _fetch_folder(folder: RemoteFolder, order: FetchRequest, world: FetchDependencies) -> Fetched:
    if order.archive is not None:
        raise FetchFailedError(
            TerminationReason.SOURCE_NOT_FOUND,
            f"{folder.shown} is a folder, and spec.model.archive is for a file: correct the URI",
        )
    return fetch_folder(folder, order.pin, order.root, world)


def _link(order: FetchRequest, _: Access, world: FetchDependencies) -> Fetched:
    path = "" if order.uri.startswith("oci://") else order.uri.removeprefix("pvc://").partition("/")[2]
    model = MountedModel(order.mount / path, order.mount, shown(order.uri), order.files)
    return link_mounted(model, order.pin, order.output, order.root, world.emit, resolve=order.resolve)


_FETCHERS: Final[Mapping[str, Callable[[FetchRequest, Access, FetchDependencies], Fetched]]] = {
    **dict.fromkeys(("s3", "gs", "az"), _fetch_object),
    "hf": _fetch_from_hub,
    **dict.fromkeys(_MOUNTED, _link),
}


def fetch_file(remote: Remote, order: FetchRequest, download: Download, world: FetchDependencies) -> Fetched:
    """Fetch one file to `order.output`.

    | the file is complete | next |
    |---|---|
    | digest right | published |
    | digest wrong, part of it from an earlier attempt | from the start, but only once |
    | digest wrong, and it is a page of a site | NotAModel |
    | digest wrong | DigestMismatch, or SourceChanged |
    | no digest to compare with, and it is a page of a site, or was compressed on its way | NotAModel |
    | no digest to compare with | published |
    """
    pin = order.pin
    order.output.parent.mkdir(parents=True, exist_ok=True)
    if order.cache is not None:
        # The digest is of this file alone, and servers read what lies beside it, as warm-up data.
        remove_others(order.root, {str(order.output.relative_to(order.root))})
    if pin is None:
        return _fetch_unpinned(remote, Partial(order.output, order.uri), download, order.archive)
    if order.output.exists():
        if sha256_of(order.output) == pin.sha256:
            size = order.output.stat().st_size
            said = f"{order.output} was here already, {human_bytes(size)}, with the right sha256"
            return Fetched(said, pin.sha256, size)
        world.emit("replacing a file with another sha256", path=str(order.output))
    partial = Partial(order.output, order.uri)
    if partial.size_bytes:
        world.emit("found a partial file", bytes=partial.size_bytes)
    if partial.size_bytes == 0 or partial.hexdigest() != pin.sha256:
        _download_pinned(remote, pin, partial, download, world)
    size_bytes = partial.size_bytes
    partial.publish()
    said = f"fetched {human_bytes(size_bytes)} from {remote.shown}, with the right sha256"
    return Fetched(said, pin.sha256, size_bytes)


def _fetch_unpinned(remote: Remote, partial: Partial, download: Download, archive: str | None) -> Fetched:
    done = download.run(remote, partial)
    failure = None
    if looks_like_a_page(partial.head(), done.content_type):
        failure = _page(remote, partial, done.content_type)
    elif done.encoding and archive is None:  # servers say so of archives, too, which are meant as they are
        failure = FetchFailedError(
            TerminationReason.NOT_A_MODEL,
            f"{remote.shown} came compressed ({_encoded(done)}), although it was asked for as it is: have "
            "the server, or a proxy on the way, leave it as it is",
        )
    if failure is not None:
        partial.discard()
        raise failure
    size_bytes, sha256 = partial.size_bytes, partial.hexdigest()
    partial.publish()
    said = f"fetched {human_bytes(size_bytes)} from {remote.shown}, with sha256 {sha256}"
    return Fetched(said, sha256, size_bytes)


def _download_pinned(
    remote: Remote, pin: Pin, partial: Partial, download: Download, world: FetchDependencies
) -> None:
    for last in (False, True):
        done = download.run(remote, partial)
        if partial.hexdigest() == pin.sha256:
            return
        failure = _mismatch(remote, pin, partial, done)
        partial.discard()
        download.forget()
        if last or not done.resumed:
            raise failure
        world.emit("wrong sha256 after resuming, starting over")


def _mismatch(remote: Remote, pin: Pin, partial: Partial, done: Downloaded) -> FetchFailedError:
    if looks_like_a_page(partial.head(), done.content_type):
        return _page(remote, partial, done.content_type)
    encoded = _encoded(done) if done.encoding else ""
    what = ", ".join(filter(None, (human_bytes(partial.size_bytes), done.content_type, encoded)))
    return pin.mismatch(f"{remote.shown} ({what}) has sha256 {partial.hexdigest()}")


def _encoded(done: Downloaded) -> str:
    return f"Content-Encoding {done.encoding}"


def _page(remote: Remote, partial: Partial, content_type: str) -> FetchFailedError:
    return FetchFailedError(
        TerminationReason.NOT_A_MODEL,
        f"{remote.shown} answered with a page of a web site ({content_type or 'no content type'}, "
        f"{human_bytes(partial.size_bytes)}) and not with a model, for example a page to sign in: check "
        "spec.model.uri, and whether it needs spec.model.secretRef",
    )


def _no_model_file(order: FetchRequest, stated: frozenset[str]) -> FetchFailedError:
    wanted = order.path or order.output.name
    fetched = {
        str((Path(parent) / name).relative_to(order.root))
        for parent, _, names in os.walk(order.root, followlinks=True)
        for name in names
    }
    there = sorted(fetched | stated)
    listed = ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
    return FetchFailedError(
        TerminationReason.SOURCE_NOT_FOUND,
        f"{shown(order.uri)} is a folder without {wanted!r}; it holds {listed}: name the model's file by "
        "spec.model.path",
    )


def _split(uri: str) -> SplitResult | None:
    try:
        return urlsplit(uri)
    except ValueError:
        return None
