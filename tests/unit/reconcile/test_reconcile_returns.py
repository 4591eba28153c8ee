"""A return that is asked for while something else is on its way: that ends first, and nothing is lost."""

from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import around, replicas, state, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import around_one, full
from tests.unit.reconcile.trials import Trial

PODS = 4
BEFORE: dict[str, tuple[dict[str, Any], int]] = {
    "a first step": ({"strategy": "canary"}, 5),
    "as many requests as the stable one": ({"strategy": "canary"}, 50),
    "most requests, on pods for a part of them": ({"strategy": "canary", "steps": [{"weight": 75}]}, 75),
    "all requests, after its steps": ({"strategy": "canary"}, 100),
    "all requests at once": ({}, 100),
}
IN_PLACE: dict[str, tuple[str, int, int]] = {
    f"{capacity}, {weight} percent, {devices} devices": (capacity, weight, devices)
    for capacity, weight, devices in (
        *(("inPlace", weight, PODS) for weight in (33, 66, 100)),
        *(("auto", weight, PODS) for weight in (33, 66, 100)),
        ("auto", 100, 2 * PODS),
    )
}


@remembered
def second(rollout: dict[str, Any]) -> Simulator:
    """The second revision is stable."""
    simulator = full(rollout, replicas=PODS, devices=2 * PODS)
    until(simulator, state("Promoted"))
    simulator.settle()
    return simulator


def third(rollout: dict[str, Any], *, weight: int, devices: int) -> Simulator:
    """The second revision is stable, and the third one has so much of its requests."""
    simulator = second(rollout)
    simulator.devices = devices
    simulator.edit(model=model("c"))
    until(simulator, lambda found: found["revision"].split("-")[1] == "r3" and found["weight"] >= weight)
    assert simulator.weights().get("r3") == weight
    return simulator


def go_back(simulator: Simulator) -> list[tuple[dict[str, int], dict[str, int], int]]:
    """Weights, pods and ready pods of each look until the first revision serves again."""
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    seen: list[tuple[dict[str, int], dict[str, int], int]] = []
    while not state("RolledBack")(around_one(simulator)):
        seen.append((simulator.weights(), replicas(simulator), simulator.ready_pods()))
        assert len(seen) < 60, seen
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": PODS})
    return seen


@pytest.mark.parametrize(("rollout", "weight"), BEFORE.values(), ids=BEFORE)
def test_the_stable_revision_has_its_requests_back_until_the_older_one_serves(
    rollout: dict[str, Any], weight: int
) -> None:
    stages = go_back(third(rollout, weight=weight, devices=2 * PODS))
    assert [weights for weights, _, _ in stages] == [{"r2": 100}] * (len(stages) - 1) + [{"r1": 100}]
    assert all(pods["r2"] == PODS for _, pods, _ in stages)


@pytest.mark.parametrize(("capacity", "weight", "devices"), IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_the_stable_revision_has_its_places_back_first(
    capacity: str, weight: int, devices: int
) -> None:
    simulator = third({"capacity": capacity}, weight=weight, devices=devices)
    stages = go_back(simulator)
    assert all(pods["r2"] >= 1 for _, pods, _ in stages)
    assert all(ready >= PODS - 1 for _, _, ready in stages)
    assert all({"r1", "r3"} - set(weights) for weights, _, _ in stages)
    for number in ("r1", "r3"):
        shares = [weights.get(number, 0) for weights, _, _ in stages]
        assert shares == sorted(shares, reverse=number == "r3")


def test_a_return_in_place_says_that_another_one_makes_way_first() -> None:
    simulator = third({"capacity": "inPlace"}, weight=66, devices=PODS)
    old, stable, new = simulator.names("ControllerRevision")
    simulator.annotate(rollback_to=old)
    around(simulator)
    assert simulator.rollout["message"].endswith(
        f"First, the pods of {stable} replace those of {new} in place"
    )


def test_another_return_begins_where_the_first_one_has_given_its_places_back() -> None:
    simulator = third({"capacity": "inPlace"}, weight=100, devices=PODS)
    until(simulator, state("Promoted"))
    simulator.settle()
    oldest, older, _ = simulator.names("ControllerRevision")
    simulator.annotate(rollback_to=older)
    until(simulator, lambda found: found["weight"] == 66)
    simulator.annotate(rollback_to=oldest)
    while not state("RolledBack")(around_one(simulator)):
        assert simulator.ready_pods() >= PODS - 1
        assert replicas(simulator)["r3"] >= 1
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": PODS})


@remembered
def reverted(pods: int) -> Trial:
    """The second revision has all requests for now; the first one is still the stable one."""
    trial = Trial(
        service=service(rollout={"scaleDownDelay": "1m", "progressDeadline": "30s"}, scaling={"min": pods})
    )
    trial.go(6)
    trial.edit(model=model("b"))
    trial.go(5)
    assert (trial.weights(), trial.marked("stable")) == ({"r2": 100}, {trial.names("Deployment")[0]})
    return trial


def hangs(trial: Trial) -> None:
    trial.out |= {pod for pod in trial.pods if "-r1-" in pod}


def crashes(trial: Trial) -> None:
    trial.dead.add("r1")


def has_no_place(trial: Trial) -> None:
    trial.devices = 1
    for pod in [pod for pod in trial.pods if "-r1-" in pod]:
        trial.end(pod)


VAIN: dict[str, tuple[Any, str, str]] = {
    "hangs": (hangs, "DeadlineExceeded", "kubectl delete pod"),
    "crashes": (crashes, "CrashLoop", "no such operator"),
    "has-no-place": (has_no_place, "Unschedulable", "waits for capacity"),
}


@pytest.mark.parametrize(("fault", "reason", "told"), VAIN.values(), ids=VAIN)
@pytest.mark.parametrize("pods", [1, 2], ids=["one-pod", "two-pods"])
def test_a_spec_whose_pods_do_not_come_back_says_why_and_what_else_helps(
    fault: Any, reason: str, told: str, pods: int
) -> None:
    trial = reverted(pods)
    fault(trial)
    trial.edit(model=service()["spec"]["model"])
    trial.go(3)
    assert trial.rollout["reason"] == "RollingOut"
    first, second = trial.names("ControllerRevision")
    events = [event for _ in range(40) for event in trial.go_round().events]
    assert (trial.rollout["state"], trial.rollout["reason"]) == ("Promoting", reason)
    message = trial.rollout["message"]
    assert told in message
    assert f"{first} has had no ready endpoint for 30s, and {second} gets the requests meanwhile" in message
    assert message.endswith("change the spec")
    assert reason in [event.reason for event in events if event.type == "Warning"]
    assert (trial.weights(), trial.marked("rejected-at")) == ({"r2": 100}, set())
    trial.ends()
    trial.mend()
    trial.devices = 10
    trial.requests = 1000
    trial.go(10)
    assert (trial.weights(), trial.condition("Promoted")) == ({"r1": 100}, ("True", "Promoted"))


def test_a_return_takes_place_while_nothing_can_be_made_of_the_newest_spec() -> None:
    trial = Trial(service=service(rollout={"scaleDownDelay": "4s"}))
    trial.go(6)
    trial.edit(model=model("b"))
    trial.go(20)
    first, second = trial.names("ControllerRevision")
    trial.edit(runtime={"name": "missing"})
    trial.go(2)
    trial.annotate(rollback_to=first)
    trial.go(20)
    assert (trial.weights(), trial.marked("stable")) == ({"r1": 100}, {first})
    assert trial.marked("rejected-at") == {second}
    assert trial.condition("ActionRefused")[0] == "False"
    assert trial.condition("Ready")[0] == "False"
    trial.ends()
    trial.requests = 1000
    trial.edit(runtime={"name": "onnxruntime"}, model=model("c"))
    trial.go(20)
    assert trial.serving() == [trial.names("ControllerRevision")[-1]]
