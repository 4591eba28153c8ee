"""What each refusal of the API server becomes."""

from typing import Any

import pytest
from tailbound.kube.errors import (
    Conflict,
    Expired,
    KubeError,
    NameConflict,
    NamespaceEnds,
    NotAdmitted,
    NotAdmittedYet,
    Terminal,
    Transient,
    error_for,
    refusal,
)

QUOTA = 'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
RBAC = 'deployments.apps is forbidden: User "x" cannot create resource "deployments" in API group "apps"'
WEBHOOK = (
    'Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://c": EOF'
)
ENDING = 'deployments.apps "a" is forbidden: unable to create new content in namespace b'
ENDING_DETAILS = {"causes": [{"reason": "NamespaceTerminating"}]}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"message": "bad"}, Terminal),
        (401, {"message": "who"}, Transient),
        (403, {"message": QUOTA}, NotAdmitted),
        (403, {"message": RBAC}, NotAdmittedYet),
        (403, {"message": ENDING, "details": ENDING_DETAILS}, NamespaceEnds),
        (403, {"message": "admission webhook says no"}, NotAdmitted),
        (404, {"message": "not found"}, Conflict),
        (409, {"message": "modified"}, Conflict),
        (410, {"message": "too old"}, Expired),
        (400, {"message": "continue token too old", "reason": "Expired"}, Expired),
        (413, {"message": "large"}, Terminal),
        (422, {"message": "spec.replicas: Invalid value"}, Terminal),
        (422, {"message": "metadata.uid: Invalid value: field is immutable"}, Conflict),
        (429, {"message": "slow down"}, Transient),
        (500, {"message": "etcd"}, Transient),
        (500, {"message": WEBHOOK}, NotAdmittedYet),
        (503, "upstream is away", Transient),
    ],
)
def test_status_becomes(status: int, body: Any, expected: type[KubeError]) -> None:
    error = error_for(refusal(status, body, None))
    assert type(error) is expected
    assert (body if isinstance(body, str) else body["message"]) in str(error)


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [("7", {}, 7.0), (None, {"retryAfterSeconds": 3}, 3.0), (None, {}, None), ("soon", {}, None)],
)
def test_the_wish_of_the_server_is_kept(
    header: str | None, details: dict[str, int], expected: float | None
) -> None:
    error = error_for(refusal(429, {"message": "slow", "details": details}, header))
    assert isinstance(error, Transient)
    assert error.retry_after_seconds == expected


def test_name_conflict_names_the_object_its_holder_and_the_remedy() -> None:
    text = str(NameConflict("Service", "churn", "no controller (fields are managed by kubectl)"))
    assert "Service churn" in text
    assert "kubectl" in text
    assert "rename" in text
