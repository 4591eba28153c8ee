"""Rounds of counters: of each service from where its spec says."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.api.traffic import Observed, RequestClasses, ServiceObservation
from tailbound.controller.counters import CounterPoller
from tailbound.controller.tenant_queries import TenantQueries
from tailbound.judge.counters import Classes, Reading
from tailbound.judge.polls import PollResults
from tailbound.kube.objects import Key
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Prometheus, Series, Value

ASKED, SCRAPED = ("risk", "asked"), ("risk", "scraped")
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
POD: dict[str, Any] = {"metadata": {"name": "gw-0", "uid": "u0"}}
LEAVING: dict[str, Any] = {"metadata": {"name": "gw-1", "uid": "u1"}}


class Pods:
    """One Ready gateway pod, and one on its way out."""

    def __init__(self) -> None:
        self.asked: list[tuple[Key, ...]] = []
        self.failing: dict[Key, Observed | Unknown] = {}

    def ready_pods(self) -> Mapping[str, dict[str, Any]]:
        return {"gw-0": POD}

    def all_pods(self) -> Iterable[dict[str, Any]]:
        return [POD, LEAVING]

    async def ask(self, services: Sequence[Key]) -> Mapping[Key, Mapping[str, Observed | Unknown]]:
        self.asked.append(tuple(services))
        seen = ServiceObservation(counters={"r1": RequestClasses(good=3)})
        services_seen = {"/".join(service): seen for service in services}
        answer = Observed(envoy_start_time=START, synced=True, services=services_seen)
        return {key: {"gw-0": self.failing.get(key, answer)} for key in services}


class Canned(Prometheus):
    """Answers every query alike."""

    def __init__(self, answer: tuple[Series, ...] | Unknown) -> None:
        super().__init__("http://prometheus.test")
        self.answer = answer
        self.asked: list[str] = []

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        self.asked.append(expression)
        return self.answer


SCRAPE = (
    Series(
        {"__name__": "tailbound_gateway_envoy_start_time_seconds", "pod": "gw-0"},
        (Value(9, START.timestamp()),),
    ),
    Series(
        {
            "__name__": "tailbound_requests_total",
            "pod": "gw-0",
            "namespace": "risk",
            "service": "scraped",
            "revision": "r1",
            "class": "good",
        },
        (Value(9, 3),),
    ),
)


async def rounds(
    prometheus: Prometheus | None, *keys: Key
) -> tuple[dict[Key, PollResults | None], Pods, list[Key]]:
    """One round over these services: their answers, the pods, and whom it was told to."""
    pods, changed = Pods(), list[Key]()
    counters = CounterPoller(pods, changed.append, lambda key: key == SCRAPED, prometheus, None)
    for key in keys:
        counters.expect(key)
    await counters.round()
    return {key: counters.view(key) for key in keys}, pods, changed


async def test_each_service_is_read_where_its_spec_says_and_reads_alike() -> None:
    prometheus = Canned(SCRAPE)
    answers, pods, changed = await rounds(prometheus, ASKED, SCRAPED)
    reading = Reading(START.isoformat(), {"r1": Classes(good=3)})
    assert answers == dict.fromkeys((ASKED, SCRAPED), PollResults({"u0": reading}, {"u0", "u1"}))
    assert pods.asked == [(ASKED,)]
    assert len(prometheus.asked) == 1
    assert sorted(changed) == [ASKED, SCRAPED]


@pytest.mark.parametrize(("judged", "seconds"), [(1, 2.0), (300, 2.0), (1000, 6.0), (5000, 30.0)])
def test_rounds_of_many_services_leave_time_for_others(judged: int, seconds: float) -> None:
    counters = CounterPoller(Pods(), lambda _: None, lambda _: False, None, None)
    for number in range(judged):
        counters.expect(("risk", f"s{number}"))
    assert counters.pause() == pytest.approx(seconds)


async def test_nobody_is_asked_for_nothing() -> None:
    prometheus = Canned(SCRAPE)
    _, pods, _ = await rounds(prometheus, SCRAPED)
    assert pods.asked == []
    await rounds(prometheus, ASKED)
    assert len(prometheus.asked) == 1


@pytest.mark.parametrize(
    ("prometheus", "why"),
    [
        (None, "no Prometheus is named in the installation's values (prometheus.url)"),
        (Canned(Unknown("Prometheus is not reached: refused")), "Prometheus is not reached: refused"),
        (Canned(()), "Prometheus has no scrape of gw-0 within 30 s"),
    ],
)
async def test_without_prometheus_only_its_services_have_no_counters(
    prometheus: Prometheus | None, why: str
) -> None:
    answers, _, changed = await rounds(prometheus, ASKED, SCRAPED)
    scraped = answers[SCRAPED]
    assert scraped is not None
    assert isinstance(scraped.by_pod["u0"], Unknown)
    assert (scraped.existing, scraped.unread) == ({"u0", "u1"}, why)
    asked = answers[ASKED]
    assert asked is not None
    assert asked.unread == ""
    assert isinstance(asked.by_pod["u0"], Reading)
    assert SCRAPED in changed


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            Unknown("/observed answers 413: the body is too large"),
            "/observed answers 413: the body is too large",
        ),
        (Observed(envoy_start_time=None, synced=True, services={}), "its Envoy is not up"),
        (Observed(envoy_start_time=START, synced=True, services={}), "it does not know risk/asked yet"),
        (
            Observed(envoy_start_time=START, synced=True, services={"risk/asked": ServiceObservation()}),
            "its Envoy does not tell its counters",
        ),
    ],
    ids=["refused", "envoy-down", "unknown-service", "no-counters"],
)
async def test_service_whose_counters_a_gateway_does_not_tell_says_which_and_why(
    answer: Observed | Unknown, why: str
) -> None:
    pods = Pods()
    pods.failing = {ASKED: answer}
    counters = CounterPoller(pods, lambda _: None, lambda _: False, None, None)
    for key in (ASKED, SCRAPED):
        counters.expect(key)
    await counters.round()
    failed, read = counters.view(ASKED), counters.view(SCRAPED)
    reason = f"could not be read: {why}"
    assert failed == PollResults({"u0": Unknown(reason)}, {"u0", "u1"}, f"gateway pod gw-0 {reason}")
    assert read is not None
    assert read.unread == ""


async def test_metrics_are_asked_by_namespace_and_told_to_the_services_that_want_them() -> None:
    prometheus = Canned(())
    tenants = TenantQueries(prometheus, lambda: 0.0)
    counters = CounterPoller(Pods(), lambda _: None, lambda _: False, None, tenants)
    other = ("ads", "asked")
    for key in (ASKED, other):
        counters.expect(key, ("a", "b"))
    await counters.round()
    for key in (ASKED, other):
        seen = counters.view(key)
        assert seen is not None
        assert seen.metrics == {"a": (), "b": ()}
    assert sorted(prometheus.asked) == [
        f'{name}{{namespace="{of}"}}' for name in "ab" for of in ("ads", "risk")
    ]
