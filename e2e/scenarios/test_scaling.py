"""Pods follow the traffic: within the SLA, without a failed request, and within what the cluster has."""

from e2e.scenarios.library.rollouts import canary
from e2e.scenarios.library.scaling import BUSY, CALM, SPEED, Scaled, lasts
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import Unmet

# After the ramp's first minute.
MEASURED_SECONDS = 30.0


def test_pods_follow_a_ramp_up_and_down_within_the_sla(scene: Scene) -> None:
    scaled = Scaled(scene, "ramp")
    with scaled.rollout.load(rate=CALM) as calm:
        scaled.condition("MetricsStale", "False", "MetricsFresh")
        lasts(MEASURED_SECONDS)
        assert scaled.replicas() == 1, scaled.words()
    scaled.within_target(calm)
    with scaled.rollout.load(rate=BUSY) as ramp:
        high = scaled.until("pods for the traffic", 3)
        scaled.until("readiness of them", 3, ready=True)
        scaled.condition("SLAMet", "True", "WithinTarget")
    assert ramp.result["outcomes"].keys() == {"ok"}, ramp.result
    with scaled.rollout.load(rate=BUSY) as busy:
        lasts(MEASURED_SECONDS)
    scaled.within_target(busy)
    (told,) = scaled.told()
    assert told["arrivalsPerSecond"] > CALM, told
    assert told["capacityPerSecond"] == 8.0 or 4 < told["capacityPerSecond"] < 9, told
    with scaled.rollout.load(rate=CALM) as down:
        scaled.until("fewer pods", 1, high - 2)
    scaled.within_target(down)


def test_a_full_quota_limits_the_pods_and_is_told(scene: Scene) -> None:
    scaled = Scaled(scene, "quota")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two-pods", "namespace": scene.namespace},
        "spec": {"hard": {"pods": "2"}},
    }
    scene.api.create(quota)
    with scaled.rollout.load(rate=BUSY):
        scaled.condition("ScalingLimited", "True", "QuotaExceeded")
        asked = scaled.replicas()
        assert asked <= 5, scaled.words()
        scene.api.delete("ResourceQuota", "two-pods", scene.namespace)
        scaled.until("the pods that were missing", 3, ready=True)
    scaled.condition("ScalingLimited", "False", "NotLimited")


def test_a_canary_is_sized_for_its_share_while_the_traffic_grows(scene: Scene) -> None:
    scaled = Scaled(scene, "canary", rollout=canary(50, promotion="manual"))
    rollout = scaled.rollout
    with rollout.load(rate=BUSY) as load:
        before = scaled.until("pods for the traffic", 3, ready=True)
        stable = rollout.stable()
        revision = rollout.introduce("second", SPEED)
        rollout.reaches("Paused", "AwaitingPromotion", revision=revision, weight=50)

        def both() -> dict[str, int] | Unmet:
            told = {each["revision"]: each["replicas"] for each in scaled.told()}
            return told if {stable, revision} <= told.keys() else Unmet(scaled.words())

        told = scene.wait("both sized", both, 120)
        assert 2 <= told[revision] <= told[stable], told
        assert told[stable] >= min(3, before), told
        rollout.hand("promote", revision)
        rollout.promoted(revision)
        scaled.until("all pods of the new revision", 3, ready=True)
    assert load.result["outcomes"].keys() == {"ok"}, load.result
