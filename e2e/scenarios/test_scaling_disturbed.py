"""What is decided by the traffic while what the decision depends on is taken away."""

import pytest

from e2e.scenarios.library import parts
from e2e.scenarios.library.rollouts import ERRORS, Rollout, through_prometheus
from e2e.scenarios.library.scaling import BUSY, CALM, RISE_SECONDS, Scaled
from e2e.scenarios.library.scene import Scene, scale

PROMETHEUS = "tailbound-prometheus"


@pytest.mark.disturbs(parts.PROMETHEUS, needs=(parts.GATEWAYS,))
@pytest.mark.needs_own_cluster
def test_without_prometheus_pods_stay_and_verdicts_wait(scene: Scene) -> None:
    judged = Rollout.applied(scene, "unscraped", through_prometheus(50))
    scaled = Scaled(scene, "disturbed")
    scene.ready(judged.name)
    stable = judged.stable()
    with judged.load(), scaled.load(BUSY / 2, rise=(CALM, RISE_SECONDS / 2)) as load:
        held = scaled.until("the first pod for the traffic", 2)
        revision = judged.introduce("second")
        judged.analysed(revision)
        scale(scene.world, PROMETHEUS, 0)
        try:
            judged.afflict(revision, ERRORS)
            waiting = judged.reaches("Paused", "NoData", revision=revision, weight=50)
            assert "Prometheus" in waiting["message"], waiting
            scaled.condition("MetricsStale", "True", "MetricsMissing")
        finally:
            scale(scene.world, PROMETHEUS, 1)
        assert scaled.replicas() >= held, scaled.words()
        judged.rolled_back(revision, "Failing", stable=stable)
    assert load.result["outcomes"].keys() == {"ok"}, load.result
