"""Only pods of this installation's gateway Deployment are asked, counted and replaced."""

from typing import Any

import pytest
from tailbound.controller.gateway_pods import made_by, selector


def owner(**changes: Any) -> dict[str, Any]:
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "tailbound-gateway-5d4f", "uid": "u"}
    return {**made, "controller": True, **changes}


@pytest.mark.parametrize(
    ("owners", "ours"),
    [
        pytest.param([owner()], True, id="replica-set-of-the-deployment"),
        pytest.param([], False, id="nobody"),
        pytest.param([owner(name="tailbound-gateway-canary-5d4f")], False, id="a-longer-name"),
        pytest.param([owner(name="istio-5d4f")], False, id="another-deployment"),
        pytest.param([owner(kind="DaemonSet", name="tailbound-gateway")], False, id="another-kind"),
        pytest.param([owner(apiVersion="evil.io/v1")], False, id="another-group"),
        pytest.param([owner(controller=False)], False, id="an-owner-that-does-not-control-it"),
    ],
)
def test_owner_of_a_gateway_pod(owners: list[dict[str, Any]], ours: bool) -> None:
    pod = {"metadata": {"namespace": "sys", "name": "p", "ownerReferences": owners}}
    assert made_by(pod, "tailbound-gateway") is ours


def test_selector_names_the_release() -> None:
    assert selector("blue") == (
        "app.kubernetes.io/name=tailbound,app.kubernetes.io/instance=blue,app.kubernetes.io/component=gateway"
    )
