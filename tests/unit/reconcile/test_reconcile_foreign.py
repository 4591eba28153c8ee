"""What others do to the children of a service, or have in their place."""

import copy
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.reconcile.model import Plan, RefusedWrite

from tests.support.simulated.objects import NAME, model, service
from tests.support.simulated.rollouts import begun, until
from tests.support.simulated.serving import OTHER_MODEL, described, settled, verbs
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.trials import Trial


def test_restart_annotation_and_foreign_fields_stay() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    live = simulator.objects["Deployment", name]
    live["metadata"].setdefault("annotations", {})["team"] = "risk"
    live["metadata"]["labels"]["foreign"] = "yes"
    live["spec"]["template"]["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"
    }
    simulator.touch(live)
    assert simulator.plan() == Plan()


FOREIGN = {
    "name": "someone",
    "uid": "other",
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "controller": True,
}
PREVIOUS = {
    "name": NAME,
    "uid": "uid-of-an-earlier-churn",
    "kind": "InferenceService",
    "apiVersion": "tailbound.dev/v1alpha1",
    "controller": True,
}


def child(kind: str, name: str, owner: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "risk",
            "uid": "x",
            "resourceVersion": "1",
            "labels": {"tailbound.dev/service": NAME},
            "ownerReferences": [owner] if owner else [],
        },
    }


@pytest.mark.parametrize("owner", [FOREIGN, None])
@pytest.mark.parametrize("kind", ["Service", "Deployment", "ControllerRevision"])
def test_a_name_of_somebody_else_stalls_and_nothing_is_created(
    kind: str, owner: dict[str, Any] | None
) -> None:
    simulator = Simulator()
    name = NAME if kind == "Service" else simulator.plan().writes[1].body["metadata"]["name"]  # type: ignore[union-attr]
    theirs = child(kind, name, owner)
    simulator.objects[kind, name] = copy.deepcopy(theirs)
    plan = simulator.reconcile()
    assert [verb for verb in verbs(plan) if verb != ("Create", "Service") or kind == "Service"] == []
    assert simulator.objects[kind, name] == theirs
    assert simulator.condition("Ready") == ("False", "NameConflict")
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert simulator.condition("Reconciling") == ("False", "NameConflict")
    assert f"{kind} {name} exists and belongs to" in simulator.message("Stalled")
    assert "traffic" not in simulator.service["status"]
    assert simulator.reconcile().status is None


def test_a_refused_create_is_told_and_tried_again_later() -> None:
    simulator = Simulator()
    simulator.service["metadata"].update(name="kubernetes", namespace="default")
    simulator.refused_writes = (
        RefusedWrite("Service", "kubernetes", Reason.NAME_CONFLICT, "Service kubernetes has another owner"),
    )
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert plan.requeue_after is not None
    simulator.refused_writes = ()
    assert described(simulator.plan().writes[0]) == ("Create", "Service", "kubernetes")


def test_what_serves_is_made_whole_while_a_name_is_taken() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.objects["Service", NAME] = child("Service", NAME, FOREIGN)
    del simulator.objects["Deployment", old]
    assert [described(write) for write in simulator.reconcile().writes] == [("Create", "Deployment", old)]
    assert simulator.condition("Ready") == ("False", "NameConflict")
    assert simulator.message("Ready").startswith(f"{old} serves; ")


def test_quota_on_a_deployment_is_no_stall() -> None:
    simulator = Simulator()
    name = described(simulator.plan().writes[3])[2]
    simulator.refused_writes = (
        RefusedWrite("Deployment", name, Reason.QUOTA_EXCEEDED, "exceeded quota: objects"),
    )
    simulator.reconcile()
    assert simulator.condition("Ready") == ("False", "QuotaExceeded")
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    assert simulator.condition("Reconciling") == ("True", "QuotaExceeded")


def test_children_of_a_deleted_namesake_are_waited_for() -> None:
    simulator = Simulator()
    theirs = child("Service", NAME, PREVIOUS)
    simulator.objects["Service", NAME] = theirs
    assert simulator.reconcile().writes == ()
    assert simulator.condition("Ready") == ("Unknown", "Pending")
    assert "garbage collection" in simulator.message("Ready")
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    del simulator.objects["Service", NAME]
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_child_that_is_being_deleted_is_waited_for() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    live = simulator.objects["Deployment", name]
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    simulator.touch(live)
    assert simulator.reconcile().writes == ()
    assert f"Deployment {name} is being deleted" in simulator.message("Ready")
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_service_that_is_being_deleted_is_left_to_garbage_collection() -> None:
    simulator = settled()
    simulator.service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    simulator.objects.clear()
    plan = simulator.plan()
    assert (plan.writes, plan.status) == ((), None)


def orphaned(simulator: Simulator) -> None:
    """The controllers of all children are gone, as after kubectl delete --cascade=orphan."""
    for stored in simulator.objects.values():
        stored["metadata"].pop("ownerReferences", None)
        simulator.touch(stored)


@pytest.mark.parametrize("recreated", [True, False], ids=["deleted-and-applied", "stripped"])
def test_children_without_a_controller_are_adopted_and_nothing_restarts(recreated: bool) -> None:
    simulator = settled(scaling={"min": 2})
    for letter in ("b", "c"):
        simulator.edit(model=model(letter))
        simulator.settle()
    pods, children = set(simulator.pods), set(simulator.objects)
    marks = simulator.marked("promoted-at"), simulator.marked("stable")
    orphaned(simulator)
    if recreated:
        simulator.service["metadata"] |= {"uid": "uid-of-the-new-one", "generation": 1}
        del simulator.service["status"]
    simulator.settle()
    assert simulator.plan() == Plan()
    assert (set(simulator.pods), set(simulator.objects)) == (pods, children)
    assert (simulator.marked("promoted-at"), simulator.marked("stable")) == marks
    owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in simulator.objects.values()}
    assert owners == {simulator.service["metadata"]["uid"]}
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.rollout["state"] == "Promoted"


def test_what_lacks_our_labels_is_not_adopted() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    stored = simulator.objects["Deployment", name]
    del stored["metadata"]["ownerReferences"]
    stored["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    simulator.touch(stored)
    plan = simulator.reconcile()
    assert ("Apply", "Deployment") not in verbs(plan)
    assert simulator.condition("Ready") == ("False", "NameConflict")


def test_a_service_that_lost_owner_and_labels_is_in_the_way_until_it_is_deleted() -> None:
    trial = Trial(service=service(rollout={"progressDeadline": "30s"}))
    trial.go(6)
    stored = trial.objects["Service", NAME]
    stored["metadata"].pop("ownerReferences")
    stored["metadata"]["labels"].pop("app.kubernetes.io/managed-by")
    trial.touch(stored)
    trial.edit(model=model("b"))
    trial.ends()
    assert f"Service {NAME} exists and belongs to no controller" in trial.message("Stalled")
    trial.mend()
    trial.heals()


def test_services_of_two_revisions_that_are_deleted_by_hand_come_back_and_the_rollout_goes_on() -> None:
    simulator = begun({}, replicas=1)
    until(simulator, lambda rollout: rollout["weight"] == 100)
    for name in simulator.names("Deployment"):
        del simulator.objects["Service", name]
    simulator.reconcile()
    simulator.settle()
    assert (simulator.weights(), simulator.condition("Promoted")) == ({"r2": 100}, ("True", "Promoted"))
