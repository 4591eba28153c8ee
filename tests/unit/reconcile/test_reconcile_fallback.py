"""A service with several hardware classes serves from the first that has room, and returns by a rollout."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from tailbound.api.rollout import RolloutState
from tailbound.reconcile.rollouts import _on_one_class
from tailbound.reconcile.snapshot import Snapshot, read
from tailbound.revisions.record import CorruptRevisionError, from_object
from tailbound.rollout.progress import RolloutProgress

from tests.support.copies import remembered
from tests.support.simulated.objects import hardware_class, model, service
from tests.support.simulated.rollouts import CANARY, SLA, until
from tests.support.simulated.serving import template_of
from tests.support.simulated.simulator import Simulator

GPU = {"resources": [{"name": "nvidia.com/gpu", "count": 1}]}
CLASSES = {
    "fast": hardware_class("fast", default=False, **GPU),
    "slow": hardware_class("slow", default=False, nodeSelector={"kind": "cpu"}),
}
HARDWARE = {"class": ["fast", "slow"], "fallbackAfter": "30s"}


@remembered
def started(full: str = "fast", **fields: Any) -> Simulator:
    simulator = Simulator(service=service(**{"hardware": HARDWARE, **fields}), hardware_classes=CLASSES)
    simulator.full_classes = {full} if full else set()
    simulator.settle()
    return simulator


def hardware(simulator: Simulator) -> dict[str, Any]:
    found: dict[str, Any] = simulator.service["status"]["hardware"]
    return found


def classes(simulator: Simulator) -> list[str]:
    """The classes of the pods that are there."""
    annotation = "tailbound.dev/hardware-class"
    return sorted(pod["metadata"]["annotations"][annotation] for pod in simulator.pods.values())


def test_the_first_class_serves_where_it_has_room() -> None:
    simulator = started(full="")
    assert hardware(simulator) == {"class": "fast"}
    assert simulator.condition("Scheduled") == ("True", "Scheduled")
    assert classes(simulator) == ["fast"]


def test_the_next_class_serves_after_the_time_and_the_status_says_why_and_since_when() -> None:
    simulator = Simulator(service=service(hardware=HARDWARE), hardware_classes=CLASSES)
    simulator.full_classes = {"fast"}
    began = simulator.now
    for _ in range(20):
        simulator.work()
        simulator.reconcile()
    assert simulator.condition("Scheduled") == ("False", "Unschedulable")
    assert classes(simulator) == ["fast"]
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Scheduled") == ("True", "FallbackClass")
    assert "HardwareClass slow instead of fast: no pod found a node of HardwareClass fast: 0/1 nodes" in (
        simulator.message("Scheduled")
    )
    assert classes(simulator) == ["slow"]
    found = hardware(simulator)
    assert found["class"] == "slow"
    assert found["since"] > began.isoformat()[:19]
    assert "Insufficient nvidia.com/gpu" in found["message"]
    (name,) = simulator.names("ControllerRevision")
    pod = template_of(simulator, name)["spec"]
    assert pod["nodeSelector"] == {"kind": "cpu"}
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]


def test_a_lost_status_does_not_lose_the_class() -> None:
    simulator = started()
    before = hardware(simulator)
    simulator.service["status"] = {}
    simulator.full_classes = set()
    simulator.settle()
    assert hardware(simulator) == before
    assert classes(simulator) == ["slow"]


def test_a_refresh_returns_through_a_rollout_and_not_before_there_is_room() -> None:
    simulator = started()
    simulator.annotate(refresh="1")
    simulator.settle()
    assert hardware(simulator)["class"] == "slow", "there is still no room"
    assert simulator.condition("Ready") == ("True", "Serving")
    simulator.full_classes = set()
    simulator.annotate(refresh="2")
    simulator.settle()
    assert hardware(simulator) == {"class": "fast"}
    assert simulator.condition("Scheduled") == ("True", "Scheduled")


def test_an_update_waits_for_the_class_that_serves_instead_of_moving_the_service_to_a_worse_one() -> None:
    simulator = started(full="")
    simulator.full_classes = {"fast"}
    simulator.edit(model=model("b"), hardware=HARDWARE)
    for _ in range(120):
        simulator.work()
        simulator.reconcile()
    assert set(classes(simulator)) == {"fast"}
    assert hardware(simulator)["class"] == "fast"
    assert simulator.serving() == [simulator.names("ControllerRevision")[0]]


def test_a_service_whose_nodes_are_lost_falls_back() -> None:
    simulator = started(full="")
    simulator.full_classes = {"fast"}
    for pod in list(simulator.pods):
        simulator.end(pod)
    simulator.settle()
    assert hardware(simulator)["class"] == "slow"
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_pod_of_the_first_class_that_finds_a_node_in_time_is_kept() -> None:
    simulator = Simulator(service=service(hardware=HARDWARE), hardware_classes=CLASSES)
    simulator.full_classes = {"fast"}
    while classes(simulator) != ["fast", "slow"]:
        simulator.full_classes |= {"slow"}
        simulator.work()
        simulator.reconcile()
    simulator.full_classes = {"slow"}
    simulator.settle()
    assert hardware(simulator) == {"class": "fast"}
    assert classes(simulator) == ["fast"]


def test_a_service_without_room_anywhere_tries_every_class_again() -> None:
    simulator = Simulator(service=service(hardware=HARDWARE), hardware_classes=CLASSES)
    simulator.full_classes = {"fast", "slow"}
    seen = set()
    for _ in range(120):
        simulator.work()
        simulator.reconcile()
        seen.add(simulator.service["status"].get("hardware", {}).get("class"))
    assert seen >= {"fast", "slow"}
    simulator.full_classes = {"slow"}
    simulator.settle()
    assert hardware(simulator)["class"] == "fast"


@pytest.mark.parametrize("missing", ["fast", "slow"])
def test_every_class_of_the_list_must_exist_and_be_allowed(missing: str) -> None:
    simulator = Simulator(service=service(hardware=HARDWARE), hardware_classes=dict(CLASSES))
    denied = hardware_class(missing, default=False, allowedNamespaces=["other"])
    simulator.hardware_classes = {**CLASSES, missing: denied}
    simulator.settle()
    assert simulator.condition("Ready") == ("False", "HardwareClassDenied")
    simulator.hardware_classes = {name: each for name, each in CLASSES.items() if name != missing}
    simulator.settle()
    assert simulator.condition("Ready") == ("False", "HardwareClassNotFound")
    assert simulator.of("Deployment") == ()


@pytest.mark.parametrize("closed", ["denied", "gone"])
def test_a_class_that_is_closed_to_the_namespace_by_now_is_not_fallen_back_to(closed: str) -> None:
    simulator = started(full="")
    denied = hardware_class("slow", default=False, allowedNamespaces=["other"])
    others = {} if closed == "gone" else {"slow": denied}
    simulator.hardware_classes = {"fast": CLASSES["fast"], **others}
    simulator.full_classes = {"fast"}
    for pod in list(simulator.pods):
        simulator.end(pod)
    for _ in range(60):
        simulator.work()
        simulator.reconcile()
    assert classes(simulator) == ["fast"]
    assert hardware(simulator)["class"] == "fast"


def test_every_template_of_a_record_is_checked() -> None:
    (stored,) = started().of("ControllerRevision")
    ((name, template),) = json.loads(stored["data"]["otherClasses"])
    assert name == "slow"
    changed = json.loads(template)
    changed["spec"]["hostNetwork"] = True
    data = {**stored["data"], "otherClasses": json.dumps([[name, json.dumps(changed)]])}
    with pytest.raises(CorruptRevisionError, match="hostNetwork"):
        from_object({**stored, "data": data})
    with pytest.raises(CorruptRevisionError, match="otherClasses"):
        from_object({**stored, "data": {**stored["data"], "otherClasses": "{"}})


def test_a_class_that_the_revision_does_not_have_is_never_used() -> None:
    (stored,) = started().of("ControllerRevision")
    annotations = {"tailbound.dev/hardware-fallback": '{"class": "other", "since": "x", "why": ""}'}
    forged = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}}
    assert from_object(forged).hardware_class == "fast"


@pytest.mark.parametrize(
    ("other", "state", "reason"),
    [("slow", "Analysing", "SharedBreach"), ("fast", "RolledBack", "Slow")],
    ids=["same-class", "another-class"],
)
def test_only_revisions_of_one_class_are_compared(other: str, state: str, reason: str) -> None:
    simulator = Simulator(
        service=service(sla=SLA, rollout=CANARY, scaling={"min": 4}, hardware={"class": ["slow"]}),
        hardware_classes=CLASSES,
    )
    simulator.settle()
    simulator.edit(model=model("b"), hardware={"class": [other]})
    until(simulator, lambda rollout: rollout["reason"] == reason, r1=0.1, r2=0.1)
    assert simulator.rollout["state"] == state


def test_a_revision_with_pods_on_two_classes_is_compared_with_none() -> None:
    simulator = started(full="")
    simulator.edit(model=model("b"))
    simulator.work()
    simulator.reconcile()
    simulator.work()
    observation = simulator.observation()
    stable, candidate = simulator.names("ControllerRevision")
    rollout = RolloutProgress(
        state=RolloutState.ANALYSING, revision=candidate, from_revision=stable, started_at=simulator.now
    )

    def comparable(**metadata: Any) -> bool:
        pods = [copy.deepcopy(dict(pod)) for pod in observation.children.pods]
        pods[0]["metadata"] |= metadata
        children = replace(observation.children, pods=tuple(pods))
        reading = read(replace(observation, children=children))
        assert isinstance(reading, Snapshot)
        return _on_one_class(reading.owned, rollout)

    assert comparable()
    assert not comparable(annotations={"tailbound.dev/hardware-class": "slow"})
