"""Which gateway pods are read, when, for which services, and who hears of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.api.traffic import MOST_ASKED, AppliedRoute, Observed, RejectedRoute, ServiceObservation
from tailbound.controller import gateways as module
from tailbound.controller.gateways import GatewayReports
from tailbound.controller.stale_gateways import STALE_SECONDS, stale_gateways, unacknowledged
from tailbound.kube.objects import Key, key_of
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.metrics import Metrics

from tests.support.tasks import beside

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")
STARTED = datetime(2026, 1, 1, tzinfo=UTC)
READY = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(name: str, version: int = 1, status: Any = READY, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "sys",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **meta,
        },
        "status": status,
    }


def report(started: datetime = STARTED, **generations: int) -> Observed:
    services = {
        f"ns/{name}": ServiceObservation(applied=AppliedRoute(generation=1, traffic_generation=generation))
        for name, generation in generations.items()
    }
    return Observed(envoy_start_time=started, synced=True, services=services)


@dataclass
class Fleet:
    """Scripted gateways, and what was asked and told."""

    answers: dict[str, Observed | Unknown] = field(default_factory=dict)
    asked: list[tuple[str, tuple[Key, ...]]] = field(default_factory=list)
    told: list[Key] = field(default_factory=list)
    told_all: int = 0
    refused: dict[Key, str] = field(default_factory=dict)
    """Why every batch is refused that names this service."""
    store: ObjectStore = field(default_factory=ObjectStore)

    async def read(
        self, pod: Object, services: Sequence[Key] = (), *, counters: bool = False
    ) -> Observed | Unknown:
        named = tuple(services)
        name = key_of(pod)[1]
        self.asked.append((name, named))
        answer = self.answers[name]
        refused = next((why for key, why in self.refused.items() if key in named), None)
        if refused is not None:
            return Unknown(refused)
        if isinstance(answer, Unknown) or not named:
            return answer
        wanted = {"/".join(key) for key in named}
        return answer.model_copy(
            update={"services": {key: seen for key, seen in answer.services.items() if key in wanted}}
        )

    def hear_all(self) -> None:
        self.told_all += 1


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
async def gateways(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatewayReports]:
    monkeypatch.setattr(module, "FAST_SECONDS", 0.01)
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    made = GatewayReports(fleet.store, fleet.read, loop.time, Metrics(), fleet.told.append, fleet.hear_all)
    async with beside(made.run()):
        yield made


async def until(holds: Any) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - short polling of a value in this process
            await asyncio.sleep(0.005)


async def test_new_ready_pod_is_read_once_and_then_left_alone(fleet: Fleet, gateways: GatewayReports) -> None:
    fleet.answers["g"] = report(a=1)
    fleet.store.upsert(pod("g"))
    assert isinstance(gateways.reports(A)["g"], Unknown)
    assert fleet.told_all == 0
    await until(lambda: gateways.reports(A)["g"] == report(a=1))
    await asyncio.sleep(0.1)
    assert fleet.asked == [("g", ())]
    assert fleet.told_all == 1


async def test_awaiting_services_are_read_by_name_until_they_are_released(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    fleet.answers["g"] = report(a=1, b=1)
    fleet.store.upsert(pod("g"))
    await until(lambda: fleet.told_all)
    gateways.expect(A)
    await until(lambda: ("g", (A,)) in fleet.asked)
    fleet.answers["g"] = report(a=2, b=1)
    await until(lambda: A in fleet.told)
    assert B not in fleet.told
    assert gateways.reports(A)["g"] == report(a=2)
    assert gateways.reports(B)["g"] == report(b=1)
    gateways.release(A)
    await asyncio.sleep(0.05)
    count = len(fleet.asked)
    await asyncio.sleep(0.1)
    assert len(fleet.asked) == count


async def test_restarted_envoy_is_read_completely_before_it_counts_again(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    fleet.answers["g"] = report(a=1, b=1)
    fleet.store.upsert(pod("g"))
    await until(lambda: fleet.told_all)
    again = datetime(2026, 1, 2, tzinfo=UTC)
    fleet.answers["g"] = report(again, a=1)
    gateways.expect(A)
    await until(lambda: gateways.reports(A)["g"] == report(again, a=1))
    assert fleet.asked[-1] == ("g", (A,)) or ("g", ()) in fleet.asked[1:]


async def test_coming_and_going_pods_concern_all_only_where_no_other_pod_is_left_to_compare(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    fleet.answers = {"g": report(a=1, b=1), "h": report(a=1, b=2)}
    fleet.store.upsert(pod("g"))
    await until(lambda: fleet.told_all == 1)
    fleet.store.upsert(pod("h"))
    await until(lambda: fleet.told == [B])
    gateways.expect(A)
    gateways.view(C)
    fleet.told.clear()
    fleet.store.upsert(pod("g", 2, status={**READY, "conditions": []}))
    assert list(gateways.reports(A)) == ["h"]
    assert sorted(fleet.told) == [A, C]
    assert fleet.told_all == 1
    fleet.store.upsert(pod("h", 2, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert dict(gateways.reports(A)) == {}
    assert fleet.told_all == 2


async def test_change_while_a_service_is_decided_on_is_not_lost_to_it(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    fleet.answers["g"] = Unknown("refused")
    fleet.store.upsert(pod("g"))
    await until(lambda: gateways.reports(A)["g"] == Unknown("refused"))
    gateways.view(A)
    gateways.view(B)
    gateways.release(B)
    fleet.told.clear()
    fleet.answers["g"] = Unknown("refused otherwise")
    await until(lambda: fleet.told)
    assert fleet.told == [A]


async def test_failed_batch_is_that_of_its_own_services_and_says_why(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    keys = [("n" * 63, f"{number:04}" + "s" * 59) for number in range(1000)]
    fleet.answers["g"] = report(a=1)
    fleet.store.upsert(pod("g"))
    await until(lambda: fleet.told_all)
    fleet.refused = {keys[0]: "/observed answers 400"}
    found = await gateways.ask(keys)
    sizes = [len(named) for _, named in fleet.asked if named]
    assert sizes == [MOST_ASKED, MOST_ASKED]
    refused = {key for key in keys if isinstance(found[key]["g"], Unknown)}
    assert refused == set(keys[:MOST_ASKED])
    assert gateways.reports(keys[0])["g"] == gateways.reports(keys[-1])["g"] == report()
    for key in keys:
        gateways.expect(key)
    await until(lambda: keys[0] in fleet.told)
    assert gateways.reports(keys[0])["g"] == Unknown("/observed answers 400")
    assert gateways.reports(keys[-1])["g"] == report()
    fleet.refused = {}
    await until(lambda: gateways.reports(keys[0])["g"] == report())


async def test_pod_that_cannot_be_read_says_why_and_is_tried_again(
    fleet: Fleet, gateways: GatewayReports
) -> None:
    fleet.answers["g"] = Unknown("refused")
    fleet.store.upsert(pod("g"))
    await until(lambda: gateways.reports(A)["g"] == Unknown("refused"))
    fleet.answers["g"] = report(a=1)
    await until(lambda: gateways.reports(A)["g"] == report(a=1))
    assert fleet.told_all == 1


async def test_new_leader_has_read_everything_before_it_goes_on(fleet: Fleet) -> None:
    fleet.answers["g"] = report(a=1)
    fleet.store.upsert(pod("g"))
    made = GatewayReports(fleet.store, fleet.read, lambda: 0.0, Metrics(), fleet.told.append, fleet.hear_all)
    await made.refresh()
    assert dict(made.view(A)) == {"g": report(a=1)}


SERVICE = {
    "metadata": {"namespace": "ns", "name": "a", "generation": 2},
    "status": {"traffic": {"generation": 5}},
}


def route(generation: int, traffic: int) -> AppliedRoute:
    return AppliedRoute(generation=generation, traffic_generation=traffic)


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (None, False),
        (ServiceObservation(applied=route(2, 5)), True),
        (ServiceObservation(applied=route(3, 6)), True),
        (ServiceObservation(applied=route(1, 5)), False),
        (ServiceObservation(applied=route(2, 4)), False),
        (
            ServiceObservation(
                applied=route(1, 4), rejected=RejectedRoute(generation=2, traffic_generation=5, message="no")
            ),
            True,
        ),
    ],
    ids=["unknown", "newest", "newer", "old spec", "old traffic", "refused"],
)
def test_gateway_has_answered(observation: ServiceObservation | None, expected: bool) -> None:
    assert unacknowledged(SERVICE, {"g": observation}) == (() if expected else ("g",))


NEW = ServiceObservation(applied=route(2, 5))
OLD = ServiceObservation(applied=route(2, 4))


@pytest.mark.parametrize(
    ("waited", "observations", "expected"),
    [
        (STALE_SECONDS - 1, {"g": NEW, "h": OLD}, ()),
        (STALE_SECONDS, {"g": NEW, "h": OLD}, ("h",)),
        (STALE_SECONDS, {"g": NEW, "h": None}, ("h",)),
        (STALE_SECONDS, {"g": OLD, "h": OLD}, ()),
        (STALE_SECONDS, {"g": OLD, "h": None}, ()),
        (STALE_SECONDS, {"g": NEW, "h": NEW}, ()),
        (STALE_SECONDS, {}, ()),
    ],
    ids=["too early", "late", "unread", "all late", "nobody knows", "nobody late", "no gateway"],
)
def test_stale_gateways(
    waited: float, observations: dict[str, ServiceObservation | None], expected: tuple[str, ...]
) -> None:
    assert stale_gateways(SERVICE, observations, lambda: dict.fromkeys(observations, waited)) == expected


async def test_pod_that_has_just_crashed_gets_its_time_however_long_the_service_has_waited(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAST_PHASE_SECONDS", 1e9)
    monkeypatch.setattr(module, "FAST_SECONDS", 0.001)
    now = 0.0
    made = GatewayReports(fleet.store, fleet.read, lambda: now, Metrics(), fleet.told.append, fleet.hear_all)
    new, old = (
        Observed(envoy_start_time=STARTED, synced=True, services={"ns/a": seen}) for seen in (NEW, OLD)
    )
    fleet.answers = {"g": new, "h": new, "i": old}
    for name in fleet.answers:
        fleet.store.upsert(pod(name))
    await made.refresh()
    made.expect(A)
    now = STALE_SECONDS

    def late() -> tuple[str, ...]:
        return stale_gateways(SERVICE, made.observations(A), lambda: made.waited(made.awaiting[A]))

    assert late() == ("i",)
    fleet.answers["h"] = Unknown("connection refused")
    task = asyncio.create_task(made.run())
    try:
        await until(lambda: isinstance(made.reports(A)["h"], Unknown))
        assert late() == ("i",)
        now += STALE_SECONDS
        assert late() == ("h", "i")
    finally:
        task.cancel()
