"""Secrets are sent to the hosts that they list, and to no other."""

import base64
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.failures import FetchFailedError

from tests.unit.fetch.faulty_store import running, status
from tests.unit.fetch.fetcher import CONTENT, LOCALHOST, Fetcher

TOKEN = {"token": "s3cret"}


@pytest.mark.parametrize(
    ("listed", "authority", "meant"),
    [
        ("models.example.com", "MODELS.example.com.", True),
        ("models.example.com", "models.example.com:443", True),
        ("models.example.com:443", "models.example.com", True),
        ("models.example.com", "models.example.com:8443", False),
        ("models.example.com:8443", "models.example.com:8443", True),
        ("models.example.com:8443", "models.example.com", False),
        ("*.example.com:8443", "models.example.com:8443", True),
        ("*.example.com", "models.example.com:8443", False),
        ("2001:db8::1", "[2001:db8::1]", True),
        ("[2001:db8::1]:8443", "[2001:db8::1]:8443", True),
        ("[2001:db8::1]", "[2001:db8::1]:8443", False),
        ("a.example, models.example.com", "models.example.com", True),
        ("*.example.com", "models.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("models.example.com", "models.example.com.evil.org", False),
        ("example.com", "models.example.com", False),
        ("*", "models.example.com", False),
    ],
)
def test_hosts_of_a_secret(tmp_path: Path, listed: str, authority: str, meant: bool) -> None:
    (tmp_path / "hosts").write_text(listed + "\n")
    assert Credentials.read(tmp_path).meant_for(urlsplit(f"https://{authority}/m")) is meant


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "does not exist, or is empty"),
        ({}, "does not exist, or is empty"),
        ({"token": b"x"}, "has no key 'hosts'"),
        ({"token": b"x", "hosts": b" , "}, "has no key 'hosts'"),
        ({"token": b"x", "hosts": b"https://localhost"}, "write HOST, or HOST:PORT"),
        ({"token": b"\xff\xfe", "hosts": b"localhost"}, "has a key 'token' that is no text"),
        ({"token": b"x" * 70_000, "hosts": b"localhost"}, "of more than 65536 bytes"),
    ],
    ids=["missing", "empty", "no-hosts", "blank-hosts", "url", "binary", "huge"],
)
def test_an_unusable_secret_is_refused(tmp_path: Path, files: dict[str, bytes] | None, said: str) -> None:
    folder = tmp_path / "secret"
    if files is not None:
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
    with pytest.raises(FetchFailedError, match=said) as caught:
        Credentials.read(folder)
    assert caught.value.reason is TerminationReason.CREDENTIALS_REFUSED


@pytest.mark.parametrize(
    ("values", "header"),
    [
        ({"token": "s3cret"}, "Bearer s3cret"),
        ({"username": "me", "password": "pw"}, "Basic " + base64.b64encode(b"me:pw").decode()),
    ],
    ids=["token", "password"],
)
def test_credentials_are_sent_to_the_host_that_they_are_for(
    fetcher: Fetcher, values: dict[str, str], header: str
) -> None:
    fetcher.run(access=replace(LOCALHOST, credentials=_for_the_store(fetcher, values)))
    assert fetcher.store.requests[0]["Authorization"] == header


@pytest.mark.parametrize(
    ("values", "hosts", "said"),
    [
        (TOKEN, ("models.example.com",), "have its owner add localhost:{port}"),
        (TOKEN, ("localhost",), "is not for localhost:{port}"),
        ({"AWS_ACCESS_KEY_ID": "x"}, ("localhost:{port}",), "needs hosts and either token, or username"),
        ({"username": "me"}, ("localhost:{port}",), "lacks the key 'password'"),
    ],
    ids=["another-host", "another-port", "of-another-kind", "half"],
)
def test_credentials_that_do_not_fit_are_not_sent(
    fetcher: Fetcher, values: dict[str, str], hosts: tuple[str, ...], said: str
) -> None:
    port = fetcher.store.port
    credentials = Credentials(values, tuple(each.format(port=port) for each in hosts))
    access = replace(LOCALHOST, credentials=credentials)
    assert said.format(port=port) in fetcher.fails(TerminationReason.CREDENTIALS_REFUSED, access=access)
    assert fetcher.store.requests == []


def test_credentials_are_not_sent_over_plain_http_to_the_internet(fetcher: Fetcher) -> None:
    opened = AddressPolicy.from_env({})
    access = replace(LOCALHOST, policy=opened, credentials=_for_the_store(fetcher, TOKEN))
    assert "over plain http" in fetcher.fails(TerminationReason.CREDENTIALS_REFUSED, access=access)


def test_credentials_follow_a_redirect_only_to_a_host_and_port_that_are_listed(fetcher: Fetcher) -> None:
    both = AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: "localhost,127.0.0.1"})
    access = replace(LOCALHOST, policy=both, credentials=_for_the_store(fetcher, TOKEN))
    with running(CONTENT) as another:
        for store, target in (
            (fetcher.store, f"http://127.0.0.1:{fetcher.store.port}/m"),
            (another, another.url()),
            (fetcher.store, fetcher.store.url("/m")),
        ):
            fetcher.store.replies.append(status(302, Location=target))
            fetcher.run(access=access)
            fetcher.output.unlink()
            sent = store.requests[-1]["Authorization"]
            assert sent == ("Bearer s3cret" if target == fetcher.store.url("/m") else None), target


def _for_the_store(fetcher: Fetcher, values: dict[str, str]) -> Credentials:
    return Credentials(values, (f"localhost:{fetcher.store.port}",))
