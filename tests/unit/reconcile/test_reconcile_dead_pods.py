"""What happens to a pod and not to a container: evictions, refusals of the kubelet, ends of nodes."""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.objects.deployment import Deployment
from tailbound.objects.pod import Pod
from tailbound.reconcile import dead_pods
from tailbound.reconcile.pods import report

from tests.support.copies import remembered
from tests.support.simulated.cluster_state import number_of
from tests.support.simulated.objects import service
from tests.support.simulated.rollouts import CANARY, around, begun
from tests.support.simulated.simulator import Simulator

OWN_USE = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "
NODE_LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. "
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
ENDS: dict[str, tuple[dict[str, Any], Reason, bool]] = {
    "own-storage": ({"reason": "Evicted", "message": OWN_USE}, Reason.EVICTED, True),
    "own-container": (
        {
            "reason": "Evicted",
            "message": 'Container a exceeded its local ephemeral storage limit "1Mi". ',
        },
        Reason.EVICTED,
        True,
    ),
    "own-volume": (
        {"reason": "Evicted", "message": 'Usage of EmptyDir volume "model" exceeds the limit "1Gi". '},
        Reason.EVICTED,
        True,
    ),
    "node-is-low": ({"reason": "Evicted", "message": NODE_LOW}, Reason.EVICTED, False),
    "no-device": ({"reason": "UnexpectedAdmissionError", "message": "no gpu"}, Reason.NODE_REFUSED, False),
    "no-cpu": ({"reason": "OutOfcpu", "message": "Node didn't have enough cpu"}, Reason.NODE_REFUSED, False),
    "labels": ({"reason": "NodeAffinity", "message": "Predicate failed"}, Reason.NODE_REFUSED, False),
    "numa": ({"reason": "TopologyAffinityError", "message": "no alignment"}, Reason.NODE_REFUSED, False),
    "shutdown": ({"reason": "Terminated", "message": SHUTDOWN}, Reason.NODE_SHUTDOWN, False),
    "preempted-by-kubelet": ({"reason": "Preempting", "message": "Preempted"}, Reason.PREEMPTED, False),
    "preempted-by-scheduler": (
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        Reason.PREEMPTED,
        False,
    ),
    "node-is-gone": (
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]},
        Reason.NODE_SHUTDOWN,
        False,
    ),
    "anything-else": ({"reason": "DeadlineExceeded", "message": "too long"}, Reason.POD_FAILED, False),
}


@pytest.mark.parametrize(("status", "reason", "own"), ENDS.values(), ids=ENDS)
def test_each_end_of_a_pod_has_its_reason(status: dict[str, Any], reason: Reason, own: bool) -> None:
    body = {"metadata": {"name": "p1"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Failed", **status}}
    dead = Pod(body)
    assert (dead_pods.reason_of(dead), dead_pods.exceeds_its_limit(dead)) == (reason, own)
    seen = report([dead], Deployment({"spec": {"replicas": 1}}))
    assert seen.obstacle is not None
    assert seen.obstacle.reason is reason
    assert seen.obstacle.message.startswith("pod p1 ")
    assert (status.get("message") or "").strip().rstrip(".") in seen.obstacle.message


def ends(simulator: Simulator, number: str, message: str = OWN_USE, reason: str = "Evicted") -> None:
    """Every pod of a revision that is ready ends for good."""
    for pod, body in list(simulator.pods.items()):
        if number_of(pod) == number and body["status"].get("ready"):
            simulator.fail(pod, reason, message)


def test_a_revision_whose_pods_are_evicted_for_their_own_use_is_rejected() -> None:
    simulator = begun(CANARY, replicas=2)
    for _ in range(60):
        around(simulator)
        ends(simulator, "r2")
        if simulator.rollout["state"] == "RolledBack":
            break
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Evicted")
    assert "exceeds the total limit" in simulator.rollout["message"]


@remembered
def served() -> Simulator:
    simulator = Simulator(service=service())
    simulator.settle()
    around(simulator)
    assert simulator.condition("Ready") == ("True", "Serving")
    return simulator


def test_ready_is_false_between_evictions_and_true_again_when_they_have_ended() -> None:
    simulator = served()
    ends(simulator, "r1", NODE_LOW)
    simulator.reconcile()
    assert simulator.condition("Ready") == ("False", "Evicted")
    around(simulator)
    around(simulator)
    assert simulator.condition("Ready") == ("True", "Serving"), "one eviction is an incident"
    ends(simulator, "r1", NODE_LOW)
    for _ in range(3):
        around(simulator)
    assert simulator.condition("Ready") == ("False", "Evicted")
    assert "again and again" in simulator.message("Ready")
    assert "low on resource: memory" in simulator.message("Ready")
    simulator.now += dead_pods.KEPT_FOR
    for _ in range(3):
        around(simulator)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert len(simulator.pods) == 1


def test_dead_pods_are_not_left_behind() -> None:
    simulator = served()
    for _ in range(20):
        ends(simulator, "r1", "no gpu", "UnexpectedAdmissionError")
        around(simulator)
        simulator.now += timedelta(seconds=1)
    dead = [pod for pod, body in simulator.pods.items() if body["status"]["phase"] == "Failed"]
    assert 0 < len(dead) <= 4
    around(simulator)
    wake = simulator.reconcile().requeue_after
    assert wake is not None
    assert wake <= dead_pods.KEPT_FOR
    simulator.now += dead_pods.KEPT_FOR
    around(simulator)
    assert len(simulator.pods) == 1


def test_only_pods_of_a_replica_set_are_deleted() -> None:
    simulator = served()
    ends(simulator, "r1")
    stored = next(body for body in simulator.pods.values() if body["status"]["phase"] == "Failed")
    foreign = Pod({**stored, "metadata": {**stored["metadata"], "ownerReferences": []}})
    later = simulator.now + timedelta(days=1)
    assert [pod.name for pod in dead_pods.left_behind([Pod(stored)], 3, later)] == [Pod(stored).name]
    assert list(dead_pods.left_behind([foreign], 3, later)) == []
