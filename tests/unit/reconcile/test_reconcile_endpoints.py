"""The operator counts the endpoints that the gateways route to, and no others."""

from dataclasses import replace
from typing import Any

import pytest
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import parse
from tailbound.reconcile.owned_state import OwnedState
from tailbound.traffic.model import ServiceKey
from tailbound.traffic.projection import Projector

from tests.support.simulated.simulator import Simulator
from tests.unit.traffic.traffic_objects import endpoints, service

KEY = ServiceKey("risk", "churn")


def without_address(states: list[str]) -> Any:
    found = endpoints("r1", states)
    return {**found, "endpoints": [{**each, "addresses": []} for each in found["endpoints"]]}


def routed(slices: list[Any]) -> int:
    """How many ready pods of r1 a gateway routes to."""
    projector = Projector("cluster.local", lambda _: slices)
    projector.service_changed(service("churn", {"r1": 100}))
    projected = projector.project()[KEY]
    assert projected is not None
    return sum(len(backend.http) for backend in projected.route.backends)


@pytest.mark.parametrize(
    ("slices", "ready"),
    [
        pytest.param([endpoints("r1", ["ready", "starting", "unsaid"])], 2, id="ready-or-unsaid"),
        pytest.param([endpoints("r1", ["ready"], ports={"metrics": 9090})], 0, id="no-port-named-http"),
        pytest.param([endpoints("r1", ["ready"], family="FQDN")], 0, id="neither-ipv4-nor-ipv6"),
        pytest.param([without_address(["ready"])], 0, id="no-address"),
        pytest.param(
            [endpoints("r1", ["ready"]), endpoints("r1", ["ready", "ready"], family="IPv6")],
            1,
            id="ipv4-before-ipv6",
        ),
        pytest.param(
            [endpoints("r1", ["starting"]), endpoints("r1", ["ready"], family="IPv6")],
            1,
            id="ipv6-if-only-that-is-ready",
        ),
        pytest.param([endpoints("r1", ["ready"]), endpoints("r1", ["ready"])], 1, id="one-pod-in-two-slices"),
    ],
)
def test_the_operator_and_the_gateways_count_the_same_endpoints(slices: list[Any], ready: int) -> None:
    cluster = Simulator()
    described = parse(InferenceService, cluster.service)
    assert isinstance(described, InferenceService)
    seen = cluster.observation()
    children = replace(seen.children, endpoint_slices=tuple(slices))
    owned = OwnedState(replace(seen, children=children), described)
    assert (owned.ready_endpoints.get("r1", 0), routed(slices)) == (ready, ready)
