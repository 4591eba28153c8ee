"""A stable revision whose pods hang, running and not ready, on full nodes: a fix gets their places."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.effort import covering
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import replicas
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import full, pods_of

CAPACITIES = ("surge", "inPlace", "auto")
STRATEGIES = ("blueGreen", "canary")


def broken(pods: int, hung: int, rollout: dict[str, Any]) -> tuple[Simulator, Iterator[None]]:
    """A service with as many devices as pods, so many of which hang from now on; and looks at it."""
    simulator = full({"progressDeadline": "60s", **rollout}, replicas=pods, devices=2 * pods)
    simulator.edit(model=model("a"))
    simulator.settle()
    simulator.devices = pods
    simulator.edit(model=model("b"))
    return simulator, looks(simulator, set(pods_of(simulator, "r1")[:hung]))


def looks(simulator: Simulator, hung: set[str]) -> Iterator[None]:
    """Two seconds each. Every pod works but those that hang and, if all do, those that replace them."""
    whole, since = hung == set(pods_of(simulator, "r1")), simulator.now

    def kubelet(pod: str) -> None:
        if pod in hung or (whole and "-r1-" in pod):
            simulator.hang(pod, since)
        else:
            simulator.make_ready(pod)

    while True:
        simulator.work(kubelet)
        simulator.traffic(1000)
        simulator.reconcile()
        yield


HUNG = {
    f"{hung}-of-{pods}-{capacity}-{strategy}": (pods, hung, {"capacity": capacity, "strategy": strategy})
    for (pods, hung), capacity, strategy in covering(((1, 1), (2, 1), (3, 3)), CAPACITIES, STRATEGIES)
}


@pytest.mark.parametrize(("pods", "hung", "rollout"), HUNG.values(), ids=HUNG)
def test_a_fix_takes_over_from_pods_that_hang(pods: int, hung: int, rollout: dict[str, Any]) -> None:
    simulator, look = broken(pods, hung, rollout)
    for _ in range(400):
        next(look)
        if simulator.rollout["state"] == "Promoted":
            break
    assert simulator.rollout["state"] == "Promoted", simulator.rollout
    for _ in range(4):
        next(look)
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r2": pods})
    assert simulator.ready_pods() == pods


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("pods", "hung"), [(2, 1), (2, 2), (4, 2), (4, 4)])
def test_in_place_a_pod_that_does_not_serve_is_replaced_at_once(pods: int, hung: int, strategy: str) -> None:
    simulator, look = broken(pods, hung, {"capacity": "inPlace", "strategy": strategy})
    while replicas(simulator).get("r2", 0) < 1:
        next(look)
    assert replicas(simulator) == {"r1": pods - 1, "r2": 1}
    assert simulator.ready_pods() == pods - hung


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_fix_that_waits_for_the_only_pod_names_recreate(capacity: str) -> None:
    simulator, look = broken(1, 1, {"capacity": capacity})
    for _ in range(6):
        next(look)
    stable = simulator.names("ControllerRevision")[0]
    says = (
        f"The only pod of {stable} is replaced in place only after it has not been ready for 1m; "
        "with spec.rollout.strategy recreate it ends at once"
    )
    for message in (simulator.rollout["message"], simulator.message("Promoted"), simulator.message("Ready")):
        assert says in message
    simulator.edit(rollout={"strategy": "recreate"})
    for _ in range(60):
        next(look)
    assert simulator.weights() == {"r2": 100}


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_bad_fix_is_rejected_and_the_stable_revision_gets_its_places_back(capacity: str) -> None:
    simulator, _ = broken(2, 2, {"capacity": capacity})
    since = simulator.now
    for _ in range(200):
        simulator.work(partial(simulator.hang, since=since))
        simulator.reconcile()
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "DeadlineExceeded")
    assert replicas(simulator)["r1"] == 2
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 2})
