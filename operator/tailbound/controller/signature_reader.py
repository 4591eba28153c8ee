"""Asks serving pods for the inputs and outputs of their model, while a rollout compares two of them.

What a pod answers comes from a stranger: it is bounded in time and bytes, no redirect is followed, and only
what has the form of metadata is kept.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aiohttp

from tailbound.kube.objects import Key
from tailbound.objects.signature import ModelSignature, signature_in
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import SignatureRequest

TIMEOUT_SECONDS: Final = 2.0
LONGEST_ANSWER: Final = 256 * 1024
ATTEMPTS: Final = 3
"""A pod that has just become ready may not be reached at once."""
PAUSE_SECONDS: Final = 1.0
_LONGEST_REASON: Final = 300

Answer: TypeAlias = ModelSignature | Unknown


class UnreachedError(Exception):
    """The pod has not answered, and another attempt may help; the text says why it has not."""


class MetadataClient:
    """GETs the metadata of a model."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str) -> Answer:
        """What this pod states. Raises UnreachedError."""
        try:
            async with self._open().get(url, allow_redirects=False) as response:
                if response.status != 200:
                    return Unknown(f"its server answers GET {response.url.path} with {response.status}")
                return _signature(await _body(response))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachedError(_words(error)) from error

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Without a limit of connections: pods that do not answer would hold up the questions to others.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session


async def _body(response: aiohttp.ClientResponse) -> bytes | Unknown:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LONGEST_ANSWER:
            return Unknown(f"its server answers with more than {LONGEST_ANSWER} bytes of metadata")
    return bytes(body)


def _words(error: Exception) -> str:
    """The error in ASCII; it may quote what the server has sent."""
    text = str(error).encode("ascii", "backslashreplace").decode()
    return text[:_LONGEST_REASON] or type(error).__name__


def _signature(body: bytes | Unknown) -> Answer:
    if isinstance(body, Unknown):
        return body
    try:
        return signature_in(json.loads(body))
    except (ValueError, RecursionError):
        return Unknown("its server answers with metadata that are no JSON")


@dataclass
class Question:
    """One revision that is asked for."""

    urls: tuple[str, ...]
    attempts: int = 0
    answer: Answer | None = None

    @property
    def next_url(self) -> str:
        """Another pod at each attempt, as far as there are others."""
        return self.urls[self.attempts % len(self.urls)]

    def missed(self, why: str) -> None:
        """Count an attempt without an answer; after the last one, there will be none."""
        self.attempts += 1
        if self.attempts == ATTEMPTS:
            self.answer = Unknown(
                f"its pods are not reached at {self.urls[0]} ({why}): NetworkPolicies must let the operator "
                "reach the port http of serving pods"
            )


@dataclass
class SignatureReader:
    """The answers of the revisions that services ask about; no pod is asked for what is known.

    `changed(key)` is called with each answer, and when there will be none.
    """

    read: Callable[[str], Awaitable[Answer]]
    changed: Callable[[Key], None]
    pause_seconds: float = PAUSE_SECONDS
    _asked: dict[Key, dict[str, Question]] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def view(self, key: Key) -> Mapping[str, Answer]:
        """The answers by revision; nothing while a revision is asked."""
        asked = self._asked.get(key, {})
        return {revision: each.answer for revision, each in asked.items() if each.answer is not None}

    def expect(self, key: Key, requests: tuple[SignatureRequest, ...]) -> None:
        """Ask about these revisions, and forget the answers about others."""
        if not requests:
            self._asked.pop(key, None)
            return
        before, asked = self._asked.get(key, {}), {}
        for each in requests:
            asked[each.revision] = before.get(each.revision, Question(each.urls))
            asked[each.revision].urls = each.urls
        self._asked[key] = asked
        if asked.keys() - before.keys():
            self._wake.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._wake.clear()
            if not await self.round():
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(self.pause_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def round(self) -> bool:
        """Ask once about every revision without an answer; whether some are left."""
        due = [
            (key, each)
            for key, asked in self._asked.items()
            for each in asked.values()
            if each.answer is None
        ]
        await asyncio.gather(*(self._ask(key, each) for key, each in due))
        return any(each.answer is None for _, each in due)

    async def _ask(self, key: Key, question: Question) -> None:
        try:
            question.answer = await self.read(question.next_url)
        except UnreachedError as error:
            question.missed(str(error))
        if question.answer is not None:
            self.changed(key)
