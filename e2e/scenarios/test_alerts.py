"""Alerts from the SLA and the queries of the dashboard, in the Prometheus of the installation."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import SYSTEM, Unmet

_PROMETHEUS: Final = f"/api/v1/namespaces/{SYSTEM}/services/tailbound-prometheus:9090/proxy/api/v1"
# Two dozen observations that all missed the target leave no doubt; 30 s count as ten.
ALERTED_SECONDS: Final = 240
DASHBOARD: Final = Path(__file__).parents[2] / "charts" / "tailbound" / "files" / "grafana" / "tailbound.json"
# The class of these pods has no price, and their server is not the included one.
MAY_BE_EMPTY: Final = {"Cost of pods in an hour", "Time in the pod"}
# A rate needs two scrapes of a series, with 15 s between them, and a series may begin with the alert.
SHOWN_SECONDS: Final = 60
OPERATORS: Final = 2
ALL_SLOW: Final = {"SLOW_FRACTION": 1.0, "DELAY_MS": 2500}


@pytest.mark.lasts(60)
def test_service_that_becomes_slow_raises_an_alert_and_its_neighbour_does_not(scene: Scene) -> None:
    slow, healthy = (Rollout.begin(scene, name, quick()) for name in ("slow", "healthy"))
    with slow.load(), healthy.load():
        slow.afflict(slow.stable(), ALL_SLOW)
        alert = scene.wait("the alert of slow", lambda: _alert(scene, "slow"), ALERTED_SECONDS)
        others = {each["labels"]["service"] for each in _alerts(scene)}
        scene.wait("data in each panel", lambda: _panels_with_data(scene, "slow"), SHOWN_SECONDS)
    assert alert["labels"]["objective"] == "latency", alert
    assert alert["labels"]["severity"] == "critical", alert
    assert f"kubectl tailbound status slow -n {scene.namespace}" in alert["annotations"]["description"], alert
    assert others == {"slow"}
    assert len(_query(scene, 'up{job="tailbound-operator"} == 1')) == OPERATORS


def _alert(scene: Scene, service: str) -> Object | Unmet:
    found = _alerts(scene)
    mine = [alert for alert in found if alert["labels"]["service"] == service and alert["state"] == "firing"]
    return mine[0] if mine else Unmet(f"alerts: {found or 'none'}")


def _alerts(scene: Scene) -> list[Object]:
    """The alerts of the scenario's services."""
    _, body = scene.api.raw("GET", f"{_PROMETHEUS}/alerts")
    found: list[Object] = json.loads(body)["data"]["alerts"]
    return [alert for alert in found if alert["labels"].get("namespace") == scene.namespace]


def _query(scene: Scene, expression: str) -> list[Object]:
    _, body = scene.api.raw("GET", f"{_PROMETHEUS}/query?{urlencode({'query': expression})}")
    series: list[Object] = json.loads(body)["data"]["result"]
    return series


def _panels_with_data(scene: Scene, service: str) -> bool | Unmet:
    missing = _panels_without_data(scene, service) - MAY_BE_EMPTY
    return Unmet(f"panels without data: {sorted(missing)}") if missing else True


def _panels_without_data(scene: Scene, service: str) -> set[str]:
    """Titles of panels of the dashboard that show nothing for a service."""
    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
    variables = {"$namespace": scene.namespace, "$service": service}
    empty = set[str]()
    for panel in panels:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in variables.items():
                query = query.replace(name, value)
            if not _query(scene, query):
                empty.add(panel["title"])
    return empty
