"""One service through its life: what is written, what is told, and what is left alone."""

from typing import Any

import pytest
from tailbound.reconcile.model import Apply, Plan

from tests.support.simulated.gateways import Gateway
from tests.support.simulated.objects import NAME, runtime, service, spec
from tests.support.simulated.serving import OTHER_MODEL, settled, verbs
from tests.support.simulated.simulator import Simulator

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
    simulator.sync("gateway-a")
    plan = simulator.reconcile()
    assert simulator.condition("TrafficApplied") == ("True", "Acknowledged")
    assert simulator.condition("Ready") == ("Unknown", "WaitingForGateway")
    assert "gateway pod gateway-b does not know yet that a pod of" in simulator.message("Ready")
    assert plan.watch_gateways
    simulator.sync("gateway-b")
    plan = simulator.reconcile()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert ("Normal", "Serving") in [(event.type, event.reason) for event in plan.events]
    (stored,) = simulator.of("ControllerRevision")
    assert stored["metadata"]["annotations"]["tailbound.dev/stable"] == "true"
    assert stored["metadata"]["annotations"]["tailbound.dev/promoted-at"] == "2026-01-01T00:00:02Z"
    assert not plan.watch_gateways


def test_after_an_outage_it_is_ready_when_every_gateway_knows_that_the_pod_is_back() -> None:
    simulator = settled()
    (pod,) = simulator.pods
    simulator.make_ready(pod, ready=False)
    assert simulator.reconcile().watch_gateways
    assert simulator.condition("Ready") == ("False", "NotReady")
    for name in simulator.gateways:
        simulator.sync(name)
    assert not simulator.reconcile().watch_gateways
    simulator.make_ready(pod)
    assert simulator.reconcile().watch_gateways
    assert simulator.condition("Ready") == ("Unknown", "WaitingForGateway")
    for name in simulator.gateways:
        simulator.sync(name)
    assert not simulator.reconcile().watch_gateways
    assert simulator.condition("Ready") == ("True", "Serving")


def test_status_document() -> None:
    simulator = settled(scaling={"min": 2})
    (name,) = simulator.names("Deployment")
    status = simulator.service["status"]
    assert status["url"] == "http://churn.risk.svc.cluster.local"
    assert status["selector"] == "tailbound.dev/service=churn"
    assert status["replicas"] == 2
    assert status["stable"] == {"revision": name, "replicas": 2, "ready": 2, "weight": 100}
    assert status["servingPods"] == "2/2"
    assert "canary" not in status
    assert status["observedGeneration"] == 1
    assert "inferencePaths" not in status
    assert [c["type"] for c in status["conditions"]] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "Scheduled",
        "ModelVerified",
        "TrafficApplied",
        "RuntimeOutdated",
        "Promoted",
        "ActionRefused",
        "Conflict",
    ]


def test_gateways_learn_the_inference_paths_of_another_protocol() -> None:
    openai = runtime()
    openai["spec"] |= {"protocols": ["openai"], "inferencePaths": ["/rank/*"]}
    simulator = Simulator(service=service(), cluster_runtimes={"onnxruntime": openai})
    simulator.settle()
    paths = simulator.service["status"]["inferencePaths"]
    assert {"/rank/*", "/v1/embeddings"} < set(paths)
    assert simulator.plan() == Plan()


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
