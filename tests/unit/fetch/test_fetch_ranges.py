"""Large files over several connections: faster than one, complete, in constant memory, and polite."""

import random
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import TerminationReason
from tailbound.fetch import ranges
from tailbound.fetch.download import Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import FetchRequest, fetch

from tests.unit.fetch.faulty_store import FaultyStore, cut_after, running, status
from tests.unit.fetch.fetcher import LOCALHOST
from tests.unit.fetch.test_fetch_mounted import WORLD

BLOCK = 64 * 1024
CONTENT = random.Random(3).randbytes(40 * BLOCK + 17)
DIGEST = sha256(CONTENT).hexdigest()
FAST = replace(WORLD, sleep=lambda _: None)


@dataclass
class Ranged:
    """A reply of a store with ranges, which may be slow and may fail."""

    bytes_per_second: float = 0
    """Rate of each connection; 0: without a limit."""
    ignores: bool = False
    of_any_version: bool = False
    """It does not know If-Range, and gives a range of the version that there is."""
    silent: bool = False
    """It does not say of which version a range is."""
    fails: Callable[[int], int] = field(default=lambda _: 0)
    """The status instead of the n-th range; 0: it is given."""
    together: Counter[str] = field(default_factory=Counter)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        store.replies.append(self)
        first, last = self._asked(handler, store)
        with self._lock:
            self.ranges.append((first, last))
            failure = self.fails(len(self.ranges))
        if failure:
            status(failure, Retry_After="1")(handler, store)
        else:
            self._send(handler, store, first, last)

    def _count(self, change: int) -> None:
        with self._lock:
            self.together["now"] += change
            self.together["most"] = max(self.together["most"], self.together["now"])

    def _asked(self, handler: BaseHTTPRequestHandler, store: FaultyStore) -> tuple[int, int]:
        asked = handler.headers.get("Range", "")
        same = self.of_any_version or handler.headers["If-Range"] in (store.etag, store.last_modified)
        if not asked or self.ignores or not same:
            return 0, len(store.content) - 1
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return int(first), int(last) if last else len(store.content) - 1

    def _send(self, handler: BaseHTTPRequestHandler, store: FaultyStore, first: int, last: int) -> None:
        whole = len(store.content)
        part = last - first + 1 < whole
        handler.send_response(206 if part else 200)
        handler.send_header("Content-Length", str(last - first + 1))
        for name, said in (("ETag", store.etag), ("Last-Modified", store.last_modified)):
            if said is not None and not (part and self.silent):
                handler.send_header(name, said)
        handler.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        handler.end_headers()
        self._count(1)
        for at in range(first, last + 1, BLOCK // 4):
            piece = store.content[at : min(at + BLOCK // 4, last + 1)]
            if self.bytes_per_second:
                time.sleep(len(piece) / self.bytes_per_second)
            if at + len(piece) > last:
                # The client asks for its next range as soon as it has these bytes.
                self._count(-1)
            handler.wfile.write(piece)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    monkeypatch.setattr(ranges, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr("tailbound.fetch.download.LEAST_BYTES", 8 * BLOCK)
    with running(CONTENT) as store:
        yield store


def run(store: FaultyStore, folder: Path, name: str = "model.onnx", attempts: int = 3) -> bytes:
    order = FetchRequest(store.url(), DIGEST, folder / name)
    fetch(order, LOCALHOST, replace(FAST, retries=Retries(attempts=attempts)))
    return order.output.read_bytes()


def test_a_large_file_comes_over_several_connections_and_a_small_one_over_one(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = {}
    for name, least in (("several", 8 * BLOCK), ("one", 1 << 40)):
        monkeypatch.setattr("tailbound.fetch.download.LEAST_BYTES", least)
        reply = Ranged(bytes_per_second=len(CONTENT) / 1.2)
        store.replies.clear()
        store.replies.append(reply)
        assert run(store, tmp_path, name) == CONTENT
        most[name] = reply.together["most"]
    # The first response still ends while the others begin.
    assert 1 < most["several"] <= ranges.CONNECTIONS + 1
    assert most["one"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        Ranged(fails=lambda n: 429 if n in (3, 4, 9) else 0),
        Ranged(fails=lambda n: 503 if n % 2 else 0),
        Ranged(ignores=True),
    ],
    ids=["too-many-requests", "half-of-them-fail", "no-ranges"],
)
def test_a_source_that_refuses_ranges_for_now_or_for_ever_gives_the_file_all_the_same(
    store: FaultyStore, tmp_path: Path, reply: Ranged
) -> None:
    store.replies.append(reply)
    assert run(store, tmp_path, attempts=30) == CONTENT


def test_a_source_that_fails_for_good_is_given_up_and_what_came_is_kept(
    store: FaultyStore, tmp_path: Path
) -> None:
    store.replies.append(Ranged(fails=lambda n: 500 if n > 12 else 0))
    with pytest.raises(FetchFailedError, match="500") as caught:
        run(store, tmp_path)
    assert caught.value.reason is TerminationReason.SOURCE_UNREACHABLE
    kept = (tmp_path / "model.onnx.part").read_bytes()
    assert kept and CONTENT.startswith(kept)
    again = Ranged()
    store.replies.clear()
    store.replies.append(again)
    assert run(store, tmp_path) == CONTENT
    assert min(first for first, _ in again.ranges) == len(kept)


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "yet to be found"])
@pytest.mark.parametrize("least", [8 * BLOCK, 1 << 40], ids=["several", "one"])
@pytest.mark.parametrize("of_any_version", [False, True], ids=["knows If-Range", "does not"])
def test_a_file_that_changes_meanwhile_is_begun_again(
    store: FaultyStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_any_version: bool,
    least: int,
    pinned: bool,
) -> None:
    monkeypatch.setattr("tailbound.fetch.download.LEAST_BYTES", least)
    old = random.Random(4).randbytes(len(CONTENT))
    store.content, store.etag = old, '"old"'

    def changes(n: int) -> int:
        if n == (12 if least == 8 * BLOCK else 1):
            store.content, store.etag = CONTENT, '"new"'
        return 0

    if least > 8 * BLOCK:
        store.replies.append(cut_after(10 * BLOCK))
    store.replies.append(Ranged(fails=changes, of_any_version=of_any_version))
    order = FetchRequest(store.url(), DIGEST if pinned else None, tmp_path / "model.onnx", resolve=not pinned)
    assert fetch(order, LOCALHOST, FAST).sha256 == DIGEST
    assert order.output.read_bytes() == CONTENT


LONG_AGO, LATER = formatdate(1e9, usegmt=True), formatdate(1.1e9, usegmt=True)


@pytest.mark.parametrize(
    ("before", "after", "longer", "silent"),
    [
        (('"1"', None), ('"2"', None), False, True),
        (('"1"', None), ('"1"', None), True, False),
        (('W/"1"', None), ('W/"1"', None), False, False),
        ((None, LONG_AGO), (None, LATER), False, False),
        ((None, LONG_AGO), (None, LATER), False, True),
        ((None, "now"), (None, "now"), False, False),
        ((None, None), (None, None), False, False),
    ],
    ids=[
        *("etag that ranges do not state", "etag of any version, another length", "weak etag", "date"),
        *("date that ranges do not state", "date of two versions", "nothing"),
    ],
)
def test_no_digest_is_found_of_two_versions_whatever_a_server_says_of_them(
    store: FaultyStore,
    tmp_path: Path,
    before: tuple[str | None, str | None],
    after: tuple[str | None, str | None],
    longer: bool,
    silent: bool,
) -> None:
    now = formatdate(usegmt=True)
    said = [tuple(now if each == "now" else each for each in pair) for pair in (before, after)]
    versions = (random.Random(4).randbytes(len(CONTENT)), CONTENT + b"more" * longer)
    store.content, (store.etag, store.last_modified) = versions[0], said[0]

    def changes(n: int) -> int:
        if n == 5:
            store.content, (store.etag, store.last_modified) = versions[1], said[1]
        return 503 if n in (2, 5) else 0

    store.replies.extend([cut_after(10 * BLOCK), Ranged(fails=changes, of_any_version=True, silent=silent)])
    order = FetchRequest(store.url(), None, tmp_path / "model.onnx", resolve=True)
    found = fetch(order, LOCALHOST, FAST).sha256
    assert found in [sha256(version).hexdigest() for version in versions]
    assert sha256(order.output.read_bytes()).hexdigest() == found


def test_a_connection_that_breaks_within_a_range_goes_on_within_it(
    store: FaultyStore, tmp_path: Path
) -> None:
    good, seen = Ranged(), []

    def breaks(handler: BaseHTTPRequestHandler, store: FaultyStore) -> None:
        store.replies.append(breaks)
        seen.append(handler.headers.get("Range"))
        if len(seen) == 3:
            cut_after(0)(handler, store)
            return
        store.replies.pop()
        good(handler, store)
        store.replies.pop()
        store.replies.append(breaks)

    store.replies.append(breaks)
    assert run(store, tmp_path) == CONTENT


def test_memory_does_not_grow_with_the_file(store: FaultyStore, tmp_path: Path) -> None:
    store.replies.append(Ranged())
    tracemalloc.start()
    try:
        assert run(store, tmp_path) == CONTENT
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(CONTENT) + 24 * BLOCK  # the comparison reads the file once
