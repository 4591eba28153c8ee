"""Downloads against a real HTTP server that misbehaves."""

import errno
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.addresses import ALLOWED_HOSTS, AddressPolicy
from tailbound.fetch.download import Order, Retries, World, fetch
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.partial import Partial
from tailbound.fetch.source import TimeOuts

from tests.unit.fetch.faulty_store import (
    FaultyStore,
    Reply,
    cut_after,
    declaring,
    hang_up,
    running,
    stall_after,
    status,
    well,
    without_length,
    wrong_range,
)

CONTENT = random.Random(7).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = random.Random(8).randbytes(3_000_000)
HALF = len(CONTENT) // 2


@dataclass
class Fetcher:
    """A fetch of the store's file, with everything it said and every pause it made."""

    store: FaultyStore
    output: Path
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def world(self) -> World:
        return World(
            policy=AddressPolicy.from_env({ALLOWED_HOSTS: "localhost"}),
            time_outs=TimeOuts(connect_seconds=2, stall_seconds=0.3),
            retries=Retries(attempts=3, first_pause_seconds=1),
            emit=lambda event, **fields: self.lines.append((event, fields)),
            sleep=self.pauses.append,
            jitter=lambda: 0.0,
        )

    def run(self, *, path: str = "/model.onnx", sha256: str = SHA256, world: World | None = None) -> str:
        return fetch(Order(self.store.url(path), sha256, self.output), world or self.world)

    def fails(self, reason: TerminationReason, **arguments: object) -> str:
        with pytest.raises(FetchFailedError) as caught:
            self.run(**arguments)  # type: ignore[arg-type]
        assert caught.value.reason is reason
        return str(caught.value)

    def leftovers(self) -> set[str]:
        return {path.name for path in self.output.parent.iterdir()}


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    with running(CONTENT) as store:
        yield Fetcher(store, tmp_path / "model.onnx")


def test_a_file_is_fetched_verified_and_alone_in_its_folder(fetcher: Fetcher) -> None:
    message = fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert fetcher.leftovers() == {"model.onnx"}
    assert message == f"fetched 3.0 MB (3000000 bytes) from {fetcher.store.url()}, with the right sha256"
    assert fetcher.pauses == []


def test_a_body_without_a_length_is_fetched(fetcher: Fetcher) -> None:
    fetcher.store.replies.append(without_length)
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT


def test_a_present_file_with_the_right_digest_is_kept_without_a_request(fetcher: Fetcher) -> None:
    fetcher.output.write_bytes(CONTENT)
    assert "was here already" in fetcher.run()
    assert fetcher.store.requests == []


def test_a_present_file_with_another_digest_is_replaced(fetcher: Fetcher) -> None:
    fetcher.output.write_bytes(b"old")
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "fault",
    [cut_after(HALF), stall_after(HALF)],
    ids=["cut off", "stalled"],
)
def test_a_broken_download_goes_on_where_it_stopped(fetcher: Fetcher, fault: Reply) -> None:
    fetcher.store.replies.append(fault)
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert [request["Range"] for request in fetcher.store.requests] == [None, f"bytes={HALF}-"]
    assert fetcher.store.requests[1]["If-Range"] == '"v1"'
    assert fetcher.leftovers() == {"model.onnx"}


@pytest.mark.parametrize(
    ("etag", "last_modified", "asked"),
    [
        ('"v1"', "Sat, 01 Aug 2026 00:00:00 GMT", '"v1"'),
        ('W/"v1"', "Sat, 01 Aug 2026 00:00:00 GMT", "Sat, 01 Aug 2026 00:00:00 GMT"),
        (None, "Sat, 01 Aug 2026 00:00:00 GMT", "Sat, 01 Aug 2026 00:00:00 GMT"),
        ('W/"v1"', None, None),
        (None, None, None),
    ],
)
def test_only_a_strong_validator_allows_resuming(
    fetcher: Fetcher, etag: str | None, last_modified: str | None, asked: str | None
) -> None:
    fetcher.store.etag, fetcher.store.last_modified = etag, last_modified
    fetcher.store.replies.append(cut_after(HALF))
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert fetcher.store.requests[1]["If-Range"] == asked
    assert (fetcher.store.requests[1]["Range"] is None) == (asked is None)


def test_a_later_process_goes_on_with_what_an_earlier_one_left(fetcher: Fetcher) -> None:
    partial = Partial(fetcher.output, fetcher.store.url())
    partial.restart('"v1"')
    partial.append(CONTENT[:HALF])
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert [request["Range"] for request in fetcher.store.requests] == [f"bytes={HALF}-"]


def test_a_complete_partial_file_needs_no_request(fetcher: Fetcher) -> None:
    partial = Partial(fetcher.output, fetcher.store.url())
    partial.restart('"v1"')
    partial.append(CONTENT)
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert fetcher.store.requests == []


def test_a_partial_file_of_another_uri_is_not_used(fetcher: Fetcher) -> None:
    partial = Partial(fetcher.output, fetcher.store.url("/other"))
    partial.restart('"v1"')
    partial.append(OTHER[:HALF])
    fetcher.run()
    assert fetcher.store.requests[0]["Range"] is None


@pytest.mark.parametrize("meta", ["", "[]", "{}", '{"uri": 1}', "\x00\x00"])
def test_a_damaged_note_beside_a_partial_file_means_starting_over(fetcher: Fetcher, meta: str) -> None:
    partial = Partial(fetcher.output, fetcher.store.url())
    partial.restart('"v1"')
    partial.append(CONTENT[:HALF])
    fetcher.output.with_name("model.onnx.part.json").write_text(meta)
    fetcher.run()
    assert fetcher.store.requests[0]["Range"] is None
    assert fetcher.output.read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(fetcher: Fetcher) -> None:
    def change_then_cut(handler: object, store: FaultyStore) -> None:
        store.content = OTHER
        store.etag = '"v0"'
        cut_after(HALF)(handler, store)  # type: ignore[arg-type]
        store.content, store.etag = CONTENT, '"v1"'

    fetcher.store.replies.append(change_then_cut)
    fetcher.run()
    assert fetcher.store.requests[1]["If-Range"] == '"v0"'
    assert fetcher.output.read_bytes() == CONTENT
    assert len(fetcher.store.requests) == 2


def test_damaged_partial_bytes_cost_one_fresh_download(fetcher: Fetcher) -> None:
    partial = Partial(fetcher.output, fetcher.store.url())
    partial.restart('"v1"')
    partial.append(OTHER[:HALF])
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert [request["Range"] for request in fetcher.store.requests] == [f"bytes={HALF}-", None]


def test_starting_over_happens_once_only(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(HALF), well, cut_after(HALF), well])
    fetcher.store.content = OTHER
    fetcher.fails(TerminationReason.DIGEST_MISMATCH)
    assert len(fetcher.store.requests) == 4


def test_an_answer_with_another_range_is_not_appended(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(HALF), wrong_range])
    # The one byte of the wrong range is no whole file: its digest is wrong, and so is the answer.
    fetcher.fails(TerminationReason.DIGEST_MISMATCH)
    assert not fetcher.output.exists()


def test_a_refused_range_means_starting_over(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(HALF), status(416)])
    fetcher.run()
    assert [request["Range"] for request in fetcher.store.requests] == [None, f"bytes={HALF}-", None]


def test_a_wrong_digest_ends_it_at_once_and_names_both(fetcher: Fetcher) -> None:
    fetcher.store.content = OTHER
    message = fetcher.fails(TerminationReason.DIGEST_MISMATCH)
    assert SHA256 in message
    assert hashlib.sha256(OTHER).hexdigest() in message
    assert len(fetcher.store.requests) == 1
    assert fetcher.leftovers() == set()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (404, TerminationReason.SOURCE_NOT_FOUND),
        (410, TerminationReason.SOURCE_NOT_FOUND),
        (401, TerminationReason.SOURCE_FORBIDDEN),
        (403, TerminationReason.SOURCE_FORBIDDEN),
        (400, TerminationReason.SOURCE_UNREACHABLE),
        (204, TerminationReason.SOURCE_UNREACHABLE),
        (304, TerminationReason.SOURCE_UNREACHABLE),
        (302, TerminationReason.SOURCE_UNREACHABLE),
    ],
)
def test_a_final_status_ends_it_at_once(fetcher: Fetcher, code: int, reason: TerminationReason) -> None:
    fetcher.store.replies.append(status(code))
    message = fetcher.fails(reason)
    assert f"answered {code}" in message
    assert len(fetcher.store.requests) == 1
    assert fetcher.pauses == []


@pytest.mark.parametrize("fault", [*map(status, (500, 502, 503, 429, 408)), hang_up, cut_after(0)])
def test_a_blip_is_survived(fetcher: Fetcher, fault: Reply) -> None:
    fetcher.store.replies.extend([fault, fault])
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert fetcher.pauses == [1, 2]


def test_an_outage_ends_it_after_the_bound(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([status(503)] * 9)
    message = fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)
    assert message.endswith("answered 503 Service Unavailable (attempt 3 of 3 without progress)")
    assert len(fetcher.store.requests) == 3


def test_progress_renews_the_attempts(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(100_000)] * 8)
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert fetcher.pauses == [1] * 8


def test_retry_after_is_honoured_up_to_its_limit(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([status(503, Retry_After="7"), status(429, Retry_After="86400")])
    fetcher.run()
    assert fetcher.pauses == [7, 30]


@pytest.mark.parametrize(
    ("failed", "asked", "jitter", "pause"),
    [(1, None, 0, 1), (2, None, 0, 2), (3, None, 0, 4), (9, None, 0, 15), (3, None, 1, 2), (1, 9, 0.5, 9)],
)
def test_pauses_double_up_to_the_longest(
    failed: int, asked: float | None, jitter: float, pause: float
) -> None:
    assert Retries().pause_seconds(failed, asked, jitter) == pause


def test_an_unused_port_is_unreachable(fetcher: Fetcher) -> None:
    fetcher.store.port = 1
    assert "Connection refused" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


def test_an_unknown_name_is_unreachable(fetcher: Fetcher) -> None:
    order = Order("http://no-such-host.invalid/m", SHA256, fetcher.output)
    with pytest.raises(FetchFailedError, match="the name does not resolve") as caught:
        fetch(order, fetcher.world)
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE


def test_redirects_are_followed(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend(
        [status(302, Location="/moved"), status(308, Location=fetcher.store.url("/again"))]
    )
    fetcher.run()
    assert fetcher.store.paths == ["/model.onnx", "/moved", "/again"]
    assert fetcher.output.read_bytes() == CONTENT


def test_a_redirect_to_a_denied_address_is_refused(fetcher: Fetcher) -> None:
    # 127.0.0.1 is the same server, but not the allowed name.
    fetcher.store.replies.append(status(302, Location=f"http://127.0.0.1:{fetcher.store.port}/m"))
    message = fetcher.fails(TerminationReason.ADDRESS_DENIED)
    assert message.startswith("127.0.0.1 may not be fetched from: 127.0.0.1 is a loopback address.")
    assert ALLOWED_HOSTS in message
    assert len(fetcher.store.requests) == 1


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://0x7f000001/"]
)
def test_a_redirect_to_the_metadata_server_or_home_is_refused(fetcher: Fetcher, target: str) -> None:
    fetcher.store.replies.append(status(302, Location=target))
    fetcher.fails(TerminationReason.ADDRESS_DENIED)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://localhost/m", "gopher://localhost/"])
def test_a_redirect_to_another_scheme_is_refused(fetcher: Fetcher, target: str) -> None:
    fetcher.store.replies.append(status(302, Location=target))
    assert "only http and https" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


def test_a_redirect_loop_ends(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([status(302, Location="/model.onnx")] * 20)
    assert "more than 10 times" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://user:secret@localhost/m", "user or password"),
        ("http:///m", "names no host"),
        ("http://localhost:0/m", "port is 0"),
        ("http://localhost:99999/m", "malformed"),
        ("http://[::1/m", "malformed"),
        ("s3://bucket/m", "only http and https"),
        ("http://a..b/m", "label"),
    ],
)
def test_an_unusable_uri_is_refused_without_its_secrets(fetcher: Fetcher, uri: str, said: str) -> None:
    with pytest.raises(FetchFailedError, match=said) as caught:
        fetch(Order(uri, SHA256, fetcher.output), fetcher.world)
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE
    assert "secret" not in str(caught.value)


def test_a_signature_in_the_query_is_sent_but_not_shown(fetcher: Fetcher) -> None:
    path = "/a b/ü.onnx?sig=hidden%2F"
    message = fetcher.run(path=path)
    assert fetcher.store.paths == ["/a%20b/%C3%BC.onnx?sig=hidden%2F"]
    assert "hidden" not in message + str(fetcher.lines)


def test_the_connection_goes_to_the_address_that_was_checked(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that answers differently the second time (rebinding) is asked once only."""
    import socket

    asked: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    fetcher.run()
    assert asked == ["localhost"]


def test_a_denied_address_is_passed_over_for_an_allowed_one(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    tried: list[object] = []
    info = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("169.254.169.254", "192.0.2.9")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: info)

    def connect(self: socket.socket, address: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    world = replace(fetcher.world, policy=AddressPolicy.from_env({}), retries=Retries(attempts=1))
    fetcher.fails(TerminationReason.SOURCE_UNREACHABLE, world=world)
    assert tried == [("192.0.2.9", 80)]


def test_a_file_larger_than_the_disk_is_refused_before_a_byte_with_the_arithmetic(fetcher: Fetcher) -> None:
    fetcher.store.replies.append(declaring(10**13))
    world = replace(fetcher.world, free_bytes=lambda _: 4 * 10**9)
    message = fetcher.fails(TerminationReason.INSUFFICIENT_STORAGE, world=world)
    assert "has 10.0 TB (10000000000000 bytes)" in message
    assert "has 4.0 GB (4000000000 bytes) free" in message
    assert "10.0 TB (9996000000000 bytes) short" in message
    assert fetcher.leftovers() == set()


def test_a_real_disk_refuses_ten_terabytes(fetcher: Fetcher) -> None:
    fetcher.store.replies.append(declaring(10**13))
    fetcher.fails(TerminationReason.INSUFFICIENT_STORAGE)


def test_space_is_checked_again_on_the_way(fetcher: Fetcher) -> None:
    free = iter([4 * 10**9, *[100] * 99])
    world = replace(fetcher.world, free_bytes=lambda _: next(free))
    assert "100 bytes free" in fetcher.fails(TerminationReason.INSUFFICIENT_STORAGE, world=world)
    assert fetcher.leftovers() == set()


@pytest.mark.parametrize("reply", [well, without_length])
def test_a_full_disk_ends_it_and_gives_the_space_back(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    def full(self: Partial, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fetcher.store.replies.append(reply)
    monkeypatch.setattr(Partial, "append", full)
    fetcher.fails(TerminationReason.INSUFFICIENT_STORAGE)
    assert fetcher.leftovers() == set()


def test_progress_is_reported_by_tenths(fetcher: Fetcher) -> None:
    fetcher.run()
    reports = [fields for event, fields in fetcher.lines if event == "fetching"]
    assert 1 <= len(reports) <= 11
    assert reports[-1]["percent"] == 100
    assert reports[-1]["total_bytes"] == len(CONTENT)
    assert json.dumps(reports)


def test_proxy_variables_are_not_honoured(fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
