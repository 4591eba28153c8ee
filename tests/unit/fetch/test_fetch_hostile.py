"""Whatever a server answers, a fetch ends with the right model or with a reason, and never otherwise."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.dial import TimeOuts
from tailbound.fetch.download import Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch

from tests.unit.fetch.faulty_store import FaultyStore, Reply
from tests.unit.fetch.fetcher import CONTENT, LOCALHOST, SHA256, Fetcher

NUMBERS = ("", "0", "-1", "+5", "0x10", "5 000", "²", "٣", "1e9", "nan", "9" * 30, "9" * 4000, "9" * 5000)
PLACES = (
    *("//", "http://", "?", "#", "http://[bad", "http://[::1", "http://localhost:x/", "http://localhost:0/"),
    *("http://localhost:99999/", "http://a..b/", "http://user:pw@localhost/", "javascript:1", "\xe9", " "),
    *("http://localhost:PORT/a b", "http://localhost:PORT/%", "http://localhost:PORT/\xff", "x" * 60_000),
)
HEADERS = {
    "Content-Length": NUMBERS,
    "Content-Range": (*(f"bytes 0-9/{number}" for number in NUMBERS), "bytes", "/", "bytes */5", "0-"),
    "Retry-After": (*NUMBERS, "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"),
    "ETag": ("", '"', 'W/"x"', '"\xe9"', '"' + "x" * 60_000 + '"'),
    "Last-Modified": ("", "yesterday"),
    "Transfer-Encoding": ("gzip", "chunked, gzip"),
    "Location": PLACES,
}
STATUSES = {"Location": (302,), "Retry-After": (429,)}


def answer(status: int, header: str, value: str) -> Reply:
    """An answer with one header that a server does not mean well, and some of the bytes of the file."""

    def reply(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        said = value.replace("PORT", str(store.port)).encode("latin-1", "ignore")
        head = b"HTTP/1.1 %d Said\r\n%s: %s\r\n\r\n" % (status, header.encode(), said)
        handler.wfile.write(head + store.content[:1000])
        handler.close_connection = True

    return reply


def answers() -> Iterator[Reply]:
    for header, values in HEADERS.items():
        for value in values:
            yield from (answer(status, header, value) for status in STATUSES.get(header, (200, 206)))


def test_a_fetch_ends_with_the_right_model_or_with_a_reason(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context()
    monkeypatch.setattr(ssl, "create_default_context", lambda: context)
    world = replace(fetcher.world, retries=Retries(attempts=3), time_outs=TimeOuts(1, 0.2))
    fetcher.store.content = CONTENT[:5000]
    order = FetchRequest(fetcher.store.url(), None, fetcher.output, resolve=True)
    for number, reply in enumerate(answers()):
        fetcher.store.replies.clear()
        fetcher.store.replies.append(reply)
        try:
            fetch(order if number % 2 else replace(order, sha256=SHA256), LOCALHOST, world)
        except FetchFailedError as error:
            assert len(str(error)) < 130_000


@pytest.mark.parametrize("size", ["9" * 30, "9" * 5000])
def test_a_size_that_no_file_has_is_named(fetcher: Fetcher, size: str) -> None:
    for reply in (
        answer(200, "Content-Length", size[:4000]),
        answer(206, "Content-Range", f"bytes 0-9/{size}"),
    ):
        fetcher.store.replies.append(reply)
        assert "states a size that no file has" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


def test_a_file_that_comes_compressed_is_no_model_and_its_digest_none(
    fetcher: Fetcher, tmp_path: Path
) -> None:
    def compressed(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", "9")
        handler.end_headers()
        handler.wfile.write(b"\x1f\x8b1234567")

    fetcher.store.replies.append(compressed)
    assert "9 bytes, Content-Encoding gzip" in fetcher.fails(TerminationReason.DIGEST_MISMATCH)
    fetcher.store.replies.append(compressed)
    order = FetchRequest(fetcher.store.url(), None, fetcher.output, resolve=True)
    with pytest.raises(FetchFailedError, match=r"came compressed \(Content-Encoding gzip\)") as caught:
        fetch(order, LOCALHOST, fetcher.world)
    assert caught.value.reason is TerminationReason.NOT_A_MODEL
