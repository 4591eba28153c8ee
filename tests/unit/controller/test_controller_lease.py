"""Two electors over a scripted API server: whatever breaks, never do both hold the Lease."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from tailbound.controller.lease import Elector, LeadershipLost, LeaseTimes
from tailbound.kube.errors import Conflict, Transient
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import Resource
from tailbound.objects.fields import Object

from tests.unit.controller.virtualtime import VirtualTime

TIMES = LeaseTimes()
REQUEST_SECONDS = 1.8


class Server:
    """One stored Lease with optimistic locking."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._versions = itertools.count(1)
        self.writes: list[str] = []

    def store(self, body: Object) -> Object:
        meta = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.lease = {**body, "metadata": meta}
        self.writes.append(body["spec"]["holderIdentity"])
        return self.lease

    def replace(self, body: Object) -> Object:
        if self.lease is None or body["metadata"].get("resourceVersion") != self.version:
            raise Conflict("the object has been modified")
        return self.store(body)

    def insert(self, body: Object) -> Object:
        if self.lease is not None:
            raise Conflict("it exists already")
        return self.store(body)

    @property
    def version(self) -> str:
        return str((self.lease or {}).get("metadata", {}).get("resourceVersion"))


class Link:
    """One elector's way to the server. `cut` makes requests time out; `deaf` loses only the answers."""

    def __init__(self, server: Server, time: VirtualTime) -> None:
        self._server, self._time = server, time
        self.cut = self.deaf = False

    async def get(self, _resource: Resource, _namespace: str, _name: str) -> Object | None:
        return cast(Object | None, await self._call(lambda: self._server.lease))

    async def insert(self, _resource: Resource, body: Object) -> Object:
        return cast(Object, await self._call(lambda: self._server.insert(body)))

    async def replace(self, _resource: Resource, body: Object) -> Object:
        return cast(Object, await self._call(lambda: self._server.replace(body)))

    async def _call(self, request: Callable[[], Any]) -> Any:
        if not self.cut:
            answer = request()
            if not self.deaf:
                return answer
        await self._time.sleep(REQUEST_SECONDS)
        raise Transient("timed out")


class Candidate:
    """One process: it acquires, keeps, and ends when it loses."""

    def __init__(self, server: Server, time: VirtualTime, identity: str, wall_offset: timedelta) -> None:
        self.link = Link(server, time)
        self.elector = Elector(
            cast(KubeClient, self.link),
            "system",
            "operator",
            identity,
            clock=time.clock,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + wall_offset,
            sleep=time.sleep,
        )
        self.lost = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        try:
            await self.elector.keep()
        except LeadershipLost:
            self.lost = True

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


class Race:
    """Two candidates, and a watcher that sees every step."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.server = Server()
        self.one = Candidate(self.server, self.time, "one", timedelta())
        self.two = Candidate(self.server, self.time, "two", timedelta(hours=9))
        self.both = False

    async def run(self, seconds: float) -> None:
        """Let time pass. One begins to hold the Lease only as it wakes: look after each wake."""
        await self.time.advance(seconds, self._look)

    def _look(self) -> None:
        self.both = self.both or (self.one.elector.holds() and self.two.elector.holds())

    async def stop(self) -> None:
        await self.one.stop()
        await self.two.stop()


def race(test: Callable[[Race], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def run() -> None:
        made = Race()
        try:
            await test(made)
        finally:
            await made.stop()
        assert not made.both, "two electors held the Lease at once"

    run.__name__ = test.__name__
    return run


@race
async def test_one_leads_and_the_other_waits_though_its_wall_clock_is_hours_ahead(made: Race) -> None:
    await made.run(120)
    assert made.one.elector.holds()
    assert not made.two.elector.holds()
    assert set(made.server.writes) == {"one"}


@race
async def test_cut_off_leader_stops_before_the_other_one_begins(made: Race) -> None:
    await made.run(5)
    made.one.link.cut = True
    await made.run(TIMES.renew_deadline + 0.2)
    assert not made.one.elector.holds()
    assert not made.two.elector.holds()
    await made.run(20)
    assert made.one.lost
    assert made.two.elector.holds()


@race
async def test_leader_whose_writes_arrive_without_an_answer_stops_all_the_same(made: Race) -> None:
    await made.run(5)
    made.one.link.deaf = True
    await made.run(TIMES.renew_deadline + 0.2)
    assert not made.one.elector.holds()
    await made.run(5)
    assert made.one.lost


@race
async def test_outage_shorter_than_the_deadline_costs_nothing(made: Race) -> None:
    await made.run(5)
    made.one.link.cut = made.two.link.cut = True
    await made.run(TIMES.renew_deadline - 3)
    made.one.link.cut = made.two.link.cut = False
    await made.run(30)
    assert made.one.elector.holds()
    assert not made.one.lost


@race
async def test_outage_for_everybody_ends_with_one_leader(made: Race) -> None:
    await made.run(5)
    made.one.link.cut = made.two.link.cut = True
    await made.run(60)
    assert not made.one.elector.holds()
    made.two.link.cut = False
    await made.run(20)
    assert made.two.elector.holds()


@race
async def test_released_lease_is_taken_within_the_retry_period(made: Race) -> None:
    await made.run(5)
    await made.one.stop()
    await made.one.elector.release()
    assert not made.one.elector.holds()
    await made.run(TIMES.retry + 0.2)
    assert made.two.elector.holds()


@race
async def test_age_of_the_lease_grows_while_nobody_leads(made: Race) -> None:
    """Each process sees it, whether it leads, waits, or cannot reach the API server."""
    await made.run(60)
    assert max(each.elector.lease_age_seconds for each in (made.one, made.two)) <= 2 * TIMES.retry
    await made.one.stop()
    made.two.link.cut = True
    await made.run(60)
    assert min(each.elector.lease_age_seconds for each in (made.one, made.two)) >= 60
    made.two.link.cut = False
    await made.run(TIMES.duration + 2 * TIMES.retry)
    assert made.two.elector.holds()
    assert made.two.elector.lease_age_seconds <= TIMES.retry


@race
async def test_lease_whose_last_renewal_was_stored_unheard_is_released_all_the_same(made: Race) -> None:
    await made.run(5)
    await made.one.stop()
    assert made.server.lease is not None
    made.server.store(made.server.lease)
    await made.one.elector.release()
    assert made.server.writes[-1] == ""


@race
async def test_lease_of_another_holder_is_not_released(made: Race) -> None:
    await made.run(5)
    await made.one.stop()
    assert made.server.lease is not None
    made.server.store({**made.server.lease, "spec": {**made.server.lease["spec"], "holderIdentity": "three"}})
    await made.one.elector.release()
    assert made.server.writes[-1] == "three"


@race
async def test_killed_leader_is_followed_after_the_lease_has_run_out_and_not_before(made: Race) -> None:
    await made.run(5)
    await made.one.stop()
    await made.run(TIMES.duration - 3)
    assert set(made.server.writes) == {"one"}
    await made.run(6)
    assert made.two.elector.holds()


@race
async def test_leader_that_sees_another_holder_stops_at_once(made: Race) -> None:
    await made.run(5)
    assert made.server.lease is not None
    made.server.store({**made.server.lease, "spec": {**made.server.lease["spec"], "holderIdentity": "three"}})
    await made.run(TIMES.retry + 0.2)
    assert made.one.lost
    assert not made.one.elector.holds()


@pytest.mark.parametrize("outage", [1.0, 5.0, 9.0, 10.0, 11.0, 15.0, 16.0, 40.0])
@pytest.mark.parametrize("how", ["cut", "deaf"])
async def test_never_two_leaders_whenever_and_however_long_the_leader_is_cut_off(
    outage: float, how: str
) -> None:
    for cut_at in (0.0, 0.5, 1.0, 1.5, 2.0, 3.1, 4.7, 8.0):
        made = Race()
        try:
            await made.run(cut_at)
            setattr(made.one.link, how, True)
            await made.run(outage)
            setattr(made.one.link, how, False)
            await made.run(40)
        finally:
            await made.stop()
        assert not made.both, cut_at
        assert made.one.elector.holds() or made.two.elector.holds(), cut_at


async def test_new_process_of_the_same_pod_takes_its_lease_over_at_once() -> None:
    time, server = VirtualTime(), Server()
    first = Candidate(server, time, "one", timedelta())
    await time.advance(5)
    await first.stop()
    second = Candidate(server, time, "one", timedelta())
    await time.advance(0.1)
    assert second.elector.holds()
    await second.stop()
