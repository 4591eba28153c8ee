"""Pods that follow the traffic while what they depend on is taken away."""

import pytest

from e2e.scenarios.library import host
from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.scaling import BUSY, Scaled
from e2e.scenarios.library.scene import OPERATOR, Scene, scale, workload
from e2e.scenarios.library.waiting import Unmet, stays

PROMETHEUS = "tailbound-prometheus"
HELD_SECONDS = 30

pytestmark = pytest.mark.disturbs


def test_without_prometheus_no_pod_is_taken_away(scene: Scene) -> None:
    scaled = Scaled(scene, "blind")
    with scaled.rollout.load(rate=BUSY) as load:
        high = scaled.until("pods for the traffic", 3)
        scale(scene.world, PROMETHEUS, 0)
        try:
            scaled.condition("MetricsStale", "True", "MetricsMissing")
        finally:
            scale(scene.world, PROMETHEUS, 1)
            high = scaled.replicas()
    assert load.result["outcomes"].keys() == {"ok"}, load.result
    assert scaled.replicas() >= 3
    scaled.condition("MetricsStale", "False", "MetricsFresh")
    scaled.until("fewer pods", 1, high - 1)


@pytest.mark.needs_own_cluster
def test_operator_killed_in_the_middle_of_a_ramp_goes_on(scene: Scene) -> None:
    scaled = Scaled(scene, "killed")
    with scaled.rollout.load(rate=BUSY / 2):
        scaled.until("the first pods for the traffic", 2)
    with scaled.rollout.load(rate=BUSY) as load:
        before = scaled.replicas()
        for pod in workload(scene.api, OPERATOR):  # the standby too: nobody takes over smoothly
            host.kill_container(pod, "operator")
        scaled.until("more pods than before", max(3, before), ready=True)
    assert load.result["outcomes"].keys() == {"ok"}, load.result


def test_more_pods_than_devices_are_not_asked_for_without_end(scene: Scene) -> None:
    pair = f"pair-{scene.namespace[-5:]}"
    scene.api.apply(hardware_class(pair, resources=[{"name": "nvidia.com/gpu", "count": 2}]))
    try:
        scaled = Scaled(scene, "devices", most=20, hardware={"class": [pair]})
        with scaled.rollout.load(rate=2 * BUSY):
            scaled.condition("ScalingLimited", "True", "Unschedulable")
            asked = scaled.replicas()
            stays(
                "the number of pods",
                lambda: scaled.replicas() <= asked or Unmet(scaled.words()),
                HELD_SECONDS,
            )
        assert asked <= 10, scaled.words()
        assert scaled.ready() == 2, scaled.words()
    finally:
        scene.api.delete("HardwareClass", pair)
