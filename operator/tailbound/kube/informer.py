"""Keeps a store equal to the API server: list, watch with bookmarks, and list again every few minutes.

The periodic list is no luxury: a watch that was restarted after 410 never tells what was deleted meanwhile,
and one from a version that an etcd restored from a backup has yet to reach tells nothing until then.
"""

import asyncio
import random
import time
from collections.abc import Callable

from tailbound.kube.errors import Expired, KubeError, NotServed, Transient
from tailbound.kube.objects import Key, key_of
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import Resource
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject

FIRST_BACKOFF_SECONDS = 0.2
LAST_BACKOFF_SECONDS = 30.0


class Informer:
    """Runs until cancelled. `synced` is set after the first full list.

    `on_heard` is called after each list and each event, with the number of differences that only a list has
    found; 0 after an event. Objects that do not `belong`, or do no more, are as if they were not there.
    A kind that the API server does not serve is an error, unless `on_served` is there to hear whether it
    does: then there are none of it, until a later list finds that it is served.
    """

    def __init__(  # noqa: PLR0913 - time and chance are parameters
        self,
        cluster: KubeClient,
        resource: Resource,
        store: ObjectStore,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        belongs: Callable[[Object], bool] = lambda _: True,
        relist_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_error: Callable[[KubeError], None] | None = None,
        on_heard: Callable[[int], None] = lambda _: None,
        on_served: Callable[[bool], None] | None = None,
    ) -> None:
        self.resource = resource
        self.store = store
        self.synced = asyncio.Event()
        self._cluster = cluster
        self._namespace = namespace
        self._selector = label_selector
        self._belongs = belongs
        self._relist_seconds = relist_seconds
        self._clock = clock
        self._jitter = jitter
        self._on_error = on_error
        self._on_heard = on_heard
        self._on_served = on_served

    async def run(self) -> None:
        """List and watch for ever. Errors of the API server are waited out with a jittered backoff."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                version = await self._list()
                backoff = FIRST_BACKOFF_SECONDS
                await self._follow(version)
            except Expired:
                continue
            except KubeError as error:
                if isinstance(error, NotServed) and self._on_served is not None:
                    await self._await_kind(self._on_served)
                    continue
                if self._on_error is not None:
                    self._on_error(error)
                await asyncio.sleep(backoff * (0.5 + self._jitter()))
                backoff = min(backoff * 2, LAST_BACKOFF_SECONDS)

    async def _await_kind(self, on_served: Callable[[bool], None]) -> None:
        """There are no objects of a kind that is not served; list again when it is time to."""
        for gone in self.store:
            self.store.remove(gone)
        on_served(False)
        self._on_heard(0)
        self.synced.set()
        await asyncio.sleep(self._relist_seconds * (0.8 + 0.4 * self._jitter()))

    async def _list(self) -> str:
        """One page after the other: of a list that tells nothing new, no more than a page is in memory."""
        differences, listed, version, newest = 0, set[Key](), "", self.store.newest
        async for page in self._cluster.pages(self.resource, self._namespace, self._selector):
            if not version:
                self.store.overtake(newest, page.resource_version)
            items = [item for item in page.items if self._belongs(item)]
            differences += self.store.take(items)
            listed.update(map(key_of, items))
            version = page.resource_version
        differences += self.store.keep(listed, version, self._namespace)
        if self._on_served is not None:
            self._on_served(True)
        self._on_heard(differences if self.synced.is_set() else 0)
        self.synced.set()
        return version

    async def _follow(self, version: str) -> None:
        """Watch until it is time for the next list. A broken stream is resumed from the last version seen."""
        until = self._clock() + self._relist_seconds * (0.8 + 0.4 * self._jitter())
        failures = 0
        while (left := until - self._clock()) > 0:
            try:
                version, heard = await self._watch(version, left)
                failures = 0 if heard else failures + 1
            except Expired:
                raise
            except Transient as error:
                failures += 1
                if failures > 3:
                    raise
                if self._on_error is not None:
                    self._on_error(error)
            if failures:
                await asyncio.sleep(FIRST_BACKOFF_SECONDS * 2**failures * (0.5 + self._jitter()))

    async def _watch(self, version: str, timeout_seconds: float) -> tuple[str, bool]:
        heard = False
        events = self._cluster.watch(
            self.resource, version, self._namespace, self._selector, timeout_seconds=max(1.0, timeout_seconds)
        )
        async for event in events:
            heard = True
            self._on_heard(0)
            seen = KubernetesObject(event.object).resource_version or version
            if event.type == "BOOKMARK" and int(seen) < int(version):
                raise Expired(f"versions of {self.resource.plural} have gone back from {version} to {seen}")
            version = seen
            if event.type == "BOOKMARK":
                continue
            if event.type == "DELETED" or not self._belongs(event.object):
                self.store.remove(event.object)
            else:
                self.store.upsert(event.object)
        return version, heard
