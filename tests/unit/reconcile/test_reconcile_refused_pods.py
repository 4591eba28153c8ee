"""Pods that no room helps: the API server refuses them, or no node could ever take them."""

from typing import Any

import pytest
from tailbound.api.conditions import PLACELESS, Reason
from tailbound.objects.deployment import Deployment
from tailbound.objects.pod import Pod
from tailbound.reconcile import unschedulable
from tailbound.reconcile.pods import report
from tailbound.reconcile.refused_pods import refusal_in

from tests.support.copies import remembered
from tests.support.simulated.rollouts import CANARY, around, replicas, state, until
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.full_nodes import full

FORBIDDEN = 'pods "churn-r2-6b9c-" is forbidden: '
ANSWERS: dict[str, tuple[str, Reason]] = {
    "quota-is-full": (
        "exceeded quota: devices, requested: limits.memory=2Gi,pods=1, used: limits.memory=3Gi,pods=3, "
        "limited: limits.memory=4Gi,pods=3",
        Reason.QUOTA_EXCEEDED,
    ),
    "quota-says-nothing-more": ("exceeded quota: devices", Reason.QUOTA_EXCEEDED),
    "quota-is-new": ("status unknown for quota: devices, resources: pods", Reason.QUOTA_EXCEEDED),
    "quota-holds-less-than-one-pod": (
        "exceeded quota: devices, requested: limits.memory=8Gi,pods=1, used: limits.memory=0,pods=0, "
        "limited: limits.memory=4096Mi,pods=3",
        Reason.QUOTA_TOO_SMALL,
    ),
    "quota-allows-none": (
        "exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0",
        Reason.QUOTA_TOO_SMALL,
    ),
    "quota-wants-a-resource": (
        "failed quota: devices: must specify limits.cpu for: server; limits.memory for: server",
        Reason.RESOURCES_REQUIRED,
    ),
    "no-service-account": (
        'error looking up service account risk/reader: serviceaccount "reader" not found',
        Reason.SERVICE_ACCOUNT_NOT_FOUND,
    ),
    "no-runtime-class": ('pod rejected: RuntimeClass "gvisor" not found', Reason.RUNTIME_CLASS_NOT_FOUND),
    "no-priority-class": ("no PriorityClass with name urgent was found", Reason.PRIORITY_CLASS_NOT_FOUND),
    "over-the-limit-range": (
        "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "under-the-limit-range": (
        "minimum cpu usage per Pod is 100m, but request is 50m",
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "ratio-of-the-limit-range": (
        "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "policy": (
        "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: unknown registry",
        Reason.POLICY_DENIED,
    ),
    "webhook": ('admission webhook "images.example.com" denied the request: no', Reason.POLICY_DENIED),
    "pod-security": ('violates PodSecurity "restricted:latest": runAsNonRoot', Reason.POLICY_DENIED),
    "webhook-is-away": (
        'Internal error occurred: failed calling webhook "images.example.com": connection refused',
        Reason.WEBHOOK_UNAVAILABLE,
    ),
    "anything-else": ("the moon is full", Reason.POD_REFUSED),
}


@pytest.mark.parametrize(("message", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_each_refusal_has_its_reason_and_only_a_full_quota_is_a_shortage(
    message: str, reason: Reason
) -> None:
    found = refusal_in(FORBIDDEN + message)
    assert found.reason is reason
    assert bool(found.remedy) == (reason is not Reason.QUOTA_EXCEEDED) == (reason in PLACELESS)


SELECTOR = "node(s) didn't match Pod's node affinity/selector"
TAINT = "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }"
NO_HELP = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NODES: dict[str, tuple[str, Reason]] = {
    "none-is-selected": (
        f"3 {SELECTOR}. preemption: 0/3 nodes are available: 3 {NO_HELP}.",
        Reason.NO_NODE_FITS,
    ),
    "none-is-selected-by-an-old-scheduler": (f"3 {SELECTOR}.", Reason.NO_NODE_FITS),
    "selected-or-tainted": (
        f"1 {TAINT}, 2 {SELECTOR}. preemption: 0/3 nodes are available: 3 {NO_HELP}.",
        Reason.NO_NODE_FITS,
    ),
    "all-are-too-small": (
        "1 Insufficient example.com/gpu, 2 Insufficient cpu. no new claims to deallocate, preemption: "
        f"0/3 nodes are available: 3 {NO_HELP}.",
        Reason.NO_NODE_FITS,
    ),
    "one-is-full": (
        f"1 Insufficient cpu, 2 {SELECTOR}. "
        f"preemption: 0/3 nodes are available: 1 {NO_VICTIMS}, 2 {NO_HELP}.",
        Reason.UNSCHEDULABLE,
    ),
    "full-as-an-old-scheduler-says-it": ("3 Insufficient nvidia.com/gpu.", Reason.UNSCHEDULABLE),
    "one-is-cordoned": (
        f"1 node(s) were unschedulable, 2 {SELECTOR}. preemption: 0/3 nodes are available: 3 {NO_HELP}.",
        Reason.UNSCHEDULABLE,
    ),
    "one-is-unwell": (
        "1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }, "
        f"2 {SELECTOR}. preemption: 0/3 nodes are available: 3 {NO_HELP}.",
        Reason.UNSCHEDULABLE,
    ),
    "a-label-of-a-spread-constraint-is-missing": (
        "3 node(s) didn't match pod topology spread constraints (missing required label). preemption: "
        f"0/3 nodes are available: 3 {NO_HELP}.",
        Reason.NO_NODE_FITS,
    ),
    "ports-are-taken": (
        "3 node(s) didn't have free ports for the requested pod ports.",
        Reason.UNSCHEDULABLE,
    ),
}


@pytest.mark.parametrize(("causes", "reason"), NODES.values(), ids=NODES)
def test_a_node_that_could_never_take_the_pod_is_no_full_one(causes: str, reason: Reason) -> None:
    assert unschedulable.reason_in(f"0/3 nodes are available: {causes}") is reason


@pytest.mark.parametrize("message", ["", "no nodes available to schedule pods", "0/0 nodes are available: ."])
def test_a_scheduler_that_counts_no_nodes_reports_a_shortage(message: str) -> None:
    assert unschedulable.reason_in(message) is Reason.UNSCHEDULABLE


def test_the_findings_quote_the_cause_and_end_with_the_remedy() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = f"0/3 nodes are available: 3 {SELECTOR}."
    pod = Pod({"metadata": {"name": "p1"}, "status": {"conditions": [condition | {"message": message}]}})
    refused = {"type": "ReplicaFailure", "status": "True", "message": ANSWERS["no-service-account"][0]}
    deployment = Deployment({"spec": {"replicas": 2}, "status": {"conditions": [refused]}})
    nowhere, unborn = report([pod], None).obstacle, report([], deployment).obstacle
    assert nowhere is not None
    assert nowhere.message == f"pod p1 has no node: {message[:-1]}. What to do: {unschedulable.REMEDY}"
    assert unborn is not None
    assert unborn.message.endswith(
        "not found. What to do: create the ServiceAccount, or correct spec.serviceAccountName"
    )


PODS = 4
MISTAKES = {
    "refused": ("denied", FORBIDDEN + ANSWERS["no-service-account"][0], "ServiceAccountNotFound"),
    "unfit": ("unfit", f"0/3 nodes are available: 3 {SELECTOR}.", "NoNodeFits"),
}
TRIALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{mistake}-{capacity}-{strategy}": (mistake, capacity, rollout)
    for mistake in MISTAKES
    for capacity in ("surge", "auto", "inPlace")
    for strategy, rollout in (("blueGreen", {}), ("canary", CANARY))
}


@remembered
def mistaken(mistake: str, capacity: str, rollout: dict[str, Any]) -> Simulator:
    """A rollout on full nodes, to a revision whose pods can never be."""
    simulator = full(
        {**rollout, "capacity": capacity, "progressDeadline": "60s"}, replicas=PODS, devices=PODS
    )
    kind, message, _ = MISTAKES[mistake]
    setattr(simulator, kind, {"r2": message})
    return simulator


@pytest.mark.parametrize(("mistake", "capacity", "rollout"), TRIALS.values(), ids=TRIALS)
def test_stable_keeps_its_pods_and_the_deadline_names_the_mistake(
    mistake: str, capacity: str, rollout: dict[str, Any]
) -> None:
    simulator, reason = mistaken(mistake, capacity, rollout), MISTAKES[mistake][2]
    for _ in range(6):
        around(simulator)
    assert simulator.condition("Scheduled") == ("False", reason)
    assert "What to do: " in simulator.message("Scheduled")
    assert (replicas(simulator)["r1"], simulator.weights()) == (PODS, {"r1": 100})
    until(simulator, state("RolledBack"))
    assert simulator.rollout["reason"] == reason
    assert "What to do: " in simulator.rollout["message"]
    assert replicas(simulator)["r1"] == PODS


@pytest.mark.parametrize("capacity", ["auto", "inPlace"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_is_mended_in_time_leads_to_the_rollout_in_place(mistake: str, capacity: str) -> None:
    simulator = mistaken(mistake, capacity, {})
    for _ in range(6):
        around(simulator)
    setattr(simulator, MISTAKES[mistake][0], {})
    until(simulator, state("Promoted"))
    assert simulator.weights() == {"r2": 100}
