"""A status from a backup: what the gateways and the cluster say themselves goes before it."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import around, begun, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.trials import Trial

SILENT = {
    "both-lag": ({"gateway-a", "gateway-b"}, set()),
    "one-lags": ({"gateway-b"}, set()),
    "one-lags-and-is-unread": ({"gateway-b"}, {"gateway-b"}),
    "one-is-unread": (set(), {"gateway-b"}),
}


def restored() -> tuple[Simulator, str]:
    """The status of before the canary, while the gateways send requests to that; and the canary's name."""
    simulator = begun()
    saved = copy.deepcopy(simulator.service["status"])
    until(simulator, lambda rollout: rollout["weight"] == 10)
    around(simulator)
    simulator.service["status"] = saved
    simulator.touch(simulator.service)
    return simulator, simulator.names("ControllerRevision")[1]


def look(simulator: Simulator, behind: set[str]) -> Any:
    """Two seconds in which some gateways apply nothing."""
    simulator.work(behind=behind)
    return simulator.reconcile()


@pytest.mark.parametrize(("behind", "unread"), SILENT.values(), ids=SILENT)
def test_what_a_gateway_sends_requests_to_outlives_a_restored_status(
    behind: set[str], unread: set[str]
) -> None:
    simulator, canary = restored()
    simulator.edit(model=model("a"))
    for name in unread:
        simulator.gateways[name].readable = False
    for _ in range(6):
        plan = look(simulator, behind)
    assert canary in simulator.names("Deployment")
    assert simulator.condition("TrafficApplied") == ("False", "WaitingForGateway")
    assert plan.watch_gateways
    assert (plan.writes, plan.status) == ((), None)
    simulator.settle()
    assert canary not in simulator.names("Deployment")
    assert simulator.condition("Ready") == ("True", "Serving")


def test_the_traffic_of_a_restored_status_gets_a_generation_that_no_gateway_knows() -> None:
    simulator, _ = restored()
    known = {gateway.route["generation"] for gateway in simulator.gateways.values() if gateway.route}
    simulator.edit(model=model("a"))
    look(simulator, {"gateway-a", "gateway-b"})
    traffic = simulator.service["status"]["traffic"]
    assert traffic["generation"] > max(known) + 1_000_000
    look(simulator, {"gateway-b"})
    assert simulator.service["status"]["traffic"] == traffic


def test_an_unread_gateway_changes_nothing_of_a_service_with_one_revision() -> None:
    simulator = begun()
    simulator.edit(model=model("a"))
    simulator.settle()
    simulator.gateways["gateway-b"].readable = False
    assert replace(simulator.reconcile(), scalable=None) == Plan()


def test_no_deadline_goes_on_from_a_backup() -> None:
    steps = {"strategy": "canary", "steps": [{"weight": 5}, {"weight": 50}], "minStepTime": "2s"}
    trial = Trial(
        service=service(
            rollout={**steps, "promotion": "manual", "progressDeadline": "30s"}, scaling={"min": 4}
        )
    )
    trial.go(6)
    trial.edit(model=model("b"))
    while trial.service["status"]["rollout"].get("stepWeight") != 50:
        trial.go(1)
    saved = copy.deepcopy(trial.service["status"])
    trial.go(20)
    assert trial.rollout["reason"] == "AwaitingPromotion"
    trial.out.add(next(pod for pod in trial.pods if "-r2-" in pod))
    trial.go(1, seconds=3600)
    trial.service["status"] = saved
    trial.touch(trial.service)
    trial.reconcile()
    trial.go(10)
    assert trial.marked("rejected-at") == set()
    trial.go(20)
    assert trial.marked("rejected-at") == {trial.rollout["revision"]}, "the deadline lasts as long as any"
