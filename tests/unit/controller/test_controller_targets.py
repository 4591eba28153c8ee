"""What Prometheus is told to scrape."""

from typing import Any

import pytest
from tailbound.api.server_metrics import ServerMetrics, metrics_text
from tailbound.controller.targets import gateway_targets, serving_targets

HTTP = {"name": "http", "containerPort": 8080}
METRICS = {"name": "metrics", "containerPort": 9000}
LABELS = {"tailbound.dev/service": "churn", "tailbound.dev/revision": "churn-r1-abcdef"}


def pod(
    *ports: dict[str, Any],
    labels: dict[str, str] | None = None,
    container: str = "server",
    **status: Any,
) -> dict[str, Any]:
    """A pod as the API server has it; one of a service by default."""
    return {
        "metadata": {"namespace": "risk", "name": "churn-0", "labels": LABELS if labels is None else labels},
        "spec": {"containers": [{"name": container, "ports": list(ports)}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", **status},
    }


@pytest.mark.parametrize(
    ("ports", "target"),
    [
        pytest.param([HTTP], "10.0.0.7:8080", id="http where there is no port of its own"),
        pytest.param([HTTP, METRICS], "10.0.0.7:9000", id="metrics before http"),
        pytest.param([METRICS, HTTP], "10.0.0.7:9000", id="in any order"),
    ],
)
def test_a_serving_pod_is_scraped_at_one_port_with_its_names(
    ports: list[dict[str, Any]], target: str
) -> None:
    labels = {"namespace": "risk", "service": "churn", "revision": "churn-r1-abcdef", "pod": "churn-0"}
    assert serving_targets([pod(*ports)]) == [{"targets": [target], "labels": labels}]


def test_a_runtime_names_the_path_at_which_its_server_is_scraped() -> None:
    mapped = pod(HTTP)
    metrics = ServerMetrics(requests="r", request_time=("s",), path="/v1/metrics")
    mapped["metadata"]["annotations"] = {"tailbound.dev/server-metrics": metrics_text(metrics)}
    (group,) = serving_targets([mapped])
    assert group["labels"]["__metrics_path__"] == "/v1/metrics"


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(pod(HTTP, podIP=""), id="no address yet"),
        pytest.param(pod(HTTP, phase="Failed"), id="ended"),
        pytest.param(pod({"name": "debug", "containerPort": 1}), id="no such port"),
        pytest.param(pod(HTTP, container="other"), id="no server"),
        pytest.param(pod(HTTP, labels={"tailbound.dev/service": "churn"}), id="of no revision"),
    ],
)
def test_a_pod_that_cannot_be_scraped_is_left_out(left_out: dict[str, Any]) -> None:
    assert serving_targets([left_out]) == []


@pytest.mark.parametrize(
    ("container", "targets"), [("hold", 0), ("fetch", 1)], ids=["it-is-held", "its-server-drains"]
)
def test_a_stopping_pod_is_scraped_unless_it_stops_only_when_nothing_is_open(
    container: str, targets: int
) -> None:
    stopping = pod(HTTP, initContainerStatuses=[{"name": container}])
    assert len(serving_targets([stopping])) == 1
    stopping["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert len(serving_targets([stopping])) == targets


@pytest.mark.parametrize(
    ("address", "target"), [("10.0.0.7", "10.0.0.7:8082"), ("fd00::7", "[fd00::7]:8082")]
)
def test_gateway_pods_are_told_apart_by_their_names_alone(address: str, target: str) -> None:
    assert gateway_targets([pod(podIP=address), pod(podIP="")]) == [
        {"targets": [target], "labels": {"pod": "churn-0"}}
    ]
