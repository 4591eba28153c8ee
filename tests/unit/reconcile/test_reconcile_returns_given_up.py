"""A return that cannot happen ends, says why and names another way out; one overtaken rejects no fix."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import around, begun, replicas, state, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import pods_of


@remembered
def three(rollout: dict[str, Any] | None = None) -> Simulator:
    """Three revisions served one after the other, two pods each; the third does now."""
    simulator = begun({}, replicas=2)
    simulator.settle()
    simulator.edit(model=model("c"))
    simulator.settle()
    simulator.edit(rollout={"progressDeadline": "60s", **(rollout or {})})
    simulator.settle()
    assert simulator.weights() == {"r3": 100}
    return simulator


def look(simulator: Simulator, *, failing: str, restarts: int = 0) -> None:
    """Two seconds. Pods of one revision fail, all others work."""

    def kubelet(pod: str) -> None:
        if f"-{failing}-" not in pod:
            simulator.make_ready(pod)
        elif restarts:
            simulator.crash(pod, restarts)
        else:
            simulator.hang(pod, simulator.now)

    simulator.work(kubelet)
    simulator.traffic(100)
    simulator.now += timedelta(seconds=1)
    simulator.reconcile()


def names(simulator: Simulator) -> list[str]:
    return simulator.names("ControllerRevision")


@pytest.mark.parametrize("restarts", [0, 1, 3], ids=["hangs", "crashes", "crashes-too-often"])
def test_a_return_that_cannot_happen_is_given_up(restarts: int) -> None:
    simulator = three()
    oldest, older, serving = names(simulator)
    simulator.annotate(rollback_to=oldest)
    for _ in range(3):
        look(simulator, failing="r1", restarts=restarts)
    if restarts == 1:
        assert "no such operator" in simulator.rollout["message"]
        assert f"to end it now, abort {oldest}" in simulator.rollout["message"]
    looks = 0
    while simulator.rollout["state"] == "Promoting":
        look(simulator, failing="r1", restarts=restarts)
        looks += 1
        assert looks < 40
    rollout = simulator.rollout
    assert (rollout["state"], rollout["revision"], rollout["from"]) == ("Promoted", serving, oldest)
    assert rollout["reason"] == ("DeadlineExceeded" if not restarts else "CrashLoop")
    assert f"the rollback to {oldest} was abandoned" in rollout["message"]
    assert f"kubectl tailbound rollback churn --to {older} -n risk" in rollout["message"]
    for _ in range(3):
        around(simulator)
    assert (simulator.rollout["message"], simulator.weights()) == (rollout["message"], {"r3": 100})
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Promoted") == ("True", "Promoted")
    assert not simulator.marked("rejected-at")
    assert simulator.marked("return-given-up") == {oldest}
    assert replicas(simulator) == {"r3": 2}
    simulator.annotate(rollback_to=older)
    until(simulator, state("RolledBack"))
    assert simulator.weights() == {"r2": 100}


ROOMS: dict[str, tuple[dict[str, Any], int]] = {
    "beside": ({"capacity": "surge"}, 2),
    "beside-the-only-pod": ({"capacity": "auto"}, 1),
    "in-place-of-pods-that-nobody-ends": ({"capacity": "inPlace"}, 2),
}


@pytest.mark.parametrize(("rollout", "pods"), ROOMS.values(), ids=ROOMS)
def test_a_return_that_lacks_capacity_is_given_up_and_names_another_way_out(
    rollout: dict[str, Any], pods: int
) -> None:
    simulator = three(rollout)
    simulator.edit(scaling={"min": pods})
    simulator.settle()
    oldest, older, _ = names(simulator)
    simulator.devices = pods
    for gateway in simulator.gateways.values():
        gateway.readable = rollout["capacity"] != "inPlace"
    simulator.annotate(rollback_to=oldest)
    looks = 0
    while "was abandoned" not in simulator.rollout["message"]:
        if looks == 5:
            assert "is abandoned if no further pod gets ready within" in simulator.rollout["message"]
        simulator.work(behind=set(simulator.gateways))
        simulator.now += timedelta(seconds=1)
        simulator.reconcile()
        looks += 1
        assert looks < 60, simulator.rollout
    assert looks > 25
    assert f"kubectl tailbound rollback churn --to {older} -n risk" in simulator.rollout["message"]
    assert (simulator.weights(), simulator.marked("rejected-at")) == ({"r3": 100}, set())
    simulator.settle()
    assert replicas(simulator) == {"r3": pods}


def test_a_return_can_be_aborted() -> None:
    simulator = three()
    oldest = names(simulator)[0]
    simulator.annotate(rollback_to=oldest)
    look(simulator, failing="r1")
    look(simulator, failing="r1")
    simulator.annotate(abort=oldest)
    look(simulator, failing="r1")
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("Promoted", "AbortedManually")
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r3": 100}, {"r3": 2})
    assert simulator.condition("ActionRefused")[0] == "False"
    assert simulator.marked("return-given-up") == {oldest}
    simulator.annotate(rollback_to=f"{oldest}/again")
    until(simulator, state("RolledBack"))
    assert simulator.weights() == {"r1": 100}
    assert simulator.marked("return-given-up") == set()


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
def test_in_place_a_return_that_is_given_up_leaves_all_places_where_they_were(capacity: str) -> None:
    simulator = three({"capacity": capacity})
    simulator.devices = 2
    simulator.annotate(rollback_to=names(simulator)[0])
    for _ in range(60):
        look(simulator, failing="r1")
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r3": 100}, {"r3": 2})
    assert simulator.rollout["reason"] == "DeadlineExceeded"


def test_what_was_on_its_way_goes_on_after_a_return_that_is_given_up() -> None:
    simulator = three({"strategy": "canary"})
    simulator.edit(model=model("d"))
    until(simulator, lambda rollout: rollout.get("weight") == 5)
    simulator.annotate(rollback_to=names(simulator)[0])
    look(simulator, failing="r1")
    while simulator.rollout["revision"] != names(simulator)[3]:
        look(simulator, failing="r1")
    assert simulator.marked("rejected-at") == set()
    until(simulator, lambda rollout: rollout.get("weight") == 5)
    assert simulator.weights() == {"r3": 95, "r4": 5}


def test_a_lost_revision_gets_the_one_before_the_one_that_cannot_return() -> None:
    simulator = three()
    older = names(simulator)[1]

    def kubelet(pod: str) -> None:
        if "-r1-" in pod:
            simulator.make_ready(pod)
        else:
            simulator.hang(pod, simulator.now)

    for _ in range(150):
        simulator.work(kubelet)
        simulator.now += timedelta(seconds=1)
        simulator.reconcile()
    assert simulator.weights() == {"r1": 100}
    assert simulator.marked("rejected-at") == {older, names(simulator)[2]}
    assert simulator.marked("return-given-up") == set()
    assert pods_of(simulator, "r2") == []


OVERTAKEN = {
    "before-anything-was-done": 0,
    "while-it-starts": 1,
    "while-the-gateways-apply-it": 3,
}


@pytest.mark.parametrize("looks", OVERTAKEN.values(), ids=OVERTAKEN)
@pytest.mark.parametrize("on_its_way", [False, True], ids=["bad-one-is-stable", "bad-one-is-a-canary"])
def test_a_return_rejects_the_revision_that_was_meant_and_never_its_fix(looks: int, on_its_way: bool) -> None:
    simulator = three({"strategy": "canary"})
    if on_its_way:
        simulator.edit(model=model("d"))
        until(simulator, lambda rollout: rollout.get("weight") == 5)
    bad = names(simulator)[-1]
    simulator.annotate(rollback_to=names(simulator)[0])
    for _ in range(looks):
        look(simulator, failing="r1") if looks == 1 else around(simulator)
    if simulator.rollout["state"] == "RolledBack":
        return
    simulator.edit(model=model("e"))
    for _ in range(10):
        around(simulator)
        if simulator.marked("rejected-at"):
            break
    meant = names(simulator)[2] if on_its_way and not looks else bad
    assert simulator.marked("rejected-at") == {meant}
    fix = names(simulator)[-1]
    until(simulator, lambda rollout: rollout["revision"] == fix and rollout["state"] == "Promoted")
    assert simulator.serving() == [fix]
