"""The reason that a refused write of a child gives."""

import pytest
from tailbound.api.conditions import Reason
from tailbound.controller.execute import reason_of
from tailbound.kube.errors import NameConflict, NotAdmitted, NotAdmittedYet, Terminal
from tailbound.kube.resources import DEPLOYMENTS, SERVICES, Resource
from tailbound.kube.resources import RESOURCE_CLAIM_TEMPLATES as CLAIMS
from tailbound.reconcile.model import Apply, Create, Write

POLICY = "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: unknown registry"
WEBHOOK = (
    'Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://c": EOF'
)
NO_RIGHT = 'deployments.apps "churn" is forbidden: User "operator" cannot patch resource "deployments"'
NEW, CHANGED = Create({}), Apply({})
CASES: dict[str, tuple[Terminal | NotAdmittedYet, Write, Resource, Reason]] = {
    "name-is-taken": (NameConflict("Service", "churn", "team b"), NEW, SERVICES, Reason.NAME_CONFLICT),
    "full-quota": (NotAdmitted("exceeded quota: objects", 403), NEW, DEPLOYMENTS, Reason.QUOTA_EXCEEDED),
    "policy-as-invalid": (Terminal(POLICY, 422), NEW, DEPLOYMENTS, Reason.POLICY_DENIED),
    "policy-as-forbidden": (NotAdmitted(POLICY, 403), CHANGED, SERVICES, Reason.POLICY_DENIED),
    "webhook-is-gone": (NotAdmittedYet(WEBHOOK), NEW, DEPLOYMENTS, Reason.WEBHOOK_UNAVAILABLE),
    "right-is-missing": (NotAdmittedYet(NO_RIGHT), NEW, DEPLOYMENTS, Reason.RIGHT_MISSING),
    "unknown-rule": (NotAdmitted("the moon is full", 403), NEW, DEPLOYMENTS, Reason.WRITE_REFUSED),
    "new-template": (Terminal("spec.template: wrong", 422), NEW, DEPLOYMENTS, Reason.RUNTIME_INVALID),
    "same-template": (Terminal("spec.replicas: wrong", 422), CHANGED, DEPLOYMENTS, Reason.WRITE_REFUSED),
    "claim's-cel": (Terminal("expression: wrong", 422), NEW, CLAIMS, Reason.RESOURCE_CLAIM_REFUSED),
}


@pytest.mark.parametrize(("error", "write", "resource", "reason"), CASES.values(), ids=CASES)
def test_a_rule_of_admission_is_no_fault_of_the_runtime(
    error: Terminal | NotAdmittedYet, write: Write, resource: Resource, reason: Reason
) -> None:
    assert reason_of(error, write, resource) is reason
