"""A rollout that is judged by what the installation's Prometheus scraped of the gateways."""

import pytest

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary, only_from
from e2e.scenarios.library.scene import Scene, scale

PROMETHEUS = "tailbound-prometheus"
# A pass waits half a minute longer than with the gateways' own counters: so old may a scrape be.
PROMOTED_SECONDS = 240


def through_prometheus(*weights: int, **analysis: object) -> Object:
    """spec.rollout of a canary with short limits."""
    source = {"source": "prometheus", "warmupRequests": 5, "dataTimeout": "10s", **analysis}
    return canary(*weights, analysis=source)


def test_good_canary_is_promoted_by_what_prometheus_scraped(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "scraped-good", through_prometheus(50))
    with rollout.load(rate=30) as load:
        revision = rollout.introduce("second")
        rollout.promoted(revision, within=PROMOTED_SECONDS)
    load.assert_flawless(at_least=100)


def test_bad_canary_is_rolled_back_by_what_prometheus_scraped(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "scraped-bad", through_prometheus(50))
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second", ERRORS)
        found = rollout.rolled_back(revision, "Failing", stable=stable)
        scene.gone("Deployment", revision)
    assert "the SLA allows" in found["message"], found
    only_from(load, revision)
    rollout.assert_untouched(stable)


@pytest.mark.disturbs
def test_without_prometheus_the_verdict_waits_until_it_is_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "unscraped", through_prometheus(50))
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second")
        rollout.analysed(revision)
        scale(scene.world, PROMETHEUS, 0)
        try:
            rollout.afflict(revision, ERRORS)
            waiting = rollout.reaches("Paused", "NoData", revision=revision, weight=50)
            assert "Prometheus" in waiting["message"], waiting
        finally:
            scale(scene.world, PROMETHEUS, 1)
        rollout.rolled_back(revision, "Failing", stable=stable)


_OF_THE_CANARY = 'tailbound_requests_total{namespace="$namespace",revision="$revision"'


@pytest.mark.parametrize(
    "metric",
    [
        pytest.param(
            {
                "bad": f'{_OF_THE_CANARY},class="failed"}}',
                "total": f"{_OF_THE_CANARY}}}",
                "max": 0.05,
                "interval": "5s",
            },
            id="counters",
        ),
        pytest.param(
            {
                "query": f'sum(rate({_OF_THE_CANARY},class="good"}}[10s]))'
                f" / sum(rate({_OF_THE_CANARY}}}[10s]))",
                "min": 0.9,
                "interval": "2s",
            },
            id="mean",
        ),
    ],
)
def test_canary_beyond_the_bound_of_a_scraped_metric_is_rolled_back(scene: Scene, metric: Object) -> None:
    analysis = {"warmupRequests": 5, "metrics": [{"name": "good", **metric}]}
    rollout = Rollout.begin(scene, "measured", canary(50, analysis=analysis), sla={})
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second", ERRORS)
        found = rollout.rolled_back(revision, "MetricBreached", stable=stable)
    assert "metric good is " in found["message"], found
    assert "worse than stable" in found["message"], found
    rollout.assert_untouched(stable)
