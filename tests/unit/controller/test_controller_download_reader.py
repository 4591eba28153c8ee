"""Downloads that are followed: whom the operator asks, and which answers lead to a decision."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tailbound.controller import download_reader
from tailbound.controller.download_reader import LONGEST_ANSWER, DownloadClient, DownloadReader
from tailbound.fetch.reporting import ProgressReport
from tailbound.kube.objects import Key
from tailbound.objects.download import DownloadProgress
from tailbound.reconcile.model import DownloadRequest

KEY = ("risk", "churn")
REQUEST = DownloadRequest("r1", ("http://a", "http://b"))
GB = 10**9


def at(percent: int) -> DownloadProgress:
    return DownloadProgress(percent * GB // 10, 10 * GB, GB)


class Pods:
    """Answers one question after the other."""

    def __init__(self, *answers: DownloadProgress | None) -> None:
        self.answers: Iterator[DownloadProgress | None] = iter(answers)
        self.asked, self.changed = list[str](), list[Key]()
        self.reader = DownloadReader(self.read, self.changed.append)

    @property
    def published(self) -> DownloadProgress | None:
        """The download of the one revision that is followed."""
        return next(iter(self.reader.view(KEY).values()), None)

    async def read(self, url: str) -> DownloadProgress | None:
        self.asked.append(url)
        return next(self.answers)


async def test_another_tenth_is_news_and_what_one_pod_does_not_know_another_is_asked() -> None:
    pods = Pods(None, at(11), at(19), at(20), at(5), None)
    pods.reader.expect(KEY, REQUEST)
    seen = []
    for _ in range(6):
        await pods.reader.round()
        seen.append(pods.published)
    assert seen == [None, at(11), at(11), at(20), at(20), at(20)]
    assert pods.asked == ["http://a", "http://b"] * 3
    assert pods.changed == [KEY] * 2


async def test_pods_that_are_at_different_places_make_no_news_of_each_other() -> None:
    pods = Pods(*(at(percent) for step in range(100) for percent in (step // 10, 40 + step // 10)))
    pods.reader.expect(KEY, REQUEST)
    for _ in range(200):
        await pods.reader.round()
    assert (pods.published, pods.changed) == (at(40), [KEY] * 2)


async def test_a_download_that_begins_again_is_news() -> None:
    pods = Pods(at(60), at(5))
    pods.reader.expect(KEY, DownloadRequest("r1", ("http://a",)))
    for _ in range(2):
        await pods.reader.round()
    assert (pods.published, pods.changed) == (at(5), [KEY] * 2)


async def test_a_download_costs_ten_writes_however_often_a_pod_is_asked() -> None:
    pods = Pods(*(at(percent // 10) for percent in range(1000)))
    pods.reader.expect(KEY, REQUEST)
    for _ in range(1000):
        await pods.reader.round()
    assert len(pods.changed) == 10


async def test_what_is_no_longer_wanted_is_forgotten_also_while_it_is_asked() -> None:
    pods = Pods(at(50), at(60))
    pods.reader.expect(KEY, REQUEST)
    await pods.reader.round()
    pods.reader.expect(KEY, DownloadRequest("r1", ("http://c",)))
    assert pods.reader.view(KEY) == {"r1": at(50)}
    asking = asyncio.create_task(pods.reader.round())
    await asyncio.sleep(0)
    pods.reader.expect(KEY, None)
    await asking
    assert pods.published is None
    pods.reader.expect(KEY, DownloadRequest("r2", ("http://d",)))
    assert pods.published is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"bytes": 5, "total_bytes": 10, "bytes_per_second": 2}, DownloadProgress(5, 10, 2)),
        ({"bytes": 5}, DownloadProgress(5, None, None)),
        ({}, None),
        ([1], None),
        ({"bytes": -1}, None),
        ({"bytes": 11, "total_bytes": 10}, None),
        ({"bytes": "5"}, None),
        ({"bytes": 5, "more": "x" * LONGEST_ANSWER}, None),
        ({"bytes": 10**400}, None),
        ({"bytes": 5, "total_bytes": 10**400}, None),
        ({"bytes": 5, "bytes_per_second": 10**400}, DownloadProgress(5, None, None)),
    ],
    ids=[
        *("whole", "no total", "nothing yet", "no object", "negative", "too many", "text", "too long"),
        *("bytes beyond floats", "total beyond floats", "rate beyond floats"),
    ],
)
async def test_only_what_has_the_form_of_progress_is_kept(
    answer: Any, expected: DownloadProgress | None
) -> None:
    async def get(_: web.Request) -> web.Response:
        return web.json_response(answer)

    app = web.Application()
    app.router.add_get("/", get)
    client = DownloadClient()
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        assert await client(url) == expected
    assert await client(url) is None
    await client.close()


async def test_pods_that_do_not_answer_cost_the_others_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_reader, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(download_reader, "_AT_ONCE", 2)

    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError

    async def split(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"by', b'tes": 5}'):
            await response.write(part)
            await asyncio.sleep(0.01)
        return response

    app = web.Application()
    app.router.add_get("/never", never)
    app.router.add_get("/split", split)
    client = DownloadClient()
    async with TestServer(app) as server:
        asked = [client(str(server.make_url(path))) for path in ["/never"] * 8 + ["/split"]]
        *silent, found = await asyncio.gather(*asked)
    assert (set(silent), found) == ({None}, DownloadProgress(5, None, None))
    await client.close()


async def test_a_fetch_container_reports_its_newest_line_of_progress() -> None:
    lines: list[str] = []
    report, client = ProgressReport(lambda event, **_: lines.append(event)), DownloadClient()
    report.serve(0)
    url = f"http://localhost:{report.port}/"
    assert await client(url) is None
    report.emit("fetching", bytes=5, total_bytes=10, bytes_per_second=2)
    report.emit("verifying", bytes=7)
    assert await client(url) == DownloadProgress(5, 10, 2)
    assert lines == ["fetching", "verifying"]
    ProgressReport(report.emit).serve(report.port)
    await client.close()


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            DownloadProgress(42 * GB // 10, 10 * GB, 110_000_000),
            "4.2 GB of 10 GB (42 %), 110 MB/s, about 52s left",
        ),
        (DownloadProgress(5, 10, None), "5 B of 10 B (50 %)"),
        (DownloadProgress(5000, None, 10), "5 kB, 10 B/s"),
        (DownloadProgress(0, 0, 0), "0 B"),
    ],
    ids=["whole", "no rate", "no total", "empty"],
)
def test_progress_in_words(progress: DownloadProgress, text: str) -> None:
    assert progress.text == text
