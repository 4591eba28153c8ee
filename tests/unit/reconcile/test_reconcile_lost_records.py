"""A ControllerRevision of pods that serve is deleted, or damaged, while another revision is on its way."""

import copy

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import service
from tests.support.simulated.serving import OTHER_MODEL
from tests.support.simulated.simulator import Simulator

CANARY = {"strategy": "canary", "steps": [{"weight": 10}], "promotion": "manual"}


@remembered
def canary() -> Simulator:
    simulator = Simulator(service=service(rollout=CANARY, scaling={"min": 2}))
    simulator.settle()
    simulator.edit(model=OTHER_MODEL)
    simulator.settle()
    return simulator


def told(simulator: Simulator) -> tuple[str, str]:
    """The reason and the message of the condition Conflict, which must be True."""
    status, reason = simulator.condition("Conflict")
    assert status == "True"
    return reason, simulator.message("Conflict")


@pytest.mark.parametrize("aborted", [False, True])
def test_a_deleted_record_is_told_until_it_is_restored(aborted: bool) -> None:
    simulator = canary()
    old, new = simulator.names("ControllerRevision")
    if aborted:
        simulator.annotate(abort=new)
        simulator.reconcile()
    record = simulator.objects.pop(("ControllerRevision", old))
    plan = simulator.reconcile()
    assert [(each.type, each.reason) for each in plan.events if each.reason == "RecordLost"] == [
        ("Warning", "RecordLost")
    ]
    simulator.edit(scaling={"min": 3})
    simulator.settle()
    reason, message = told(simulator)
    assert reason == "RecordLost"
    assert message.startswith(f"ControllerRevision {old} was deleted while its pods are needed. ")
    assert f"Deployment {old} stays as it is: it is not scaled" in message
    assert (f"let {new} take over" in message) is not aborted, "what was rejected is no remedy"
    deployment = simulator.objects["Deployment", old]
    assert (deployment["spec"]["replicas"], simulator.serving()[0]) == (2, old), "the message is true"
    simulator.objects["ControllerRevision", old] = record
    simulator.settle()
    assert simulator.condition("Conflict") == ("False", "NoConflict")
    assert simulator.objects["Deployment", old]["spec"]["replicas"] == 3


def test_the_remedies_that_are_told_end_it() -> None:
    for promote in (True, False):
        simulator = canary()
        old, new = simulator.names("ControllerRevision")
        before = simulator.objects.pop(("ControllerRevision", old))
        simulator.settle()
        if promote:
            simulator.annotate(promote=new)
        else:
            simulator.edit(model=service()["spec"]["model"])
            simulator.settle()
            simulator.annotate(promote=simulator.names("ControllerRevision")[-1])
        simulator.settle()
        assert simulator.condition("Conflict") == ("False", "NoConflict")
        (serving,) = simulator.serving()
        made = simulator.objects["ControllerRevision", serving]["data"]
        assert (serving == new) is promote
        assert (made["spec"] == before["data"]["spec"]) is not promote


def test_a_damaged_record_and_a_lost_deployment_are_told() -> None:
    simulator = canary()
    old, _ = simulator.names("ControllerRevision")
    record = copy.deepcopy(simulator.objects["ControllerRevision", old])
    simulator.objects["ControllerRevision", old] = record | {"data": {**record["data"], "template": "{"}}
    simulator.settle()
    reason, message = told(simulator)
    assert reason == "RevisionCorrupt"
    assert f"Deployment {old} stays as it is" in message
    del simulator.objects["Deployment", old]
    simulator.settle()
    reason, message = told(simulator)
    assert f"Deployment {old} is gone as well" in message
