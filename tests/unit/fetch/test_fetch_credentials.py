"""Secrets are sent to the hosts that they list, and to no other."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.credentials import Credentials
from tailbound.fetch.failures import FetchFailedError

from tests.unit.fetch.faulty_store import status
from tests.unit.fetch.fetcher import LOCALHOST, Fetcher

TOKEN = Credentials({"token": "s3cret"}, ("localhost",))


@pytest.mark.parametrize(
    ("listed", "host", "meant"),
    [
        ("models.example.com", "MODELS.example.com.", True),
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
def test_hosts_of_a_secret(tmp_path: Path, listed: str, host: str, meant: bool) -> None:
    (tmp_path / "hosts").write_text(listed + "\n")
    assert Credentials.read(tmp_path).meant_for(host) is meant


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "does not exist, or is empty"),
        ({}, "does not exist, or is empty"),
        ({"token": b"x"}, "has no key 'hosts'"),
        ({"token": b"x", "hosts": b" , "}, "has no key 'hosts'"),
        ({"token": b"\xff\xfe", "hosts": b"localhost"}, "has a key 'token' that is no text"),
        ({"token": b"x" * 70_000, "hosts": b"localhost"}, "of more than 65536 bytes"),
    ],
    ids=["missing", "empty", "no-hosts", "blank-hosts", "binary", "huge"],
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
    fetcher.run(access=replace(LOCALHOST, credentials=Credentials(values, ("localhost",))))
    assert fetcher.store.requests[0]["Authorization"] == header


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (replace(TOKEN, hosts=("models.example.com",)), "is not for localhost"),
        (replace(TOKEN, values={"AWS_ACCESS_KEY_ID": "x"}), "needs hosts and either token, or username"),
        (replace(TOKEN, values={"username": "me"}), "lacks the key 'password'"),
    ],
    ids=["another-host", "of-another-kind", "half"],
)
def test_credentials_that_do_not_fit_are_not_sent(
    fetcher: Fetcher, credentials: Credentials, said: str
) -> None:
    access = replace(LOCALHOST, credentials=credentials)
    assert said in fetcher.fails(TerminationReason.CREDENTIALS_REFUSED, access=access)
    assert fetcher.store.requests == []


def test_credentials_are_not_sent_over_plain_http_to_the_internet(fetcher: Fetcher) -> None:
    opened = AddressPolicy.from_env({})
    access = replace(LOCALHOST, policy=opened, credentials=TOKEN)
    assert "over plain http" in fetcher.fails(TerminationReason.CREDENTIALS_REFUSED, access=access)


def test_credentials_do_not_follow_a_redirect_to_another_host(fetcher: Fetcher) -> None:
    both = AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: "localhost,127.0.0.1"})
    for target in (f"http://127.0.0.1:{fetcher.store.port}/m", f"http://localhost:{fetcher.store.port}/m"):
        fetcher.store.replies.append(status(302, Location=target))
        fetcher.run(access=replace(LOCALHOST, policy=both, credentials=TOKEN))
        fetcher.output.unlink()
    sent = [request["Authorization"] for request in fetcher.store.requests]
    assert sent == ["Bearer s3cret", None, "Bearer s3cret", "Bearer s3cret"]
