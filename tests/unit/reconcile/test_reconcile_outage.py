"""An outage comes before everything else that is said, whatever the newest spec is at."""

from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.support.copies import remembered
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import begun, judging, promoted_and_alone, state, until
from tests.support.simulated.simulator import Simulator


def break_first(simulator: Simulator) -> Plan:
    """Every pod of the first revision stops being ready."""
    (name, *_) = simulator.names("ControllerRevision")
    for pod in list(simulator.pods):
        if pod.startswith(name):
            simulator.make_ready(pod, ready=False)
    return simulator.reconcile()


def mend_first(simulator: Simulator) -> Plan:
    (name, *_) = simulator.names("ControllerRevision")
    for pod in list(simulator.pods):
        if pod.startswith(name):
            simulator.make_ready(pod)
    return simulator.reconcile()


@remembered
def rejected() -> Simulator:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.settle()
    return simulator


@remembered
def starting() -> Simulator:
    simulator = begun()
    simulator.reconcile()
    simulator.run_controllers()
    simulator.reconcile()
    return simulator


@remembered
def without_runtime() -> Simulator:
    simulator = begun()
    simulator.edit(runtime={"name": "missing"})
    simulator.reconcile()
    return simulator


BEFORE: dict[str, tuple[Any, str]] = {
    "rejected": (rejected, "was rejected: "),
    "starting": (starting, "is starting"),
    "without-a-runtime": (without_runtime, "spec.runtime.name is 'missing'"),
}


@pytest.mark.parametrize(("build", "beside"), BEFORE.values(), ids=BEFORE)
def test_an_outage_of_what_serves_is_told_first_and_by_an_event(build: Any, beside: str) -> None:
    simulator = build()
    old = simulator.names("ControllerRevision")[0]
    assert simulator.message("Ready").startswith(f"{old} serves; ")
    plan = break_first(simulator)
    assert simulator.condition("Ready") == ("False", "NotReady")
    for kind in ("Ready", "Promoted", "Reconciling"):
        message = simulator.message(kind)
        assert message.startswith(f"no endpoint of {old} is ready"), kind
        assert "so that requests fail; " in message
    assert beside in simulator.message("Ready")
    assert ("Warning", "NotReady") in [(event.type, event.reason) for event in plan.events]


def test_requests_that_are_answered_again_after_a_rollback_are_told_as_such() -> None:
    simulator = rejected()
    break_first(simulator)
    plan = mend_first(simulator)
    assert simulator.condition("Ready") == ("False", "RolledBack")
    assert [(event.type, event.reason) for event in plan.events] == [("Normal", "Serving")]


def test_without_a_gateway_nothing_serves_until_there_is_one() -> None:
    simulator = rejected()
    gateways, simulator.gateways = simulator.gateways, {}
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Ready") == ("False", "NoGateway")
    for kind in ("Ready", "Reconciling"):
        assert simulator.message(kind).startswith(
            "no gateway pod is Ready, so that no request reaches the service"
        ), kind
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "NoGateway")]
    simulator.gateways = gateways
    simulator.reconcile()
    assert simulator.condition("Ready") == ("False", "RolledBack")


def test_an_outage_says_what_the_pods_are_stuck_at() -> None:
    simulator = rejected()
    (name, *_) = simulator.names("ControllerRevision")
    for pod in [pod for pod in simulator.pods if pod.startswith(name)]:
        simulator.crash(pod, 1)
    simulator.reconcile()
    assert "no such operator" in simulator.message("Ready")
    begins = f"no endpoint of {name} is ready (container server of pod "
    assert simulator.message("Stalled").startswith(begins)


def test_a_recreate_announces_no_outage() -> None:
    simulator = begun({"strategy": "recreate"})
    reasons: list[str] = []
    for _ in range(12):
        simulator.work()
        reasons += [event.reason for event in simulator.reconcile().events]
    assert "NotReady" not in reasons
    assert "Promoted" in reasons or "Serving" in reasons


def test_a_canary_that_answers_alone_is_not_told_to_have_its_share_only() -> None:
    simulator = judging()
    old, new = simulator.names("ControllerRevision")
    for pod in list(simulator.pods):
        if "-r1-" in pod:
            simulator.make_ready(pod, False)
    simulator.reconcile()
    assert simulator.weights() == {"r2": 100}
    assert simulator.message("Promoted") == (
        f"{new} gets all requests while no endpoint of {old} is ready; step 1 of 2 is for 10 percent"
    )


def test_a_preview_has_not_passed_anything() -> None:
    simulator = begun({"strategy": "blueGreen", "promotion": "manual"})
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    _, new = simulator.names("ControllerRevision")
    assert simulator.message("Promoted") == (
        f"{new} is ready, untested by requests of the service, and spec.rollout.promotion is manual: "
        "promote or abort it"
    )


@pytest.mark.parametrize("crashes", [True, False], ids=["crash-loop", "not-ready"])
def test_an_outage_of_the_newest_revision_says_that_requests_fail(crashes: bool) -> None:
    simulator = promoted_and_alone()
    for pod in list(simulator.pods):
        if crashes:
            simulator.crash(pod, 5)
        simulator.make_ready(pod, False)
    simulator.reconcile()
    _, name = simulator.names("ControllerRevision")
    assert simulator.condition("Ready")[0] == "False"
    assert simulator.message("Ready").startswith(f"no endpoint of {name} is ready, so that requests fail")


def test_of_a_spec_that_cannot_work_no_revision_is_said_to_be_missing_at_all() -> None:
    simulator = promoted_and_alone()
    simulator.edit(model={**model("c"), "format": "nonsense"})
    simulator.reconcile()
    assert simulator.condition("Promoted") == ("Unknown", "Pending")
    assert simulator.message("Promoted") == "there is no revision of this spec yet"
