"""An edit takes over: in which order, and what is kept while it has not."""

import json
from datetime import timedelta

from tailbound.reconcile.model import Delete

from tests.support.simulated.objects import runtime, spec
from tests.support.simulated.serving import OTHER_MODEL, described, settled, template_of, verbs
from tests.support.simulated.simulator import Simulator


def edited(simulator: Simulator) -> tuple[str, str]:
    """The model was changed, and the new revision starts; the old one and the new one."""
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    assert ("Create", "Deployment") in verbs(simulator.reconcile())
    new = simulator.names("Deployment")[1]
    assert simulator.condition("Ready") == ("Unknown", "RollingOut")
    assert simulator.message("Ready") == f"{old} serves; {new} is starting"
    assert (
        simulator.service["status"]["stable"]["revision"],
        simulator.service["status"]["canary"]["revision"],
    ) == (old, new)
    return old, new


def test_an_edit_rolls_over_in_order() -> None:
    simulator = settled(scaling={"min": 2})
    old, new = edited(simulator)
    simulator.run_controllers()
    first, second = (pod for pod in simulator.pods if pod.startswith(new))
    simulator.make_ready(first)
    simulator.reconcile()
    assert simulator.serving() == [old], "one of two pods is not enough for all requests"

    simulator.make_ready(second)
    simulator.reconcile()
    assert simulator.serving() == [new]
    simulator.sync("gateway-a")
    assert not any(isinstance(write, Delete) for write in simulator.reconcile().writes)
    assert simulator.condition("Ready") == ("Unknown", "WaitingForGateway")
    assert "gateway-b" in simulator.message("Ready")

    simulator.sync("gateway-b")
    pods = {name for name in simulator.pods if name.startswith(new)}
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert plan.requeue_after == timedelta(seconds=30)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Promoted") == ("Unknown", "RollingOut")
    assert simulator.objects["Deployment", old]["spec"]["replicas"] == 2, "a return takes no start"

    simulator.now += plan.requeue_after
    plan = simulator.reconcile()
    assert simulator.condition("Promoted") == ("True", "Promoted")
    assert [described(write) for write in plan.writes] == [
        ("Apply", "ControllerRevision", old),
        ("Apply", "ControllerRevision", new),
        ("Delete", "Deployment", old),
        ("Delete", "Service", old),
        ("Delete", "PodDisruptionBudget", old),
    ]
    simulator.settle()
    assert set(simulator.pods) == pods, "promotion moves no pods"
    assert simulator.names("ControllerRevision") == [old, new]


def test_nothing_shrinks_while_there_is_no_gateway() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.gateways.clear()
    for _ in range(5):
        simulator.reconcile()
        simulator.run_controllers()
        for pod in list(simulator.pods):
            simulator.make_ready(pod)
    assert old in simulator.names("Deployment")
    assert simulator.condition("TrafficApplied") == ("False", "NoGateway")
    assert simulator.condition("Ready") == ("False", "NoGateway")


def test_returning_to_an_older_spec_brings_its_template_back_byte_for_byte() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    before = json.dumps(template_of(simulator, old))
    simulator.edit(model=OTHER_MODEL)
    simulator.settle()
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="a-newer-runtime")}
    simulator.edit(model=spec()["model"])
    simulator.settle()
    assert simulator.names("Deployment") == [old]
    assert json.dumps(template_of(simulator, old)) == before
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeChanged")
    assert len(simulator.names("ControllerRevision")) == 2


def test_a_deployment_deleted_by_hand_comes_back_byte_for_byte_even_without_its_runtime() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    before = json.dumps(template_of(simulator, name))
    del simulator.objects["Deployment", name]
    simulator.cluster_runtimes, simulator.hardware_classes = {}, {}
    assert verbs(simulator.reconcile()) == [("Create", "Deployment")]
    assert json.dumps(template_of(simulator, name)) == before
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeNotFound")


def test_what_serves_is_made_whole_while_the_edit_is_stuck() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL, runtime={"name": "missing"})
    del simulator.objects["Deployment", name]
    assert verbs(simulator.reconcile()) == [("Create", "Deployment")]
    assert simulator.names("Deployment") == [name]
    assert simulator.condition("Ready") == ("False", "RuntimeNotFound")
    assert simulator.message("Ready").startswith(f"{name} serves; ")


def test_a_revision_whose_record_was_deleted_serves_until_its_successor_does() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    del simulator.objects["ControllerRevision", old]
    simulator.reconcile()
    new = simulator.names("Deployment")[1]
    assert new.startswith("churn-r2-")
    assert simulator.serving() == [old]
    simulator.settle()
    assert simulator.names("Deployment") == [new]
