"""Pods that follow the traffic while what they depend on is taken away."""

import pytest

from e2e.scenarios.library import host
from e2e.scenarios.library.scaling import BUSY, CALM, RISE_SECONDS, Scaled
from e2e.scenarios.library.scene import OPERATOR, Scene, scale, workload

PROMETHEUS = "tailbound-prometheus"


@pytest.mark.disturbs
@pytest.mark.needs_own_cluster
def test_a_ramp_goes_on_without_prometheus_and_with_the_operator_killed(scene: Scene) -> None:
    scaled = Scaled(scene, "disturbed")
    with scaled.load(BUSY / 2, rise=(CALM, RISE_SECONDS / 2)) as first:
        held = scaled.until("the first pod for the traffic", 2)
        scale(scene.world, PROMETHEUS, 0)
        try:
            scaled.condition("MetricsStale", "True", "MetricsMissing")
        finally:
            scale(scene.world, PROMETHEUS, 1)
        assert scaled.replicas() >= held, scaled.words()
    with scaled.load(BUSY, rise=(BUSY / 2, RISE_SECONDS / 2)) as second:
        for pod in workload(scene.api, OPERATOR):  # the standby too: nobody takes over smoothly
            host.kill_container(pod, "operator")
        scaled.until("more pods than before", 3, ready=True)
        scaled.condition("MetricsStale", "False", "MetricsFresh")
    for load in (first, second):
        assert load.result["outcomes"].keys() == {"ok"}, load.result
