"""One service through its life: what is written, what is told, and what is left alone."""

import copy
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.reconcile.model import Apply, Create, Delete, Obstacle, Plan, Write

from tests.unit.reconcile.simulator import (
    NAME,
    UID,
    Gateway,
    Simulator,
    hardware_class,
    runtime,
    service,
    spec,
)

OTHER_MODEL = spec()["model"] | {"sha256": "b" * 64}
THIRD_MODEL = spec()["model"] | {"sha256": "c" * 64}


def settled(**fields: Any) -> Simulator:
    """A service that serves."""
    simulator = Simulator(service=service(**fields))
    simulator.settle()
    return simulator


def described(write: Write) -> tuple[str, str, str]:
    """Verb, kind and name of a write."""
    if isinstance(write, Delete):
        return "Delete", write.kind, write.name
    return type(write).__name__, write.body["kind"], write.body["metadata"]["name"]


def verbs(plan: Plan) -> list[tuple[str, str]]:
    return [described(write)[:2] for write in plan.writes]


def template_of(simulator: Simulator, name: str) -> Any:
    return simulator.objects["Deployment", name]["spec"]["template"]


# First deployment.


def test_a_new_service_is_written_in_one_plan_and_routed_before_its_first_pod() -> None:
    simulator = Simulator()
    plan = simulator.reconcile()
    assert verbs(plan) == [
        ("Create", "Service"),
        ("Create", "ControllerRevision"),
        ("Create", "Service"),
        ("Create", "Deployment"),
    ]
    (name,) = simulator.names("Deployment")
    assert simulator.serving() == [name]
    assert simulator.condition("Ready") == ("Unknown", "Starting")
    assert simulator.condition("Reconciling") == ("True", "Starting")
    assert simulator.condition("TrafficApplied") == ("False", "WaitingForGateway")
    assert plan.watch_gateways
    assert [event.reason for event in plan.events] == ["Starting"]
    front = simulator.objects["Service", NAME]["spec"]
    assert front["externalName"] == "tailbound-gateway.tailbound-system.svc.cluster.local"


def test_it_is_ready_when_a_pod_is_ready_and_every_gateway_has_acknowledged() -> None:
    simulator = Simulator()
    simulator.reconcile()
    simulator.sync("gateway-a")
    simulator.sync("gateway-b")
    simulator.run_controllers()
    simulator.reconcile()
    assert simulator.condition("TrafficApplied") == ("True", "Acknowledged")
    assert simulator.condition("Ready") == ("Unknown", "Starting")
    (pod,) = simulator.pods
    simulator.make_ready(pod)
    plan = simulator.reconcile()
    assert verbs(plan) == [("Apply", "ControllerRevision")]
    assert simulator.condition("Ready") == ("True", "Serving")
    assert ("Normal", "Serving") in [(event.type, event.reason) for event in plan.events]
    (stored,) = simulator.of("ControllerRevision")
    assert stored["metadata"]["annotations"]["tailbound.dev/stable"] == "true"
    assert stored["metadata"]["annotations"]["tailbound.dev/promoted-at"] == "2026-01-01T00:00:02Z"
    assert not plan.watch_gateways


def test_status_document() -> None:
    simulator = settled(scaling={"min": 2})
    (name,) = simulator.names("Deployment")
    status = simulator.service["status"]
    assert status["url"] == "http://churn.risk.svc.cluster.local"
    assert status["selector"] == "tailbound.dev/service=churn"
    assert status["replicas"] == 2
    assert status["stable"] == {"revision": name, "replicas": 2, "ready": 2}
    assert "canary" not in status
    assert status["observedGeneration"] == 1
    assert [c["type"] for c in status["conditions"]] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "Scheduled",
        "ModelVerified",
        "TrafficApplied",
        "RuntimeOutdated",
        "Promoted",
        "HandRefused",
    ]


def test_an_idle_service_writes_nothing_whatever_the_time_and_whichever_gateway() -> None:
    simulator = settled(scaling={"min": 3})
    simulator.gateways["gateway-c"] = Gateway(readable=False)
    simulator.now = simulator.now.replace(year=2030)
    plan = simulator.plan()
    assert plan == Plan()


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    simulator = settled()
    before = {c["type"]: c["lastTransitionTime"] for c in simulator.service["status"]["conditions"]}
    simulator.edit(hosts=["churn.example.com"])
    simulator.reconcile()
    after = {c["type"]: c for c in simulator.service["status"]["conditions"]}
    changed = {kind for kind in before if before[kind] != after[kind]["lastTransitionTime"]}
    assert changed == {"Ready", "Reconciling", "TrafficApplied"}
    assert {c["observedGeneration"] for c in after.values()} == {2}
    assert simulator.condition("Ready") == ("Unknown", "WaitingForGateway")


# Rollover.


def test_an_edit_rolls_over_in_order() -> None:
    simulator = settled(scaling={"min": 2})
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    assert ("Create", "Deployment") in verbs(simulator.reconcile())
    new = simulator.names("Deployment")[1]
    assert simulator.condition("Ready") == ("Unknown", "RollingOut")
    assert simulator.message("Ready") == f"{new} is starting; {old} still serves"
    assert (
        simulator.service["status"]["stable"]["revision"],
        simulator.service["status"]["canary"]["revision"],
    ) == (old, new)

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


def test_a_third_edit_drops_the_middle_one() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    simulator.sync("gateway-a")
    simulator.sync("gateway-b")
    simulator.reconcile()
    middle = simulator.names("Deployment")[1]
    simulator.edit(model=THIRD_MODEL)
    simulator.sync("gateway-a")
    simulator.sync("gateway-b")
    plan = simulator.reconcile()
    assert ("Delete", "Deployment", middle) in [described(write) for write in plan.writes]
    assert old in simulator.names("Deployment")
    assert simulator.serving() == [old]


def test_going_back_to_the_serving_spec_ends_the_rollover_at_once() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    simulator.edit(model=spec()["model"])
    simulator.sync("gateway-a")
    simulator.sync("gateway-b")
    plan = simulator.reconcile()
    assert [verb for verb in verbs(plan) if verb[0] != "Delete"] == []
    assert simulator.condition("Ready") == ("True", "Serving")
    simulator.settle()
    assert simulator.names("Deployment") == [old]


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
    assert simulator.message("Ready").endswith(f"{name} still serves")


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


def test_weight_returns_when_the_new_revision_loses_its_endpoints_before_it_is_promoted() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    simulator.run_controllers()
    (pod,) = (pod for pod in simulator.pods if not pod.startswith(old))
    simulator.make_ready(pod)
    simulator.reconcile()
    generation = simulator.service["status"]["traffic"]["generation"]
    simulator.make_ready(pod, ready=False)
    simulator.reconcile()
    assert simulator.serving() == [old]
    assert simulator.service["status"]["traffic"]["generation"] == generation + 1


def test_losing_the_last_gateway_is_told_and_so_is_its_return() -> None:
    simulator = settled()
    gateways, simulator.gateways = simulator.gateways, {}
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Ready") == ("False", "NoGateway")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "NoGateway")]
    simulator.gateways = gateways
    simulator.reconcile()
    assert simulator.condition("Ready") == ("True", "Serving")


# Lost status.


def test_a_lost_status_is_no_first_deployment() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    before = simulator.service.pop("status")
    simulator.touch(simulator.service)
    assert simulator.reconcile().writes == ()
    assert simulator.serving() == [old]
    assert simulator.service["status"]["stable"]["revision"] == old
    assert simulator.service["status"]["traffic"]["generation"] > 1_000_000_000
    assert before["traffic"]["generation"] == 1


def test_acknowledgements_from_before_the_loss_do_not_count() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    simulator.run_controllers()
    for pod in list(simulator.pods):
        simulator.make_ready(pod)
    for gateway in simulator.gateways.values():
        gateway.generation = simulator.service["metadata"]["generation"]
    del simulator.service["status"]
    simulator.reconcile()
    simulator.reconcile()
    assert simulator.serving() != [old]
    assert old in simulator.names("Deployment"), "the gateways still send requests there"


# Replicas.


@pytest.mark.parametrize(
    ("scaling", "pods"),
    [
        ({}, 1),
        ({"min": 3}, 3),
        ({"min": 3, "replicas": 2}, 3),
        ({"min": 3, "replicas": 5}, 5),
        ({"min": 4, "max": 4, "replicas": 5}, 4),
        ({"mode": "external", "min": 2, "max": 4, "replicas": 3}, 3),
        ({"mode": "external", "min": 2, "max": 4, "replicas": 1}, 2),
        ({"mode": "external", "min": 2, "max": 4, "replicas": 9}, 4),
    ],
)
def test_pods_are_as_many_as_somebody_asks_for_within_the_bounds(scaling: dict[str, Any], pods: int) -> None:
    simulator = settled(scaling=scaling)
    assert [each["spec"]["replicas"] for each in simulator.of("Deployment")] == [pods]


def test_scaling_is_one_write_and_the_budget_follows() -> None:
    simulator = settled()
    simulator.edit(scaling={"min": 2})
    assert verbs(simulator.reconcile()) == [("Apply", "Deployment"), ("Create", "PodDisruptionBudget")]
    simulator.settle()
    simulator.edit(scaling={"min": 1})
    assert verbs(simulator.reconcile()) == [("Apply", "Deployment"), ("Delete", "PodDisruptionBudget")]
    assert len(simulator.names("ControllerRevision")) == 1


def test_a_replica_count_set_by_hand_is_set_back_with_every_owned_field() -> None:
    simulator = settled(scaling={"min": 2})
    (name,) = simulator.names("Deployment")
    live = simulator.objects["Deployment", name]
    live["spec"]["replicas"] = 7
    simulator.touch(live)
    (write,) = simulator.reconcile().writes
    assert isinstance(write, Apply)
    assert write.body["spec"]["replicas"] == 2
    assert write.body["spec"]["template"]["spec"]["containers"]
    assert write.body["metadata"]["uid"] == live["metadata"]["uid"]
    assert write.body["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]


def test_stopping_takes_the_weight_off_first() -> None:
    simulator = settled(scaling={"min": 2})
    (name,) = simulator.names("Deployment")
    simulator.edit(stopped=True)
    assert simulator.reconcile().writes == ()
    assert simulator.serving() == []
    assert simulator.condition("Ready") == ("False", "Stopped")
    assert simulator.condition("Reconciling") == ("True", "Stopped")
    assert "no gateway routes to them" in simulator.message("Ready")
    simulator.sync("gateway-a")
    assert simulator.reconcile().writes == ()
    simulator.sync("gateway-b")
    assert verbs(simulator.reconcile()) == [("Apply", "Deployment"), ("Delete", "PodDisruptionBudget")]
    assert "pods are ending" in simulator.message("Ready")
    simulator.settle()
    assert simulator.objects["Deployment", name]["spec"]["replicas"] == 0
    assert simulator.condition("Reconciling") == ("False", "Reconciled")
    assert simulator.condition("ModelVerified") == ("Unknown", "Stopped")
    simulator.edit(stopped=False)
    simulator.settle()
    assert simulator.serving() == [name]
    assert simulator.objects["Deployment", name]["spec"]["replicas"] == 2


def test_stopping_works_while_the_edit_is_stuck() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL, runtime={"name": "missing"}, stopped=True)
    simulator.reconcile()
    simulator.sync("gateway-a")
    simulator.sync("gateway-b")
    simulator.reconcile()
    assert simulator.objects["Deployment", name]["spec"]["replicas"] == 0


# Foreign hands.


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
    simulator.obstacles = (
        Obstacle(
            "Service", "kubernetes", Reason.NAME_CONFLICT, "Service kubernetes belongs to somebody else"
        ),
    )
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert plan.requeue_after is not None
    simulator.obstacles = ()
    assert described(simulator.plan().writes[0]) == ("Create", "Service", "kubernetes")


def test_what_serves_is_made_whole_while_a_name_is_taken() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.objects["Service", NAME] = child("Service", NAME, FOREIGN)
    del simulator.objects["Deployment", old]
    assert [described(write) for write in simulator.reconcile().writes] == [("Create", "Deployment", old)]
    assert simulator.condition("Ready") == ("False", "NameConflict")
    assert simulator.message("Ready").endswith(f"{old} still serves")


def test_quota_on_a_deployment_is_no_stall() -> None:
    simulator = Simulator()
    name = described(simulator.plan().writes[3])[2]
    simulator.obstacles = (Obstacle("Deployment", name, Reason.QUOTA_EXCEEDED, "exceeded quota: objects"),)
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


# Bad input.


def test_an_invalid_stored_object_is_told_and_nothing_is_touched() -> None:
    simulator = settled()
    before, traffic = copy.deepcopy(simulator.objects), simulator.service["status"]["traffic"]
    simulator.edit(model={"uri": "https://m.example.com/x", "format": "onnx"}, scaling={"min": 5})
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.objects == before
    assert simulator.service["status"]["traffic"] == traffic
    assert simulator.service["status"]["observedGeneration"] == 2
    for kind, status in (("Ready", "False"), ("Stalled", "True"), ("Reconciling", "False")):
        assert simulator.condition(kind) == (status, "InvalidSpec")
        assert "sha256" in simulator.message(kind)
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "InvalidSpec")]
    assert simulator.plan() == Plan()
    simulator.edit(model=spec()["model"], scaling={"min": 1})
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


@pytest.mark.parametrize("status", [None, {}, {"traffic": "nonsense"}, {"conditions": [{"type": 3}]}, []])
def test_a_broken_status_is_written_anew(status: Any) -> None:
    simulator = settled()
    simulator.service["status"] = status
    simulator.reconcile()
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_conditions_of_other_people_do_not_count_as_a_difference() -> None:
    simulator = settled()
    foreign = {
        "type": "example.com/Approved",
        "status": "True",
        "reason": "R",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    simulator.service["status"]["conditions"].insert(0, foreign)
    assert simulator.plan() == Plan()


PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "runtime not found": ({"runtime": {"name": "x"}}, {}, "RuntimeNotFound", "spec.runtime.name is 'x'"),
    "no runtime for the format": (
        {"model": spec()["model"] | {"format": "gguf"}},
        {},
        "RuntimeNotFound",
        "spec.model.format is 'gguf'",
    ),
    "runtime of another format": (
        {"model": spec()["model"] | {"format": "gguf"}, "runtime": {"name": "onnxruntime"}},
        {},
        "RuntimeInvalid",
        "its formats are onnx",
    ),
    "runtime does not validate": (
        {"runtime": {"name": "onnxruntime"}},
        {"cluster_runtimes": {"onnxruntime": {"metadata": {"name": "onnxruntime"}, "spec": {}}}},
        "RuntimeInvalid",
        "ClusterServingRuntime onnxruntime: spec.formats",
    ),
    "template cannot be rendered": (
        {},
        {"cluster_runtimes": {"onnxruntime": runtime(args=["{{ model.size }}"])}},
        "RuntimeInvalid",
        "spec.server.args[0]",
    ),
    "template renders a bad value": (
        {},
        {"cluster_runtimes": {"onnxruntime": runtime(image="{{''}}")}},
        "RuntimeInvalid",
        "spec.server.image",
    ),
    "no class": (
        {"hardware": {"class": ["gpu"]}},
        {},
        "HardwareClassNotFound",
        "spec.hardware.class is 'gpu'",
    ),
    "no default class": (
        {},
        {"hardware_classes": {"a": hardware_class("a", default=False)}},
        "HardwareClassNotFound",
        "set it to one of: a",
    ),
    "class is invalid": (
        {},
        {"hardware_classes": {"cpu": hardware_class(resources=[{"name": "cpu", "count": 1}])}},
        "HardwareClassNotFound",
        "HardwareClass cpu is invalid",
    ),
    "class is for others": (
        {},
        {"hardware_classes": {"cpu": hardware_class(allowedNamespaces=["fraud"])}},
        "HardwareClassDenied",
        "does not allow namespace risk",
    ),
    "too large": (
        {"env": [{"name": f"V{n}", "value": "é" * 4000} for n in range(30)]},
        {},
        "InvalidSpec",
        "shorten spec.env",
    ),
}


@pytest.mark.parametrize(("fields", "around", "reason", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_stalls_a_new_service_says_what_to_change(
    fields: dict[str, Any], around: dict[str, Any], reason: str, words: str
) -> None:
    simulator = Simulator(service=service(**fields), **around)
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Ready") == ("False", reason)
    assert simulator.condition("Stalled") == ("True", reason)
    assert words in simulator.message("Stalled")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", reason)]
    assert simulator.plan() == Plan()


def test_a_corrupt_revision_stalls_with_the_remedy_and_nothing_is_touched() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    simulator.objects["ControllerRevision", name]["data"]["template"] = "{"
    assert simulator.reconcile().writes == ()
    assert simulator.condition("Stalled") == ("True", "RevisionCorrupt")
    assert f"kubectl delete controllerrevision {name}" in simulator.message("Ready")
    assert simulator.message("Ready").endswith(f"{name} still serves")
    del simulator.objects["ControllerRevision", name]
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


# Runtimes and classes.


def test_runtime_changes_are_told_by_one_condition_and_touch_nothing() -> None:
    simulator = settled()
    before = copy.deepcopy(simulator.objects)
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="newer")}
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.objects == before
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeChanged")
    assert simulator.condition("Ready") == ("True", "Serving")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "RuntimeChanged")]
    simulator.cluster_runtimes = {"onnxruntime": runtime()}
    simulator.reconcile()
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")


SELECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "by priority": ({}, {}, {"a": runtime("a"), "b": runtime("b", priority=1)}, "ClusterServingRuntime b"),
    "by name": ({}, {}, {"b": runtime("b"), "a": runtime("a")}, "ClusterServingRuntime a"),
    "namespaced first": ({}, {"z": runtime("z", priority=-5)}, {"a": runtime("a")}, "ServingRuntime z"),
    "invalid ones serve no format": (
        {},
        {"z": {"metadata": {"name": "z"}, "spec": {}}},
        {"a": runtime("a")},
        "ClusterServingRuntime a",
    ),
    "by name, namespaced first": (
        {"runtime": {"name": "a"}},
        {"a": runtime("a")},
        {"a": runtime("a")},
        "ServingRuntime a",
    ),
    "by name, cluster-wide": (
        {"runtime": {"name": "b"}},
        {"a": runtime("a")},
        {"b": runtime("b")},
        "ClusterServingRuntime b",
    ),
}


@pytest.mark.parametrize(("fields", "own", "cluster", "title"), SELECTIONS.values(), ids=SELECTIONS)
def test_runtime_selection(
    fields: dict[str, Any], own: dict[str, Any], cluster: dict[str, Any], title: str
) -> None:
    simulator = Simulator(service=service(**fields), runtimes=own, cluster_runtimes=cluster)
    simulator.settle()
    (stored,) = simulator.of("ControllerRevision")
    assert stored["data"]["runtime"] == title


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [({}, "a"), ({"hardware": {"class": ["c"]}}, "c"), ({"hardware": {"class": []}}, "a")],
)
def test_class_selection(fields: dict[str, Any], chosen: str) -> None:
    classes = {n: hardware_class(n, default=n != "c") for n in "bac"}
    simulator = Simulator(service=service(**fields), hardware_classes=classes)
    simulator.settle()
    (stored,) = simulator.of("ControllerRevision")
    assert stored["data"]["hardwareClass"] == chosen


# Pods in trouble.


def stuck(name: str, message: str) -> dict[str, Any]:
    terminated = {
        "exitCode": 1,
        "reason": "Error",
        "message": json.dumps({"reason": name, "message": message}),
    }
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [{"name": "fetch", "ready": False, "state": {"terminated": terminated}}],
    }


def test_a_new_revision_that_cannot_start_leaves_the_old_one_serving_and_says_so() -> None:
    simulator = settled()
    (old,) = simulator.names("Deployment")
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    simulator.run_controllers()
    (pod,) = (pod for pod in simulator.pods if not pod.startswith(old))
    simulator.pods[pod]["status"] = stuck("DigestMismatch", "the file is another one")
    plan = simulator.reconcile()
    assert simulator.serving() == [old]
    assert simulator.condition("Ready") == ("False", "DigestMismatch")
    assert simulator.message("Ready") == f"pod {pod}: the file is another one; {old} still serves"
    assert simulator.condition("ModelVerified") == ("False", "DigestMismatch")
    assert simulator.condition("Reconciling") == ("True", "DigestMismatch")
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "DigestMismatch")]
    again = simulator.plan()
    assert again.requeue_after is not None, "the deadline"
    assert replace(again, requeue_after=None) == Plan(watch_gateways=True)
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_promoted_service_that_loses_every_endpoint_is_not_ready() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    (pod,) = simulator.pods
    simulator.make_ready(pod, ready=False)
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert simulator.condition("Ready") == ("False", "NotReady")
    assert simulator.serving() == [name]


def test_a_service_short_of_one_replica_is_ready_and_reconciling() -> None:
    simulator = settled(scaling={"min": 2})
    simulator.make_ready(next(iter(simulator.pods)), ready=False)
    simulator.reconcile()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Reconciling") == ("True", "Starting")


# History.


def test_history_keeps_the_ten_newest() -> None:
    simulator = settled()
    for number in range(2, 15):
        simulator.edit(model=spec()["model"] | {"sha256": f"{number:064x}"})
        simulator.settle()
    assert [name.split("-")[1] for name in simulator.names("ControllerRevision")] == [
        f"r{n}" for n in range(5, 15)
    ]


def test_an_old_revision_in_use_outlives_its_turn() -> None:
    simulator = settled()
    for number in range(2, 11):
        simulator.edit(model=spec()["model"] | {"sha256": f"{number:064x}"})
        simulator.settle()
    simulator.edit(model=spec()["model"])
    simulator.settle()
    simulator.edit(model=OTHER_MODEL)
    simulator.reconcile()
    names = [name.split("-")[1] for name in simulator.names("ControllerRevision")]
    assert names == [f"r{n}" for n in range(1, 12)]


def test_owner_references_make_every_child_ours() -> None:
    simulator = settled(scaling={"min": 2})
    for (kind, name), stored in simulator.objects.items():
        (owner,) = stored["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (UID, True, True), (
            kind,
            name,
        )
    assert all(isinstance(write, Create) for write in Simulator().plan().writes)
