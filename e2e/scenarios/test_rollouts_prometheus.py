"""A rollout that is judged by what the installation's Prometheus scraped of the gateways."""

from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary, only_from, through_prometheus
from e2e.scenarios.library.scene import Scene

# A pass waits half a minute longer than with the gateways' own counters: so old may a scrape be.
PROMOTED_SECONDS = 240


@pytest.mark.lasts(120)
def test_canaries_are_judged_by_what_prometheus_scraped(scene: Scene) -> None:
    good = Rollout.applied(scene, "scraped-good", through_prometheus(50))
    bad = Rollout.applied(scene, "scraped-bad", through_prometheus(50))
    scene.all_ready([good.name, bad.name])
    stable = bad.stable()
    with good.load(rate=30) as of_good:
        with bad.load() as of_bad:
            promoted, rejected = good.introduce("second"), bad.introduce("second", ERRORS)
            found = bad.rolled_back(rejected, "Failing", stable=stable)
            scene.gone("Deployment", rejected)
        good.promoted(promoted, within=PROMOTED_SECONDS)
    of_good.assert_flawless(at_least=100)
    assert "the SLA allows" in found["message"], found
    only_from(of_bad, rejected)
    bad.assert_untouched(stable)


_OF_THE_CANARY = 'tailbound_requests_total{namespace="$namespace",revision="$revision"'


_METRICS: Mapping[str, Object] = {
    "counters": {
        "bad": f'{_OF_THE_CANARY},class="failed"}}',
        "total": f"{_OF_THE_CANARY}}}",
        "max": 0.05,
        "interval": "5s",
    },
    "mean": {
        "query": f'sum(rate({_OF_THE_CANARY},class="good"}}[6s])) / sum(rate({_OF_THE_CANARY}}}[6s]))',
        "min": 0.9,
        "interval": "2s",
    },
}


@pytest.mark.lasts(90)
def test_canary_beyond_the_bound_of_a_scraped_metric_is_rolled_back(scene: Scene) -> None:
    # The SLA allows what the metrics do not.
    rollouts = {
        name: Rollout.applied(scene, name, canary(50, analysis=_analysis(metric)), sla={"errorRate": "50%"})
        for name, metric in _METRICS.items()
    }
    scene.all_ready(rollouts)
    with ExitStack() as loads:
        for rollout in rollouts.values():
            loads.enter_context(rollout.load())
        stable = {name: rollout.stable() for name, rollout in rollouts.items()}
        bad = {
            name: rollout.introduce("second", {"ERROR_FRACTION": 0.45}) for name, rollout in rollouts.items()
        }
        for name, rollout in rollouts.items():
            found = rollout.rolled_back(bad[name], "MetricBreached", stable=stable[name])
            assert "metric beyond is " in found["message"], found
            assert "worse than stable" in found["message"], found
    for name, rollout in rollouts.items():
        rollout.assert_untouched(stable[name])


def _analysis(metric: Object) -> Object:
    return {"warmupRequests": 5, "metrics": [{"name": "beyond", **metric}]}


_CURIOUS = {
    "refused": ("info(tailbound_requests_total)", "cannot be confined to namespace"),
    "another-namespace": ('count({namespace!="$namespace"})', "metric beyond"),
}


def test_metric_that_looks_beyond_its_namespace_sees_nothing(scene: Scene) -> None:
    rollouts = {
        name: Rollout.applied(
            scene,
            name,
            canary(50, analysis=_analysis({"query": query, "max": 0.5}), maxStepTime="10s"),
        )
        for name, (query, _) in _CURIOUS.items()
    }
    scene.all_ready(rollouts)
    with ExitStack() as loads:
        for rollout in rollouts.values():
            loads.enter_context(rollout.load())
        revisions = {name: rollout.introduce("second") for name, rollout in rollouts.items()}
        for name, (_, says) in _CURIOUS.items():
            rollouts[name].reaches("Paused", "NoData", revision=revisions[name], says=says)
