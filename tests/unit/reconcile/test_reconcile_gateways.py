"""What the gateways' reports come to."""

from dataclasses import replace
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.hosts import HostState, HostStatus
from tailbound.api.traffic import AppliedRoute, Observed, RejectedRoute, ServiceObservation
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.gateways import Wanted, applied, latest

from tests.support.simulated.gateways import START
from tests.support.simulated.objects import service
from tests.support.simulated.simulator import Simulator

WANTED = Wanted("risk/churn", generation=3, traffic_generation=7)


def says(
    routed: tuple[int, int] | None, rejected: tuple[int, int] | None = None, denied: tuple[str, ...] = ()
) -> Observed:
    def route(pair: tuple[int, int]) -> dict[str, Any]:
        return {"generation": pair[0], "traffic_generation": pair[1]}

    state = ServiceObservation(
        applied=AppliedRoute(**route(routed), denied_hosts=denied) if routed else None,
        rejected=RejectedRoute(**route(rejected), message="bad regex") if rejected else None,
    )
    return Observed(envoy_start_time=START, synced=True, services={"risk/churn": state})


DONE, BEHIND = says((3, 7)), says((3, 6))
ELSEWHERE = Observed(envoy_start_time=START, synced=True, services={"risk/other": ServiceObservation()})
CASES = {
    "none": ({}, Reason.NO_GATEWAY, False, "no gateway pod is Ready"),
    "all done": ({"a": DONE, "b": DONE}, Reason.ACKNOWLEDGED, True, "every gateway pod"),
    "one behind": ({"a": DONE, "b": BEHIND}, Reason.WAITING_FOR_GATEWAY, False, "gateway pod b has not"),
    "first of two behind": (
        {"b": BEHIND, "a": BEHIND},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "gateway pod a has not",
    ),
    "one unread": (
        {"a": DONE, "b": Unknown("timed out")},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "b could not be read: timed",
    ),
    "one without the service": (
        {"a": DONE, "b": ELSEWHERE},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "gateway pod b has not",
    ),
    "spec is newer, traffic is applied": ({"a": says((2, 7))}, Reason.WAITING_FOR_GATEWAY, True, "a has not"),
    "newest refused": (
        {"a": says((3, 6), (3, 7))},
        Reason.ROUTE_REJECTED,
        False,
        "a refused the route: bad regex",
    ),
    "an older one refused": ({"a": says((3, 7), (2, 7))}, Reason.ACKNOWLEDGED, True, "every gateway pod"),
    "refused by one, behind in another": (
        {"a": BEHIND, "b": says((3, 6), (3, 7))},
        Reason.ROUTE_REJECTED,
        False,
        "gateway pod b refused",
    ),
}
ACCEPTED = HostStatus(host="mine.example", state=HostState.ACCEPTED)
TAKEN = HostStatus(host="taken.example", state=HostState.TAKEN, owner="risk/fraud")
NAMED = HostStatus(host="fraud.risk", state=HostState.RESERVED, owner="risk/fraud")
UNGRANTED = HostStatus(host="theirs.example", state=HostState.NOT_GRANTED)
HOSTS: dict[str, tuple[tuple[HostStatus, ...], tuple[str, ...], Reason, list[str]]] = {
    "accepted": ((ACCEPTED,), (), Reason.ACKNOWLEDGED, ["every gateway pod"]),
    "taken": (
        (ACCEPTED, TAKEN),
        ("taken.example",),
        Reason.HOST_CONFLICT,
        ["taken.example belongs to InferenceService risk/fraud"],
    ),
    "not-granted": (
        (UNGRANTED,),
        ("theirs.example",),
        Reason.HOST_NOT_GRANTED,
        ["no HostGrant gives theirs.example to namespace risk"],
    ),
    "both": (
        (NAMED, UNGRANTED),
        ("theirs.example", "fraud.risk"),
        Reason.HOST_CONFLICT,
        ["no HostGrant gives theirs.example", "fraud.risk is a name of risk/fraud"],
    ),
    "the-gateway-still-answers": ((TAKEN,), (), Reason.WAITING_FOR_GATEWAY, ["the newest hosts"]),
    "the-gateway-does-not-answer-yet": (
        (ACCEPTED,),
        ("mine.example",),
        Reason.WAITING_FOR_GATEWAY,
        ["the newest hosts"],
    ),
}


@pytest.mark.parametrize(("hosts", "denied", "reason", "words"), HOSTS.values(), ids=HOSTS)
def test_decisions_on_hosts(
    hosts: tuple[HostStatus, ...], denied: tuple[str, ...], reason: Reason, words: list[str]
) -> None:
    found = applied({"a": says((3, 7), None, denied)}, replace(WANTED, hosts=hosts))
    assert (found.reason, found.acknowledged) == (reason, True)
    assert all(each in found.message for each in words)
    behind = applied({"a": says((3, 7), None, denied), "b": BEHIND}, replace(WANTED, hosts=hosts))
    assert behind.reason is Reason.WAITING_FOR_GATEWAY


@pytest.mark.parametrize(("gateways", "reason", "acknowledged", "words"), CASES.values(), ids=CASES)
def test_applied(
    gateways: dict[str, Observed | Unknown], reason: Reason, acknowledged: bool, words: str
) -> None:
    found = applied(gateways, WANTED)
    assert (found.reason, found.acknowledged) == (reason, acknowledged)
    assert words in found.message


UNREAD = Unknown("timed out")
ACKNOWLEDGED, WAITING = Reason.ACKNOWLEDGED, Reason.WAITING_FOR_GATEWAY
KEPT: dict[str, tuple[dict[str, Observed | Unknown], Reason, bool]] = {
    "all done": ({"a": DONE, "b": DONE}, ACKNOWLEDGED, True),
    "one unread": ({"a": DONE, "b": UNREAD}, ACKNOWLEDGED, True),
    "all unread": ({"a": UNREAD, "b": UNREAD}, ACKNOWLEDGED, True),
    "one without the service": ({"a": DONE, "b": ELSEWHERE}, ACKNOWLEDGED, True),
    "one says another": ({"a": DONE, "b": BEHIND}, WAITING, False),
    "one says another, one unread": ({"a": UNREAD, "b": says((3, 8))}, WAITING, False),
    "one refuses it": ({"a": says((3, 6), (3, 7))}, Reason.ROUTE_REJECTED, False),
    "none": ({}, Reason.NO_GATEWAY, False),
}


@pytest.mark.parametrize(("gateways", "reason", "acknowledged"), KEPT.values(), ids=KEPT)
def test_a_kept_acknowledgement_stands_for_gateways_that_say_nothing(
    gateways: dict[str, Observed | Unknown], reason: Reason, acknowledged: bool
) -> None:
    found = applied(gateways, WANTED, kept=True)
    assert (found.reason, found.acknowledged) == (reason, acknowledged)


LATEST: dict[str, tuple[dict[str, Observed | Unknown], int]] = {
    "none": ({}, 0),
    "unread": ({"a": UNREAD}, 0),
    "without-the-service": ({"a": ELSEWHERE}, 0),
    "nothing-applied": ({"a": says(None)}, 0),
    "the-highest-of-all": ({"a": BEHIND, "b": DONE, "c": UNREAD}, 7),
}


@pytest.mark.parametrize(("gateways", "generation"), LATEST.values(), ids=LATEST)
def test_latest_generation_that_a_gateway_applies(
    gateways: dict[str, Observed | Unknown], generation: int
) -> None:
    assert latest(gateways, "risk/churn") == generation


EDITS: dict[str, tuple[dict[str, Any], bool]] = {
    "max": ({"scaling": {"min": 2, "max": 7}}, False),
    "history-limit": ({"rollout": {"historyLimit": 3}}, False),
    "steps": ({"rollout": {"strategy": "canary", "steps": [{"weight": 7}]}}, False),
    "error-rate": ({"sla": {"latency": {"p99": "100ms"}, "errorRate": "1%"}}, False),
    "hosts": ({"hosts": ["churn.example.com"]}, True),
    "latency": ({"sla": {"latency": {"p99": "50ms"}}}, True),
    "preview": ({"rollout": {"promotion": "manual"}}, True),
}


@pytest.mark.parametrize(("fields", "awaited"), EDITS.values(), ids=EDITS)
def test_gateways_are_waited_for_where_an_edit_concerns_them(fields: dict[str, Any], awaited: bool) -> None:
    simulator = Simulator(service=service(scaling={"min": 2}, sla={"latency": {"p99": "100ms"}}))
    simulator.settle()
    for _ in range(2):
        simulator.edit(**fields)
        plan = simulator.reconcile()
        seen = simulator.service["status"]["observedGeneration"]
        assert seen == simulator.service["metadata"]["generation"]
        ready = ("Unknown", "WaitingForGateway") if awaited else ("True", "Serving")
        assert simulator.condition("Ready") == ready
        assert plan.watch_gateways is awaited
        assert awaited or plan.events == ()
        simulator.settle()
        assert simulator.condition("Ready") == ("True", "Serving")
        awaited = False
