"""What the admission of a real API server answers to pods that it refuses, and how that is read."""

from collections.abc import Callable
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.reconcile.refused_pods import refusal_in

from e2e.cluster import ControlPlane
from e2e.cluster.processes import wait_for
from tests.integration.reconcile.kubectl import kubectl_says

NAMESPACE = "refused-pods"
WAIT_SECONDS = 60


def pod(**fields: Any) -> dict[str, Any]:
    resources = fields.pop("resources", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "churn-r2-", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "server", "image": "server:1", "resources": resources}], **fields},
    }


def of_namespace(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    meta = {"name": "strict", "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def limit_range(**limits: Any) -> dict[str, Any]:
    return of_namespace("v1", "LimitRange", spec={"limits": [{"type": "Container", **limits}]})


def quota(**hard: str) -> dict[str, Any]:
    return of_namespace("v1", "ResourceQuota", spec={"hard": hard})


def counted(rule: dict[str, Any]) -> dict[str, Any]:
    """The same as the quota controller keeps it, which does not run here, for a namespace without pods."""
    hard = rule["spec"]["hard"]
    return {**rule, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}


def labelled(value: str) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": value}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


LARGE = {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "500m", "memory": "2Gi"}}
CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any], Reason]] = {
    "no-priority-class": (None, pod(priorityClassName="urgent"), Reason.PRIORITY_CLASS_NOT_FOUND),
    "no-runtime-class": (None, pod(runtimeClassName="gvisor"), Reason.RUNTIME_CLASS_NOT_FOUND),
    "above-the-limit-range": (
        limit_range(max={"memory": "1Gi"}),
        pod(resources=LARGE),
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "below-the-limit-range": (
        limit_range(min={"cpu": "1"}),
        pod(resources=LARGE),
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "ratio-of-the-limit-range": (
        limit_range(maxLimitRequestRatio={"cpu": "2"}),
        pod(resources=LARGE),
        Reason.LIMIT_RANGE_VIOLATED,
    ),
    "pod-security": (labelled("restricted"), pod(), Reason.POLICY_DENIED),
    "quota-wants-resources": (quota(**{"limits.cpu": "4"}), pod(), Reason.RESOURCES_REQUIRED),
    "quota-is-too-small": (
        quota(**{"limits.memory": "1Gi"}),
        pod(resources=LARGE),
        Reason.QUOTA_TOO_SMALL,
    ),
    "quota-allows-no-pod": (quota(pods="0"), pod(), Reason.QUOTA_TOO_SMALL),
}


@pytest.mark.parametrize(("rule", "refused", "reason"), CASES.values(), ids=CASES)
def test_each_answer_of_the_api_server_has_its_reason(
    control_plane: ControlPlane, rule: dict[str, Any] | None, refused: dict[str, Any], reason: Reason
) -> None:
    says = kubectl_says(control_plane)
    says(labelled("privileged"), "apply", "--filename=-")
    if rule is not None:
        says(rule, "apply", "--filename=-")
        if rule["kind"] == "ResourceQuota":
            says(counted(rule), "replace", "--subresource=status", "--filename=-")
    try:
        wait_for("the refusal", _answers(says, refused, reason), WAIT_SECONDS)
    finally:
        if rule is not None and rule["kind"] != "Namespace":
            says(rule, "delete", "--filename=-")


def _answers(says: Callable[..., str], refused: dict[str, Any], reason: Reason) -> Callable[[], bool]:
    """The rules of a namespace reach the admission plug-ins a moment later."""

    def answered() -> bool:
        message = says(refused, "create", "--dry-run=server", "--filename=-")
        return refusal_in(message).reason is reason

    return answered


POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "refused-pods-images"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "validations": [{"expression": "false", "message": "images come from elsewhere"}],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "refused-pods-images"},
    "spec": {
        "policyName": "refused-pods-images",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
    },
}


def test_a_policy_is_named_as_a_policy(control_plane: ControlPlane) -> None:
    says = kubectl_says(control_plane)
    for rule in (labelled("privileged"), POLICY, BINDING):
        says(rule, "apply", "--filename=-")
    try:
        wait_for("the refusal", _answers(says, pod(), Reason.POLICY_DENIED), WAIT_SECONDS)
    finally:
        for rule in (BINDING, POLICY):
            says(rule, "delete", "--filename=-")
