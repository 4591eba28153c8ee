"""Downloads over TLS: the certificate has to carry the name of the URI, whatever the address."""

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.download import FetchDependencies
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch

from tests.unit.fetch.faulty_store import FaultyStore, running, status
from tests.unit.fetch.fetcher import LOCALHOST

CONTENT = b"model" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@contextmanager
def tls_store(authority: trustme.CA, name: str) -> Iterator[FaultyStore]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    with running(CONTENT, context) as store:
        yield store


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    authority = trustme.CA()
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    return authority


def get(store: FaultyStore, folder: Path, access: Access = LOCALHOST) -> str:
    order = FetchRequest(f"https://localhost:{store.port}/m", SHA256, folder / "m.onnx")
    return fetch(order, access, FetchDependencies(emit=lambda *_, **__: None)).message


def test_a_trusted_certificate_of_that_name_serves(authority: trustme.CA, tmp_path: Path) -> None:
    with tls_store(authority, "localhost") as store:
        get(store, tmp_path)
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT
    assert store.requests[0]["Host"] == f"localhost:{store.port}"


def test_further_certificates_are_trusted_beside_the_usual_ones(tmp_path: Path) -> None:
    own = trustme.CA()
    access = replace(LOCALHOST, ca=own.cert_pem.bytes().decode())
    with tls_store(own, "localhost") as store:
        get(store, tmp_path, access)
    assert (tmp_path / "m.onnx").read_bytes() == CONTENT


@pytest.mark.parametrize(("trusted", "name"), [(True, "other.example"), (False, "localhost")])
def test_another_certificate_ends_it_at_once(
    authority: trustme.CA, tmp_path: Path, trusted: bool, name: str
) -> None:
    with (
        tls_store(authority if trusted else trustme.CA(), name) as store,
        pytest.raises(FetchFailedError, match=r"certificate of https://localhost.* is not trusted") as caught,
    ):
        get(store, tmp_path)
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE
    assert store.requests == []


def test_a_redirect_from_https_to_http_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    with tls_store(authority, "localhost") as store:
        store.replies.append(status(302, Location="http://localhost/m"))
        with pytest.raises(FetchFailedError, match="from https to http"):
            get(store, tmp_path)
