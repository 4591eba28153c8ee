"""What is told of bad input and of pods that do not start."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.support.simulated.objects import hardware_class, runtime, service, spec
from tests.support.simulated.serving import OTHER_MODEL, settled
from tests.support.simulated.simulator import Simulator

# Bad input.


def test_an_invalid_stored_object_is_told_and_nothing_is_touched() -> None:
    simulator = settled()
    before, traffic = copy.deepcopy(simulator.objects), simulator.service["status"]["traffic"]
    simulator.edit(model=spec()["model"] | {"sha256": "short"}, scaling={"min": 5})
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
    "format that only Apple's systems compute": (
        {"model": spec()["model"] | {"format": "coreml"}},
        {},
        "RuntimeNotFound",
        "export the model that it was converted from to ONNX",
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
    assert replace(simulator.plan(), scalable=None) == Plan()


def test_a_corrupt_revision_stalls_with_the_remedy_and_nothing_is_touched() -> None:
    simulator = settled()
    (name,) = simulator.names("Deployment")
    simulator.objects["ControllerRevision", name]["data"]["template"] = "{"
    assert simulator.reconcile().writes == ()
    assert simulator.condition("Stalled") == ("True", "RevisionCorrupt")
    assert f"kubectl delete controllerrevision {name} -n risk" in simulator.message("Ready")
    assert simulator.message("Ready").startswith(f"{name} serves; ")
    del simulator.objects["ControllerRevision", name]
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


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
    assert simulator.message("Ready") == f"{old} serves; pod {pod}: the file is another one"
    assert simulator.condition("ModelVerified") == ("False", "DigestMismatch")
    assert simulator.condition("Reconciling") == ("True", "DigestMismatch")
    assert simulator.condition("Stalled") == ("False", "NotStalled")
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "DigestMismatch")]
    again = simulator.plan()
    assert again.requeue_after is not None, "the deadline"
    assert replace(again, requeue_after=None, unread=()) == Plan(poll_counters=True)
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_source_that_has_changed_under_a_serving_revision_is_told_from_a_wrong_digest() -> None:
    simulator = settled()
    (first,) = simulator.pods
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    simulator.pods[first]["status"]["initContainerStatuses"] = [
        {"name": "fetch", "ready": True, "state": done}
    ]
    simulator.edit(scaling={"min": 2})
    simulator.reconcile()
    simulator.run_controllers()
    (second,) = simulator.pods.keys() - {first}
    simulator.pods[second]["status"] = stuck("DigestMismatch", "the file is another one")
    simulator.reconcile()
    assert simulator.condition("ModelVerified") == ("False", "SourceChanged")
    assert f"restore it, or set spec.model.sha256 to the digest of the new one; pod {second}: the file" in (
        simulator.message("ModelVerified")
    )
    assert len(simulator.serving()) == 1


def test_a_service_short_of_one_replica_is_ready_and_reconciling() -> None:
    simulator = settled(scaling={"min": 2})
    simulator.make_ready(next(iter(simulator.pods)), ready=False)
    simulator.reconcile()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Reconciling") == ("True", "Starting")
