"""What is read of an InferenceService, and what is refused in which words."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.traffic.intent import RoutingSpec, read_intent
from tailbound.traffic.model import RouteRejection

from tests.unit.traffic.traffic_objects import service


def read(obj: Any) -> RoutingSpec:
    found = read_intent(obj)
    assert isinstance(found, RoutingSpec), found
    return found


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"timeout": "250ms"}, 0.25),
        ({}, 30),
        ({"sla": {"latency": {"p99": "100ms"}}}, 2),
        ({"sla": {"latency": {"p99": "10ms"}}}, 1),
        ({"sla": {"latency": {"p99": "1m"}}}, 300),
        ({"sla": {"latency": {"p99": "100ms"}}, "timeout": "7s"}, 7),
    ],
)
def test_timeout(spec: Any, seconds: float) -> None:
    assert read(service("churn", **spec)).timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("spec", "sheds"),
    [
        pytest.param({"overload": "shed", "sla": {"latency": {"p99": "1s"}}}, True, id="shed"),
        pytest.param({"overload": "queue", "sla": {"latency": {"p99": "1s"}}}, False, id="queue"),
        pytest.param({"sla": {"latency": {"p99": "1s"}}}, False, id="the-default"),
        pytest.param({"overload": "shed"}, False, id="without-a-target-nothing-is-late"),
        pytest.param({"overload": {"of": "tomorrow"}}, False, id="what-is-unheard-of"),
    ],
)
def test_whether_pods_are_to_refuse_what_would_be_late(spec: Any, sheds: bool) -> None:
    assert read(service("churn", **spec)).sheds is sheds


def test_fields_that_do_not_matter_here_may_be_wrong_or_new() -> None:
    obj = service("churn", {"r1": 100}, model={"uri": 7}, scaling="no", fromTheFuture={"a": 1})
    assert read(obj).traffic is not None


def test_without_status_nothing_is_to_be_served() -> None:
    obj = service("churn")
    del obj["status"]
    assert read(obj).traffic is None


@pytest.mark.parametrize(
    ("spec", "traffic", "message"),
    [
        (
            {"timeout": "soon"},
            None,
            "spec.timeout: 'soon' is not a duration: write a whole number and one of the units ms, s, m, h",
        ),
        ({"timeout": "2h"}, None, "spec.timeout: '2h' is out of range: write a duration from 1ms to 1h"),
        ({"hosts": ["*.example.com"]}, None, "spec.hosts[0]: '*.example.com' is a wildcard"),
        ({"hosts": ["a.example.com:80"]}, None, "spec.hosts[0]: 'a.example.com:80' is not a host"),
        ({"stopped": {"by": "me"}}, None, "spec.stopped: {'by': 'me'} cannot be used"),
        ({}, "all", "status.traffic: 'all' cannot be used"),
        ({}, {"generation": 0, "backends": []}, "status.traffic.generation: 0 cannot be used"),
        (
            {},
            {"generation": 7, "backends": [{"revision": "r1", "weight": 101}]},
            "status.traffic.backends[0].weight: 101 cannot be used",
        ),
        (
            {},
            {"generation": 7, "backends": [{"revision": "r1", "weight": 90}]},
            "status.traffic.backends: the weights add up to 90: make them add up to 100",
        ),
        (
            {},
            {"generation": 7, "backends": [{"revision": "r1", "weight": 50}] * 2},
            "status.traffic.backends: 'r1' is listed twice",
        ),
        (
            {},
            {"generation": 7, "backends": [{"revision": "../r1", "weight": 100}]},
            "status.traffic.backends: '../r1' cannot name a revision: write the name of a ControllerRevision",
        ),
    ],
)
def test_refused(spec: Any, traffic: Any, message: str) -> None:
    obj = {**service("churn", generation=3, **spec), "status": {"traffic": traffic} if traffic else {}}
    found = read_intent(obj)
    assert isinstance(found, RouteRejection)
    assert found.message.startswith(message)
    assert found.generation == 3
    assert found.traffic_generation == (7 if isinstance(traffic, dict) and traffic["generation"] else 0)


@pytest.mark.parametrize("obj", [{"metadata": {"namespace": "n", "name": "s"}, "spec": 1, "status": 2}])
def test_nonsense_is_refused_and_raises_nothing(obj: Any) -> None:
    assert isinstance(read_intent(obj), RouteRejection)
