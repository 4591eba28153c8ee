"""Somebody else decides how many pods serve: a HorizontalPodAutoscaler, through the scale subresource."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.scenarios.library import pod_metrics
from e2e.scenarios.library.api import Object, conditions, names
from e2e.scenarios.library.scaling import FOLLOWS_SECONDS, Scaled
from e2e.scenarios.library.scene import GONE_SECONDS, Scene, World
from e2e.scenarios.library.waiting import Unmet, condition_lines, stays

EXAMPLE = Path(__file__).parents[2] / "examples" / "horizontal-pod-autoscaler.yaml"
KIND = "HorizontalPodAutoscaler"
MOST = 3
# An answer takes no time, but half a millisecond of CPU: one pod would use twice what it is to use.
AT_ONCE: dict[str, float] = {}
CALM, BUSY = 3.0, 60.0
RESOURCES = {"cpu": "50m", "memory": "128Mi"}
TARGET_PERCENT = 30
# By itself it asks for fewer pods only after minutes.
HASTE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
HELD_SECONDS = 10


@pytest.fixture
def pod_cpus(world: World) -> Iterator[None]:
    """What it decides by."""
    with pod_metrics.served(world.api):
        yield


@pytest.mark.usefixtures("pod_cpus")
@pytest.mark.lasts(200)
def test_a_horizontal_pod_autoscaler_decides_and_no_request_fails(scene: Scene) -> None:
    scaled = Scaled(
        scene,
        "external",
        speed=AT_ONCE,
        resources=RESOURCES,
        scaling={"mode": "external", "min": 1, "max": MOST},
    )
    autoscaler = Autoscaler(scaled)
    with scaled.load(BUSY) as busy:
        autoscaler.until("more pods", 2, MOST)
        scaled.until("them ready", 2, ready=True)
        # Nobody takes them away again.
        stays("pods", lambda: scaled.replicas() >= 2 or Unmet(f"{scaled.replicas()} replicas"), HELD_SECONDS)
    busy.assert_flawless(at_least=100)
    with scaled.load(CALM) as calm:
        autoscaler.until("one pod", 1, 1)
        scene.wait("end of the others", lambda: _alone(scene), GONE_SECONDS)
    calm.assert_flawless(at_least=10)
    assert scaled.told() == []
    # The latency target is watched also where an autoscaler of another project sets the number of pods.
    scaled.condition("SLAMet", "True", "WithinTarget")
    assert not conditions(scene.service("external")).keys() & {"ScalingLimited", "MetricsStale"}


def _alone(scene: Scene) -> bool | Unmet:
    pods = names(scene.api.list("Pod", scene.namespace))
    return True if len(pods) == 1 else Unmet(", ".join(pods))


class Autoscaler:
    """The HorizontalPodAutoscaler of the examples, attached to a service and in a hurry."""

    def __init__(self, scaled: Scaled) -> None:
        self._scaled = scaled
        documents: Iterator[Object] = yaml.safe_load_all(EXAMPLE.read_text())
        (made,) = (each for each in documents if each["kind"] == KIND)
        spec: dict[str, Any] = made["spec"]
        made["metadata"] = {"name": scaled.name, "namespace": scaled.scene.namespace}
        spec["scaleTargetRef"]["name"] = scaled.name
        spec |= {"minReplicas": 1, "maxReplicas": MOST, "behavior": HASTE}
        spec["metrics"][0]["resource"]["target"]["averageUtilization"] = TARGET_PERCENT
        scaled.scene.api.create(made)

    def until(self, what: str, least: int, most: int) -> None:
        """Wait until it asks for so many pods and the operator has followed."""
        scene, name = self._scaled.scene, self._scaled.name

        def probe() -> bool | Unmet:
            found = scene.api.need(KIND, name, scene.namespace)
            wanted = found.get("status", {}).get("desiredReplicas", 0)
            asked = scene.service(name)["spec"]["scaling"]["replicas"]
            pods = (wanted, asked, self._scaled.replicas())
            if len(set(pods)) == 1 and least <= wanted <= most:
                return True
            return Unmet(f"wanted, asked for and written: {pods}; {'; '.join(condition_lines(found))}")

        scene.wait(what, probe, FOLLOWS_SECONDS)
