"""The ticker: one decision per revision and tick, and a reconciliation only where one has changed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.forecast import Forecasts
from tailbound.autoscale.model import LatencyTarget, LearnedCapacity, Limit, Limits, RevisionObservation
from tailbound.autoscale.state import State
from tailbound.controller import autoscaler
from tailbound.controller.autoscaler import Autoscaler
from tailbound.controller.signals import QUERIES, limit_seconds
from tailbound.controller.stores import Stores
from tailbound.kube.objects import Key
from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, INFERENCE_SERVICES, PODS
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import RevisionLoad, ScalingDecisions, ScalingRequest
from tailbound.telemetry.prometheus import Series, Value

from tests.support.simulated.objects import model, service
from tests.support.simulated.scaling import decision
from tests.support.simulated.simulator import Simulator

NOW = 1_800_000_000.0
OBJECTIVE = LatencyTarget(p99=0.2)


def wanted(*revisions: str) -> ScalingRequest:
    return ScalingRequest(1, 20, OBJECTIVE.p99, {name: RevisionLoad(100, OBJECTIVE) for name in revisions})


@dataclass
class Silent:
    """A Prometheus without any series, but for those of the past."""

    past: tuple[Series, ...] = ()
    limits: set[float | None] = field(default_factory=set)
    """Seconds that it was given for an answer."""
    asked: list[str] = field(default_factory=list)

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        self.limits.add(timeout_seconds)
        self.asked.append(expression)
        return () if expression in QUERIES else self.past


@dataclass
class Core:
    """A pure core that decides what it is told to, and remembers what it was asked."""

    answer: Callable[[], ReplicaDecision] = field(default=lambda: decision(3))
    states: list[State] = field(default_factory=list)

    def __call__(
        self,
        now: float,
        observation: RevisionObservation,
        objective: LatencyTarget,
        limits: Limits,
        state: State,
    ) -> ReplicaDecision:
        assert now >= NOW
        assert objective == OBJECTIVE
        self.states.append(state)
        return self.answer()


@dataclass
class Lab:
    """An autoscaler over services that exist."""

    core: Core = field(default_factory=Core)
    changed: list[Key] = field(default_factory=list)
    passed: float = 0.0
    """Seconds since `NOW`."""

    def __post_init__(self) -> None:
        self.stores = Stores(lambda _: None)
        self.prometheus = Silent()
        self.autoscaler = Autoscaler(
            self.stores,
            self.prometheus,
            self.core,
            lambda: 2,
            self.changed.append,
            lambda: NOW + self.passed,
            10.0,
        )

    def add(self, name: str, letter: str = "a") -> str:
        """A service that serves; returns its revision."""
        body = service(model=model(letter))
        body["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
        simulator = Simulator(service=body)
        simulator.settle()
        for kind, resource in (("ControllerRevision", CONTROLLER_REVISIONS), ("Deployment", DEPLOYMENTS)):
            for each in simulator.of(kind):
                each["metadata"].setdefault("resourceVersion", "1")
                self.stores.of[resource].upsert(each)
        for number, each in enumerate(simulator.pods.values()):
            each["metadata"] |= {"namespace": "risk", "uid": f"{name}-{number}", "resourceVersion": "1"}
            each["status"] = each["status"] | {"conditions": [{"type": "Ready", "status": "True"}]}
            self.stores.of[PODS].upsert(each)
        (revision,) = simulator.names("Deployment")
        self.autoscaler.expect(("risk", name), wanted(revision))
        return revision

    def view(self) -> ScalingDecisions:
        """What the reconciler sees of the service churn, on which there has been a decision."""
        found = self.autoscaler.view(("risk", "churn"))
        assert found is not None
        return found

    def tick(self) -> list[Key]:
        """Services that are reconciled for it."""
        self.changed.clear()
        asyncio.run(self.autoscaler.tick())
        return list(self.changed)


def test_a_hundred_services_with_the_same_decision_are_reconciled_once() -> None:
    lab = Lab()
    for number in range(100):
        lab.add(f"s{number}")
    assert len(lab.tick()) == 100
    assert [lab.tick() for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("first", [True, False], ids=["first-look-of-a-process", "later-look"])
@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(decision(3), False, id="as-it-was"),
        pytest.param(decision(3, arrivals=99.0), False, id="other-figures"),
        pytest.param(decision(4), True, id="another-count"),
        pytest.param(decision(3, Limit.MAX), True, id="limited"),
        pytest.param(decision(3, stale=("arrivals",)), True, id="metrics-are-missing"),
    ],
)
def test_a_decision_is_news_only_where_the_status_or_the_look_before_says_something_else(
    found: ReplicaDecision, told: bool, first: bool
) -> None:
    lab = Lab()
    name = lab.add("churn")
    if first:
        lab.autoscaler.expect(("risk", "churn"), replace(wanted(name), settled={name: (100, 3, "None")}))
    else:
        assert lab.tick() == [("risk", "churn")], "the status says less"
    lab.core.answer = lambda: found
    assert lab.tick() == ([("risk", "churn")] if told else [])
    assert [each.decision for each in lab.view().revisions.values()] == [found]
    assert lab.tick() == []


def test_missing_signals_are_told_in_the_same_words_until_others_are_missing() -> None:
    lab = Lab()
    lab.add("churn")
    told: list[Any] = []
    others = ("arrivals: at 0x3", "in flight: at 0x4")
    for stale in (("arrivals: at 0x1",), ("arrivals: at 0x2",), others, ()):
        lab.core.answer = lambda stale=stale: decision(3, stale=stale)  # type: ignore[misc]
        told.append(bool(lab.tick()))
        view = lab.view()
        told.append(next(iter(view.revisions.values())).decision.stale)
    assert told == [
        *(True, ("arrivals: at 0x1",)),
        *(False, ("arrivals: at 0x1",)),
        *(True, ("arrivals: at 0x3", "in flight: at 0x4")),
        *(True, ()),
    ]


@pytest.mark.parametrize(
    ("missing", "awaited", "told"),
    [
        pytest.param((1, 1, 1, 1, 1), (1, 1, 1, 0, 0), (1, 0, 0, 1, 0), id="never-come"),
        pytest.param((1, 1, 0, 0, 0), (1, 1, 0, 0, 0), (1, 0, 1, 0, 0), id="come"),
        pytest.param((1, 0, 1, 1, 1), (1, 0, 0, 0, 0), (1, 1, 1, 0, 0), id="go-again"),
    ],
)
def test_first_metrics_are_awaited_for_three_scrapes_and_the_end_of_that_is_news(
    missing: tuple[int, ...], awaited: tuple[int, ...], told: tuple[int, ...]
) -> None:
    lab = Lab()
    lab.add("churn")
    seen = []
    for lab.passed, is_missing in zip((0.0, 20.0, 40.0, 60.0, 80.0), missing, strict=True):
        stale = ("arrivals: no series",) if is_missing else ()
        lab.core.answer = lambda stale=stale: decision(3, stale=stale)  # type: ignore[misc]
        news = bool(lab.tick())
        seen.append((lab.view().awaited, news))
    assert seen == list(zip(awaited, told, strict=True))


def test_prometheus_has_the_time_for_the_whole_fleet_while_few_services_are_followed_yet() -> None:
    lab = Lab()
    lab.add("churn")
    for number in range(1000):
        body = service()
        body["metadata"] |= {"name": f"s{number}", "uid": f"uid-{number}", "resourceVersion": "1"}
        lab.stores.of[INFERENCE_SERVICES].upsert(body)
    lab.tick()
    assert lab.prometheus.limits == {limit_seconds(1000)}


def test_the_state_of_one_tick_is_what_the_next_begins_with() -> None:
    lab = Lab()
    revision = lab.add("churn")
    known = State(LearnedCapacity(base=0.2, per_row=0.05), forecasts=Forecasts((8.0, 6.0)))
    lab.core.answer = lambda: replace(decision(3), state=known)
    lab.tick()
    lab.tick()
    half = replace(wanted(), revisions={revision: RevisionLoad(50, OBJECTIVE)})
    lab.autoscaler.expect(("risk", "churn"), half)
    lab.tick()
    before, same, halved = lab.core.states
    assert isinstance(before.learned, Unknown)
    assert same == known
    assert (halved.learned, halved.forecasts.rates) == (known.learned, (4.0, 3.0))


def test_a_process_that_starts_knows_the_traffic_from_before_it() -> None:
    lab = Lab()
    labels = {"namespace": "risk", "service": "churn"}
    lab.prometheus.past = tuple(
        Series(labels | {"revision": name}, tuple(Value(NOW - 30 + 10 * at, rate) for at in range(3)))
        for name, rate in (("churn-r1", 3.0), ("churn-r2", 1.0))
    )
    lab.add("churn")
    lab.add("other")
    lab.tick()
    assert [state.forecasts.rates for state in lab.core.states] == [(4.0, 4.0, 4.0), ()]


def test_what_was_learned_is_to_be_written_until_the_record_has_it_and_serves_its_likes() -> None:
    lab = Lab()
    revision = lab.add("churn")
    learned = LearnedCapacity(base=0.2, per_row=0.05)
    lab.core.answer = lambda: replace(decision(3), state=State(learned=learned))
    lab.tick()
    view = lab.view()
    note = view.revisions[revision].capacity
    assert note is not None
    record = lab.stores.of[CONTROLLER_REVISIONS].get("risk", revision)
    assert record is not None
    meta: dict[str, Any] = {**record["metadata"], "resourceVersion": "99999"}
    meta["annotations"] = meta["annotations"] | {"tailbound.dev/capacity": note}
    lab.stores.of[CONTROLLER_REVISIONS].upsert({**record, "metadata": meta})
    lab.tick()
    assert lab.view().revisions[revision].capacity is None
    lab.core.states.clear()
    elsewhere = {**meta, "namespace": "other", "uid": "other"}
    lab.stores.of[CONTROLLER_REVISIONS].upsert({**record, "metadata": elsewhere})
    assert [each["metadata"]["namespace"] for each in lab.stores.learned_like(record)] == ["risk"]
    lab.add("same")
    lab.add("zother", letter="b")
    lab.tick()
    assert lab.core.states[1].learned == learned
    assert isinstance(lab.core.states[2].learned, Unknown)


def test_a_service_whose_decision_fails_leaves_the_others_alone() -> None:
    lab = Lab()
    lab.add("a")
    lab.add("b")
    answers = iter([None, decision(3)])

    def answer() -> ReplicaDecision:
        made = next(answers)
        if made is None:
            raise ValueError("no such curve")
        return made

    lab.core.answer = answer
    assert lab.tick() == [("risk", "b")]


def test_a_service_that_is_released_is_not_decided_on() -> None:
    lab = Lab()
    lab.add("churn")
    lab.tick()
    lab.autoscaler.release(("risk", "churn"))
    assert (lab.tick(), lab.autoscaler.view(("risk", "churn"))) == ([], None)


def test_a_revision_without_a_deployment_is_not_decided_on() -> None:
    lab = Lab()
    revision = lab.add("churn")
    lab.autoscaler.expect(("risk", "churn"), wanted(revision, "churn-r2-x"))
    lab.tick()
    assert list(lab.view().revisions) == [revision]


def test_a_service_that_is_only_watched_is_not_decided_on_and_says_what_is_missing() -> None:
    lab = Lab()
    revision = lab.add("churn")
    watched = replace(wanted(revision), only_watched=True)
    lab.autoscaler.expect(("risk", "churn"), watched)
    told = []
    for lab.passed in (0.0, 20.0, 60.0, 80.0):
        told.append(bool(lab.tick()))
    view = lab.view()
    assert (told, lab.core.states) == ([True, False, True, False], [])
    assert (view.revisions, view.late, view.awaited) == ({}, None, False)
    assert [words.partition(":")[0] for words in view.missing] == ["arrivals"]


def test_what_was_decided_ends_where_a_service_is_only_watched_from_now_on() -> None:
    lab = Lab()
    revision = lab.add("churn")
    lab.tick()
    lab.autoscaler.expect(("risk", "churn"), replace(wanted(revision), only_watched=True))
    assert lab.autoscaler.view(("risk", "churn")) is None
    lab.autoscaler.expect(("risk", "churn"), wanted(revision))
    lab.tick()
    assert list(lab.view().revisions) == [revision]


def test_a_server_with_metrics_of_other_names_is_asked_for_these_while_its_pods_say_so() -> None:
    lab = Lab()
    revision = lab.add("churn")
    (deployment,) = lab.stores.deployments(("risk", "churn"))
    annotations = {"tailbound.dev/server-metrics": '{"requests":"done_total","requestTime":["busy_seconds"]}'}
    template = deployment["spec"]["template"]
    mapped = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    lab.stores.of[DEPLOYMENTS].upsert(
        {
            **deployment,
            "metadata": {**deployment["metadata"], "resourceVersion": "1000000"},
            "spec": {**deployment["spec"], "template": mapped},
        }
    )
    lab.tick()
    (asked,) = (each for each in lab.prometheus.asked if "busy_seconds" in each)
    assert 'namespace=~"risk"' in asked
    assert revision in lab.view().revisions


@pytest.mark.parametrize(("waits", "longest", "in_time"), [(3, 60.0, True), (10**9, 0.01, False)])
async def test_a_new_process_looks_at_the_metrics_when_it_has_decided_on_all_or_after_a_minute(
    waits: int, longest: float, in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoscaler, "FIRST_LOOK_SECONDS", longest)
    monkeypatch.setattr(autoscaler, "_LOOK_SECONDS", 0.001)
    lab, left = Lab(), [waits]
    lab.add("churn")

    def starting() -> bool:
        assert not lab.prometheus.asked
        left[0] -= 1
        return left[0] > 0

    lab.autoscaler.starting = starting
    running = asyncio.create_task(lab.autoscaler.run())
    async with asyncio.timeout(10):
        while not lab.prometheus.asked:  # noqa: ASYNC110 - what another task fills
            await asyncio.sleep(0.001)
    running.cancel()
    assert (left[0] == 0) == in_time
