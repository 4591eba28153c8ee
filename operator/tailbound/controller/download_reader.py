"""Asks pods that download a model how far they are, for the condition of their service.

One pod of a service is asked each 10 s, and only while no pod of its revision has the model. The progress of
the pod that has most of it reaches the decision when another tenth is there, so that a download costs at most
ten writes of a status, however long it takes and however many pods a revision has. What a pod answers is
bounded in time and bytes.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from tailbound.kube.objects import Key
from tailbound.objects.download import DownloadProgress, download_in
from tailbound.reconcile.model import DownloadRequest

PERIOD_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 2.0
LONGEST_ANSWER: Final = 4096
_AT_ONCE: Final = 50


class DownloadClient:
    """GETs the progress of one pod."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, url: str) -> DownloadProgress | None:
        """What this pod reports; None where it reports nothing, or is not reached."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            )
        try:
            # The time runs for one pod: to wait for those before it costs none of it.
            async with self._slots, self._session.get(url, allow_redirects=False) as response:
                return download_in(json.loads(await _body(response)))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
            return None

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body. Raises ValueError if it is too long."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LONGEST_ANSWER:
            raise ValueError("the answer is no report")
    return bytes(body)


@dataclass
class _Download:
    """One service whose download is followed."""

    request: DownloadRequest
    published: DownloadProgress | None = None
    rounds: int = 0
    answers: dict[str, DownloadProgress] = field(default_factory=dict)
    """The newest progress of each pod, by URL."""

    @property
    def next_url(self) -> str:
        """Another pod each time: one may wait for another to fill a volume, and report nothing."""
        return self.request.urls[self.rounds % len(self.request.urls)]

    def take_in(self, url: str, answer: DownloadProgress | None) -> bool:
        """Take in the answer of a pod, None if it gave none. Returns whether there is news to publish."""
        self.rounds += 1
        if answer is not None:
            self.answers[url] = answer
        known = [self.answers[each] for each in self.request.urls if each in self.answers]
        furthest = max(known, key=lambda each: each.done, default=None)
        if furthest is None or not furthest.is_news_after(self.published):
            return False
        self.published = furthest
        return True


@dataclass
class DownloadReader:
    """The downloads that services want to be followed. `changed(key)` is called with each news."""

    read: Callable[[str], Awaitable[DownloadProgress | None]]
    changed: Callable[[Key], None]
    period_seconds: float = PERIOD_SECONDS
    _followed: dict[Key, _Download] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self, key: Key) -> Mapping[str, DownloadProgress]:
        """The newest progress that was published of the service's download, by revision."""
        followed = self._followed.get(key)
        if followed is None or followed.published is None:
            return {}
        return {followed.request.revision: followed.published}

    def expect(self, key: Key, request: DownloadRequest | None) -> None:
        """Follow this download of the service, or none."""
        if request is None:
            self._followed.pop(key, None)
            return
        before = self._followed.get(key)
        if before is not None and before.request.revision == request.revision:
            before.request = request
            return
        self._followed[key] = _Download(request)
        self._wake.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._wake.clear()
            if not self._followed:
                await self._wake.wait()
            await asyncio.sleep(self.period_seconds)
            await self.round()

    async def round(self) -> None:
        """Ask once about every download."""
        await asyncio.gather(*(self._ask(key, each) for key, each in list(self._followed.items())))

    async def _ask(self, key: Key, download: _Download) -> None:
        url = download.next_url
        news = download.take_in(url, await self.read(url))
        if news and self._followed.get(key) is download:
            self.changed(key)
