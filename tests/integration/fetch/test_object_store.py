"""Fetches from a real S3 server (versitygw), as processes do: files, folders, credentials, changes."""

import hashlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
import pytest
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.buckets import BucketConnection, S3Options, s3_store
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.digest import digest_of
from tailbound.fetch.download import FetchDependencies, Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch
from tailbound.fetch.gate import Gate
from tailbound.fetch.partial import Partial
from tailbound.fetch.remote import Version
from tailbound.fetch.stores import ObjectFile, ObjectSource

from e2e.cluster import binaries
from e2e.cluster.ports import free_port

KEY = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "sk12345678"}
MEGABYTES = random.Random(7).randbytes(3_000_000)


@dataclass(frozen=True)
class S3Server:
    """root: the folder whose folders are the buckets."""

    root: Path
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://localhost:{self.port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    root, meta = tmp_path_factory.mktemp("buckets"), tmp_path_factory.mktemp("meta")
    folder = root / "models" / "churn" / "7"
    (folder / "onnx").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(MEGABYTES)
    (folder / "onnx" / "weights.bin").write_bytes(MEGABYTES[::-1])
    (root / "models" / "one.onnx").write_bytes(MEGABYTES)
    port = free_port()
    program = binaries.program("versitygw")
    arguments = ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(meta), str(root)]
    keys = {"ROOT_ACCESS_KEY": KEY["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEY["AWS_SECRET_ACCESS_KEY"]}
    process = subprocess.Popen([program, *arguments], env={**os.environ, **keys}, stdout=subprocess.DEVNULL)
    try:
        _await_port(port)
        yield S3Server(root, port)
    finally:
        process.terminate()
        process.wait(10)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


ALLOWED = AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: "localhost"})
ACCESS = Access(ALLOWED, credentials=Credentials(KEY, ("localhost:PORT",)))
"""PORT is that of the server."""
WORLD = FetchDependencies(
    retries=Retries(attempts=2, first_pause_seconds=0.1), emit=lambda *_, **__: None, jitter=lambda: 0.0
)


def run(
    server: S3Server, output: Path, uri: str, sha256: str, path: str | None = None, access: Access = ACCESS
) -> str:
    order = FetchRequest(uri, sha256, output / (path or "model.onnx"), path, S3Options(server.endpoint))
    return fetch(order, _at(server, access), WORLD).message


def _at(server: S3Server, access: Access) -> Access:
    secret = access.credentials
    if secret is None:
        return access
    hosts = tuple(host.replace("PORT", str(server.port)) for host in secret.hosts)
    return replace(access, credentials=Credentials(secret.values, hosts))


def test_an_object_is_fetched_and_verified(server: S3Server, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(MEGABYTES).hexdigest()
    assert "3.0 MB" in run(server, tmp_path, "s3://models/one.onnx", sha256)
    assert (tmp_path / "model.onnx").read_bytes() == MEGABYTES
    with pytest.raises(FetchFailedError, match="has sha256") as caught:
        run(server, tmp_path, "s3://models/one.onnx", "a" * 64)
    assert caught.value.reason is TerminationReason.DIGEST_MISMATCH


def test_a_large_object_comes_in_ranges_of_one_version(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailbound.fetch.ranges.BLOCK_BYTES", 100_000)
    monkeypatch.setattr("tailbound.fetch.download.LEAST_BYTES", 1_000_000)
    parts: list[int] = []
    read = ObjectFile.part

    def part(file: ObjectFile, start: int, end: int, version: Version) -> Callable[[], bytes]:
        found = read(file, start, end, version)
        parts.append(start)
        return found

    monkeypatch.setattr(ObjectFile, "part", part)
    secret = _at(server, ACCESS).credentials
    with Gate(ACCESS.dialer(WORLD)) as gate:
        store = s3_store("models", S3Options(server.endpoint), secret, BucketConnection(gate, WORLD))
        obstore.put(store, "large.onnx", MEGABYTES)  # a file on the server's disk alone has no ETag
    run(server, tmp_path, "s3://models/large.onnx", hashlib.sha256(MEGABYTES).hexdigest())
    assert (tmp_path / "model.onnx").read_bytes() == MEGABYTES
    assert sorted(parts) == list(range(0, len(MEGABYTES), 100_000))


@pytest.mark.parametrize("uri", ["s3://models/churn/7", "s3://models/churn/7/"])
def test_a_folder_is_everything_below_the_key(server: S3Server, tmp_path: Path, uri: str) -> None:
    run(server, tmp_path, uri, digest_of(server.root / "models" / "churn" / "7"))
    assert (tmp_path / "model.onnx").read_bytes() == MEGABYTES
    assert (tmp_path / "onnx" / "weights.bin").read_bytes() == MEGABYTES[::-1]


def test_a_partial_object_is_continued_unless_it_has_changed(server: S3Server, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(MEGABYTES).hexdigest()
    with Gate(ACCESS.dialer(WORLD)) as gate:
        store = s3_store(
            "models",
            S3Options(server.endpoint),
            _at(server, ACCESS).credentials,
            BucketConnection(gate, WORLD),
        )
        etag = ObjectSource(store, gate, "s3://models").file("one.onnx").open(0, None).validator
    for validator in (etag, '"another"'):
        partial = Partial(tmp_path / "model.onnx", "s3://models/one.onnx")
        partial.restart(validator)
        partial.append(MEGABYTES[:1_000_000])
        run(server, tmp_path, "s3://models/one.onnx", sha256)
        assert (tmp_path / "model.onnx").read_bytes() == MEGABYTES
        (tmp_path / "model.onnx").unlink()


@pytest.mark.parametrize(
    ("uri", "access", "reason", "said"),
    [
        (
            "s3://models/none",
            ACCESS,
            TerminationReason.SOURCE_NOT_FOUND,
            "neither an object s3://models/none",
        ),
        ("s3://nothing/none", ACCESS, TerminationReason.SOURCE_NOT_FOUND, "s3://nothing is not found"),
        (
            "s3://models/one.onnx",
            replace(ACCESS, credentials=None),
            TerminationReason.SOURCE_FORBIDDEN,
            "refuses these credentials, or none were given",
        ),
        (
            "s3://models/one.onnx",
            replace(
                ACCESS, credentials=Credentials({**KEY, "AWS_SECRET_ACCESS_KEY": "x"}, ("localhost:PORT",))
            ),
            TerminationReason.SOURCE_FORBIDDEN,
            "refuses these credentials, or none were given",
        ),
        (
            "s3://models/one.onnx",
            replace(ACCESS, credentials=Credentials(KEY, ("*.amazonaws.com",))),
            TerminationReason.CREDENTIALS_REFUSED,
            "is not for localhost",
        ),
        (
            "s3://models/one.onnx",
            replace(ACCESS, policy=AddressPolicy.from_env({})),
            TerminationReason.ADDRESS_DENIED,
            "localhost may not be fetched from",
        ),
    ],
    ids=["no-object", "no-bucket", "no-secret", "wrong-secret", "secret-for-others", "private-address"],
)
def test_what_cannot_be_fetched_is_named(
    server: S3Server, tmp_path: Path, uri: str, access: Access, reason: TerminationReason, said: str
) -> None:
    with pytest.raises(FetchFailedError) as caught:
        run(server, tmp_path, uri, "a" * 64, access=access)
    assert caught.value.reason is reason
    assert said in str(caught.value)
    assert KEY["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
