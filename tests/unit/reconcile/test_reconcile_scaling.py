"""Pods that follow the traffic: one writer, bounds that always hold, and a status that says why."""

from typing import Any

import pytest
from tailbound.api.conditions import ConditionType
from tailbound.autoscale.model import Limit
from tailbound.reconcile.model import ScalingDecision, ScalingDecisions

from tests.support.simulated.objects import service
from tests.support.simulated.rollouts import SLA, replicas
from tests.support.simulated.scaling import BOUNDS, decided, decision, following, shares
from tests.support.simulated.simulator import Simulator


def test_only_a_service_with_room_between_its_bounds_is_decided_on_and_others_are_watched() -> None:
    for scaling in ({}, {"min": 3}, {"min": 3, "max": 3}, {"mode": "external", "max": 9}):
        simulator = Simulator(service=service(sla=SLA, scaling=scaling))
        simulator.settle()
        plan = simulator.plan()
        assert plan.scalable is not None
        assert plan.scalable.only_watched
    plan = following().plan()
    assert plan.scalable is not None
    assert not plan.scalable.only_watched
    assert (plan.scalable.p99_seconds, plan.scalable.least, plan.scalable.most) == (0.1, 2, 20)
    assert shares(plan) == {"r1": 100}


def test_a_stopped_service_is_not_followed() -> None:
    simulator = following()
    simulator.edit(stopped=True)
    assert simulator.plan().scalable is None


@pytest.mark.parametrize(
    ("asked", "counts"),
    [(None, {7: 7, 30: 20, 3: 3, 0: 2}), (5, {3: 5, 8: 8})],
    ids=["by-traffic-alone", "the-user-asks-for-more"],
)
def test_pods_follow_the_decision_within_the_bounds_and_what_is_asked_for(
    asked: int | None, counts: dict[int, int]
) -> None:
    simulator = following(BOUNDS if asked is None else {**BOUNDS, "replicas": asked})
    assert replicas(simulator) == {"r1": asked or 2}
    for count, expected in counts.items():
        decided(simulator, r1=count)
        assert replicas(simulator) == {"r1": expected}


def test_the_bounds_hold_without_any_decision() -> None:
    simulator = following()
    decided(simulator, r1=9)
    simulator.sizes = None
    simulator.edit(scaling={"min": 2, "max": 6})
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 6}
    simulator.edit(scaling={"min": 8, "max": 12})
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 8}


def test_neither_an_operator_that_starts_nor_figures_alone_write_anything() -> None:
    simulator = following()
    decided(simulator, r1=7)
    simulator.settle()
    (name,) = simulator.names("Deployment")
    figures = ScalingDecisions({name: ScalingDecision(100, decision(7, arrivals=99.0))}, None)
    for simulator.sizes in (None, figures):
        plan = simulator.plan()
        assert (plan.writes, plan.status) == ((), None)


@pytest.mark.parametrize(
    ("scaling", "late", "spoil", "known"),
    [
        pytest.param(BOUNDS, 0.0, None, (100, 7, Limit.NONE), id="sized"),
        pytest.param({"min": 2}, 0.0, None, None, id="watched"),
        pytest.param(BOUNDS, 0.5, None, False, id="sla-missed"),
        pytest.param(BOUNDS, None, None, False, id="no-request-yet"),
        pytest.param(BOUNDS, 0.0, {"batching": {"mode": "none"}}, False, id="another-generation"),
        pytest.param(BOUNDS, 0.0, {"scaling": {**BOUNDS, "max": 5}}, False, id="other-bounds"),
    ],
)
def test_a_first_look_that_finds_what_the_status_says_changes_nothing(
    scaling: dict[str, Any], late: float | None, spoil: dict[str, Any] | None, known: object
) -> None:
    simulator = following(scaling)
    simulator.settle()
    pods: dict[str, Any] = {"r1": 7} if "max" in scaling else {}
    decided(simulator, late, **pods)
    simulator.settle()
    if spoil is not None:
        simulator.edit(**spoil)
    (name,) = simulator.names("Deployment")
    looked, simulator.sizes = simulator.sizes, None
    scalable = simulator.plan().scalable
    assert scalable is not None
    if known is False:
        assert scalable.settled is None
        return
    assert scalable.settled == ({} if known is None else {name: known})
    simulator.sizes = looked
    plan = simulator.plan()
    assert (plan.writes, plan.status) == ((), None)


def test_the_status_says_what_the_decision_rests_on() -> None:
    simulator = following()
    decided(simulator, r1=7)
    (told,) = simulator.service["status"]["scaling"]["revisions"]
    assert told == {
        "revision": simulator.names("Deployment")[0],
        "share": 100,
        "replicas": 7,
        "needed": 7.0,
        "arrivalsPerSecond": 12.3,
        "forecastPerSecond": 15.0,
        "capacityPerSecond": 4.0,
        "rule": "Forecast",
        "limitedBy": "",
        "message": decision(7).message(),
        "arithmetic": "7 = ceil(forecast 15 / (capacity 4 * usage 0.88 * correction 1)) + for latency 2",
    }


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (Limit.NONE, ("False", "NotLimited")),
        (Limit.MIN, ("False", "NotLimited")),
        (Limit.MAX, ("True", "AtMaximum")),
        (Limit.QUOTA, ("True", "QuotaExceeded")),
        (Limit.HARDWARE, ("True", "Unschedulable")),
    ],
)
def test_what_limits_the_pods_is_a_condition(limit: Limit, expected: tuple[str, str]) -> None:
    simulator = following()
    decided(simulator, r1=(decision(7, limit), 100))
    assert simulator.condition(ConditionType.SCALING_LIMITED) == expected


def test_metrics_that_have_never_been_there_are_pending_and_those_that_have_gone_are_missing() -> None:
    simulator, seen = following(), []
    nothing = (decision(7, stale=("arrivals: no series",)), 100)
    for value, awaited in ((nothing, True), (7, False), (nothing, True), (nothing, False)):
        decided(simulator, awaited=awaited, r1=value)
        seen.append(simulator.condition(ConditionType.METRICS_STALE))
    assert "arrivals: no series" in simulator.message(ConditionType.METRICS_STALE)
    decided(simulator, r1=7)
    pending, fresh, missing = ("Unknown", "Pending"), ("False", "MetricsFresh"), ("True", "MetricsMissing")
    assert seen == [pending, fresh, missing, missing]
    assert simulator.condition(ConditionType.METRICS_STALE) == fresh


def test_the_sla_is_met_as_long_as_one_in_a_hundred_is_late_and_stays_so_without_requests() -> None:
    simulator = following()
    told = []
    for late in (None, 0.01, 0.02, None, 0.0):
        decided(simulator, late=late, r1=7)
        told.append(simulator.condition(ConditionType.SLA_MET))
    met, missed = ("True", "WithinTarget"), ("False", "TargetMissed")
    assert told == [("Unknown", "Pending"), met, missed, missed, met]


@pytest.mark.parametrize(
    ("late", "shed", "status", "words"),
    [
        pytest.param(0.2, 0.1834, "False", "or would: about 20% are refused for it", id="most-refused"),
        pytest.param(0.2, 0.0, "False", "takes longer than 100ms", id="none-refused"),
        pytest.param(0.01, 0.01, "True", "99 of 100 requests are answered within 100ms", id="few-refused"),
    ],
)
def test_what_was_refused_as_it_would_be_late_is_a_missed_target_and_is_told(
    late: float, shed: float, status: str, words: str
) -> None:
    simulator = following()
    simulator.sizes = ScalingDecisions({}, late, shed=shed)
    simulator.reconcile()
    (found,) = [
        each for each in simulator.service["status"]["conditions"] if each["type"] == ConditionType.SLA_MET
    ]
    assert (found["status"], words in found["message"]) == (status, True), found
    assert ("refused" in found["message"]) is (status == "False" and shed > 0)


def test_a_target_that_no_pod_meets_is_told_with_what_can_be_done() -> None:
    simulator = following()
    decided(simulator, late=0.4, r1=(decision(7, unreachable=0.358), 100))
    assert simulator.condition(ConditionType.SLA_MET) == ("False", "TargetMissed")
    told = simulator.message(ConditionType.SLA_MET)
    assert "more pods would not help" in told
    assert "takes up to 0.36s, which is more than 100ms: raise spec.sla.latency.p99" in told
    decided(simulator, late=0.4, r1=7)
    assert "more pods" not in simulator.message(ConditionType.SLA_MET)


def test_the_sla_is_neither_met_nor_missed_while_metrics_are_missing() -> None:
    simulator, told = following(), []
    missing = (decision(7, stale=("arrivals: Prometheus is not reached",)), 100)
    for late, value, awaited in (
        (0.0, missing, True),
        (0.0, 7, False),
        (0.0, missing, False),
        (None, 7, False),
        (0.02, missing, False),
        (0.02, 7, False),
    ):
        decided(simulator, late=late, awaited=awaited, r1=value)
        told.append(simulator.condition(ConditionType.SLA_MET))
    pending, unknown = ("Unknown", "Pending"), ("Unknown", "MetricsMissing")
    met, missed = ("True", "WithinTarget"), ("False", "TargetMissed")
    assert told == [pending, met, unknown, pending, unknown, missed]


def test_what_is_said_of_scaling_ends_with_it() -> None:
    simulator = following()
    decided(simulator, late=0.0, r1=7)
    simulator.sizes = None
    simulator.edit(scaling={"min": 2})
    simulator.settle()
    status = simulator.service["status"]
    assert replicas(simulator) == {"r1": 2}
    assert "scaling" not in status
    kinds = {each["type"] for each in status["conditions"]}
    assert {"SLAMet", "ScalingLimited", "MetricsStale"} & kinds == {"SLAMet"}
    simulator.edit(sla={})
    simulator.settle()
    assert "SLAMet" not in {each["type"] for each in simulator.service["status"]["conditions"]}


@pytest.mark.parametrize(
    ("scaling", "helps"),
    [
        pytest.param({}, "the number of pods is fixed at 1: raise spec.scaling.min", id="default"),
        pytest.param({"min": 3, "max": 3}, "fixed at 3: raise spec.scaling.min", id="equal-bounds"),
        pytest.param(
            {"mode": "external", "replicas": 4, "max": 9}, "replicas asks for 4 pods", id="external"
        ),
    ],
)
def test_a_service_with_a_fixed_number_of_pods_says_whether_its_target_is_met(
    scaling: dict[str, Any], helps: str
) -> None:
    simulator, told = Simulator(service=service(sla=SLA, scaling=scaling)), []
    simulator.settle()
    unread = ("arrivals: Prometheus is not reached",)
    for seen in (
        ScalingDecisions({}, None, awaited=True, missing=unread),
        ScalingDecisions({}, None),
        ScalingDecisions({}, 0.01),
        ScalingDecisions({}, None),
        ScalingDecisions({}, None, missing=unread),
        ScalingDecisions({}, 0.02),
    ):
        simulator.sizes = seen
        simulator.reconcile()
        told.append(simulator.condition(ConditionType.SLA_MET))
    pending, unknown = ("Unknown", "Pending"), ("Unknown", "MetricsMissing")
    met, missed = ("True", "WithinTarget"), ("False", "TargetMissed")
    assert told == [pending, pending, met, met, unknown, missed]
    assert helps in simulator.message(ConditionType.SLA_MET)
    assert replicas(simulator) == {"r1": scaling.get("replicas", scaling.get("min", 1))}
    kinds = {each["type"] for each in simulator.service["status"]["conditions"]}
    assert not {"ScalingLimited", "MetricsStale"} & kinds


def test_a_service_without_a_target_is_not_watched() -> None:
    simulator = Simulator(service=service(sla={}))
    simulator.settle()
    assert simulator.plan().scalable is None
    simulator.sizes = ScalingDecisions({}, 0.5)
    simulator.reconcile()
    assert "SLAMet" not in {each["type"] for each in simulator.service["status"]["conditions"]}
