"""The objectives that a gateway exports, from the objects to the text that Prometheus reads."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tailbound.api.names import SLA_METRIC
from tailbound.gateway.service_levels import service_levels
from tailbound.traffic.projection import Projector

from tests.unit.traffic.traffic_objects import service

LATENCY, ERRORS = {"latency": {"p99": "100ms"}}, {"errorRate": "0.1%"}


@pytest.mark.parametrize(
    ("sla", "expected"),
    [
        pytest.param({}, {}, id="no-target"),
        pytest.param(LATENCY, {"latency": "0.01"}, id="latency"),
        pytest.param(ERRORS, {"errors": "0.001"}, id="errors"),
        pytest.param(LATENCY | ERRORS, {"latency": "0.01", "errors": "0.001"}, id="both"),
    ],
)
def test_each_target_of_the_sla_is_exported(sla: dict[str, object], expected: dict[str, str]) -> None:
    projector = Projector("cluster.local", lambda _: ())
    projector.service_changed(service("churn", {"r1": 100}, sla=sla))
    routes = [each.route for each in projector.project().values() if each is not None]
    registry = CollectorRegistry()
    registry.register(service_levels(lambda: routes))
    text = generate_latest(registry).decode()
    found = [line for line in text.splitlines() if not line.startswith("#")]
    assert found == [
        f'{SLA_METRIC}{{namespace="risk",objective="{name}",service="churn"}} {ratio}'
        for name, ratio in expected.items()
    ]
