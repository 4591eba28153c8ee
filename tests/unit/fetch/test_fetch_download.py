"""Downloads against a real HTTP server that misbehaves."""

import errno
import hashlib
import json
from dataclasses import replace

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch.download import DownloadLimits, Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch
from tailbound.fetch.partial import Partial

from tests.unit.fetch.faulty_store import (
    FaultyStore,
    Reply,
    cut_after,
    declaring,
    hang_up,
    in_chunks,
    short_range,
    stall_after,
    status,
    well,
    without_length,
    wrong_range,
)
from tests.unit.fetch.fetcher import CONTENT, HALF, LOCALHOST, OTHER, SHA256, Fetcher


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


def test_a_body_whose_end_no_server_states_is_no_model_without_a_digest(fetcher: Fetcher) -> None:
    order = FetchRequest(fetcher.store.url(), None, fetcher.output, resolve=True)
    fetcher.store.replies.append(without_length)
    with pytest.raises(FetchFailedError, match=r"a part of it would look whole.*spec\.model\.sha256"):
        fetch(order, LOCALHOST, fetcher.world)
    fetcher.store.replies.extend([in_chunks(HALF), in_chunks(len(CONTENT))])
    assert fetch(order, LOCALHOST, fetcher.world).sha256 == SHA256


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
    fetcher.run()
    assert fetcher.output.read_bytes() == CONTENT
    assert [request["Range"] for request in fetcher.store.requests] == [None, f"bytes={HALF}-", None]


def test_a_shorter_range_than_the_one_asked_for_is_not_the_rest(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(HALF), short_range])
    order = FetchRequest(fetcher.store.url(), None, fetcher.output, resolve=True)
    assert fetch(order, LOCALHOST, fetcher.world).sha256 == SHA256
    asked = [request["Range"] for request in fetcher.store.requests]
    assert asked == [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]


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


def test_a_server_that_breaks_off_and_gives_other_ranges_each_time_is_given_up(fetcher: Fetcher) -> None:
    fetcher.store.replies.extend([cut_after(HALF), wrong_range] * 5)
    assert "attempt 3 of 3 without progress" in fetcher.fails(TerminationReason.SOURCE_UNREACHABLE)


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


@pytest.mark.parametrize("reply", [well, without_length], ids=["said-before", "found-out"])
def test_a_file_above_the_storage_of_the_pod_is_refused(fetcher: Fetcher, reply: Reply) -> None:
    fetcher.store.replies.append(reply)
    world = replace(fetcher.world, limits=DownloadLimits(total_bytes=2_000_000))
    message = fetcher.fails(TerminationReason.INSUFFICIENT_STORAGE, world=world)
    assert "the pod may store 2.0 MB (2000000 bytes): raise spec.resources.ephemeralStorage" in message
    assert fetcher.leftovers() == set()


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbf \n<!DOCTYPE html><title>Sign in</title>", b"<html><form action=login>"],
)
def test_a_page_to_sign_in_is_named_as_what_it_is(fetcher: Fetcher, content: bytes) -> None:
    fetcher.store.content = content
    message = fetcher.fails(TerminationReason.NOT_A_MODEL)
    assert f"answered with a page of a web site (no content type, {len(content)} bytes)" in message
    assert SHA256 not in message
    assert fetcher.leftovers() == set()
