"""Pods follow the traffic: within the SLA, without a failed request, and within what the cluster has."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster.layout import NODE_NAME
from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.rollouts import canary
from e2e.scenarios.library.scaling import (
    BUSY,
    CALM,
    CAPACITY,
    FOLLOWS_SECONDS,
    NORMAL,
    RISE_SECONDS,
    SHOCK,
    SPEED,
    TARGET_SECONDS,
    Scaled,
    lasts,
    rounds,
)
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.traffic import Load
from e2e.scenarios.library.waiting import Unmet, stays

MEASURED_SECONDS = 30.0
HELD_SECONDS = 15


@pytest.mark.lasts(290)
def test_pods_follow_a_ramp_up_and_down_within_the_sla(scene: Scene) -> None:
    scaled = Scaled(scene, "ramp")
    with scaled.load(CALM) as calm:
        scaled.condition("MetricsStale", "False", "MetricsFresh")
        scaled.condition("SLAMet", "True", "WithinTarget")
        lasts(MEASURED_SECONDS / 2)
        assert scaled.replicas() == 1, scaled.words()
    scaled.within_target(calm)
    for _ in rounds():
        _up(scaled)
        _down(scaled)


def _up(scaled: Scaled) -> None:
    """Some may be late in the first minute. None ever fails."""
    with scaled.load(BUSY, rise=(CALM, RISE_SECONDS)) as rise:
        lasts(RISE_SECONDS)
    assert rise.result["outcomes"].keys() == {"ok"}, rise.result
    with scaled.load(BUSY) as busy:
        lasts(MEASURED_SECONDS)
    scaled.within_target(busy)
    assert scaled.ready() >= 3, scaled.words()
    (told,) = scaled.told()
    assert told["arrivalsPerSecond"] > CALM, told
    assert CAPACITY / 2 < told["capacityPerSecond"] < CAPACITY * 1.1, told


def _down(scaled: Scaled) -> None:
    high = scaled.replicas()
    with scaled.load(CALM, rise=(BUSY, RISE_SECONDS / 2)) as down:
        scaled.until("fewer pods", 1, high - 2)
    scaled.within_target(down)


@pytest.mark.lasts(95)
def test_pods_follow_where_the_runtime_tells_nothing_of_its_batches(scene: Scene) -> None:
    most = 10
    scaled = Scaled(scene, "mute", most=most, speed={**SPEED, "NO_METRICS": 1})
    with scaled.load(BUSY, rise=(CALM, RISE_SECONDS)):
        scaled.until("more pods", 3, ready=True)
    with scaled.load(BUSY) as busy:
        lasts(MEASURED_SECONDS)
    scaled.within_target(busy)
    (told,) = scaled.told()
    assert CAPACITY / 2 < told["capacityPerSecond"] < CAPACITY * 1.25, told
    assert told["replicas"] < most, scaled.words()


@pytest.mark.lasts(110)
def test_after_a_shock_of_twice_the_load_more_is_answered_in_time_where_the_rest_is_refused(
    scene: Scene, other_scene: Scene
) -> None:
    """The client sees one pod for what two can do, until more are allowed; side by side.

    Everything waits, or the server refuses what would be late, or the gateways do for a server that cannot.
    """
    careless = {**SPEED, "NO_SHEDDING": 1}
    begun = {
        "queue": Scaled(scene, "queue", most=1, overload="queue"),
        "shed": Scaled(scene, "shed", most=1, overload="shed"),
        "gateways": Scaled(other_scene, "gateways", most=1, overload="shed", speed=careless, sheds=False),
    }
    with ThreadPoolExecutor(len(begun)) as pool:
        loads = dict(zip(begun, pool.map(_shock, begun.values()), strict=True))
    alone = {name: load.result for name, (load, _) in loads.items()}
    results = {name: load.result for name, (_, load) in loads.items()}
    in_time = {name: result["in_time"] / result["requests"] for name, result in alone.items()}
    outcomes = {name: result["outcomes"] for name, result in results.items()}
    p99 = results["shed"]["latency_ms"]["p99"]
    sys.stdout.write(f"in time {in_time}; outcomes {outcomes}; P99 with shedding {p99:.0f} ms\n")
    assert "http_503" not in outcomes["queue"], outcomes
    assert outcomes["shed"].keys() == outcomes["gateways"].keys() == {"ok", "http_503"}, outcomes
    assert in_time["shed"] > in_time["queue"], in_time
    assert p99 < 2000 * TARGET_SECONDS, "what would be late by far was let in"
    assert "overloaded" in results["shed"]["failures"][0]["detail"], results["shed"]
    of_gateways = results["gateways"]
    assert "spec.overload" in of_gateways["failures"][0]["detail"], of_gateways["failures"][0]
    assert of_gateways["in_time"] > 0.8 * of_gateways["outcomes"]["ok"], "what would be late was let in"


def _shock(scaled: Scaled) -> tuple[Load, Load]:
    """The loads of a while that one pod has to do alone, and of the time from when more are allowed.

    How soon they come differs by seconds, so shares of answers in time are compared of the former.
    """
    with scaled.load(NORMAL):
        lasts(HELD_SECONDS)
    with scaled.load(SHOCK) as alone:
        lasts(HELD_SECONDS)
    with scaled.load(SHOCK) as shock:
        scaled.allow(5)
        missed = scaled.condition("SLAMet", "False", "TargetMissed")
        scaled.until("a second pod", 2, ready=True)
        lasts(HELD_SECONDS)
    assert ("are refused" in missed["message"]) is (scaled.name != "queue"), missed
    return alone, shock


def test_a_full_quota_limits_the_pods_and_is_told(scene: Scene) -> None:
    scaled = Scaled(scene, "quota")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two-pods", "namespace": scene.namespace},
        "spec": {"hard": {"pods": "2"}},
    }
    scene.api.create(quota)
    with scaled.load(BUSY, rise=(CALM, RISE_SECONDS / 2)):
        scaled.condition("ScalingLimited", "True", "QuotaExceeded")
        asked = scaled.replicas()
        assert asked <= 5, scaled.words()
        scene.api.delete("ResourceQuota", "two-pods", scene.namespace)
        lasts(5)  # until admission knows of it
        # After each refusal Kubernetes waits twice as long, up to 1000 s, unless the ReplicaSet changes.
        for replica_set in scene.api.list("ReplicaSet", scene.namespace):
            changed = {"metadata": {"annotations": {"example.com/looked-at": "again"}}}
            scene.api.patch("ReplicaSet", replica_set["metadata"]["name"], scene.namespace, changed)
        scaled.until("the pods that were missing", 3, ready=True)
        scaled.condition("ScalingLimited", "False", "NotLimited")


@pytest.mark.lasts(270)
def test_a_canary_is_sized_for_its_share_while_the_traffic_grows(scene: Scene) -> None:
    scaled = Scaled(scene, "canary", rollout=canary(50, promotion="manual"))
    rollout = scaled.rollout
    with scaled.load(BUSY / 2, rise=(CALM, RISE_SECONDS / 2)) as half:
        lasts(RISE_SECONDS / 2)
        scaled.until("a second pod for the traffic", 2, ready=True)
        stable = rollout.stable()
        revision = rollout.introduce("second", SPEED)
        rollout.reaches("Paused", "AwaitingPromotion", revision=revision, weight=50)

    def both() -> dict[str, int] | Unmet:
        told = {each["revision"]: each["replicas"] for each in scaled.told()}
        sized = {stable, revision} <= told.keys() and told[stable] >= 3 and told[revision] >= 2
        return told if sized else Unmet(scaled.words())

    # So slowly that pods come in time on a busy machine: a canary that answers late is rolled back for it.
    with scaled.load(BUSY, rise=(BUSY / 2, 2 * RISE_SECONDS)) as full:
        told = scene.wait("both sized", both, FOLLOWS_SECONDS)
        assert told[revision] <= told[stable], told
        rollout.action("promote", revision)
        rollout.promoted(revision)
        scaled.until("all pods of the new revision", 3, ready=True)
    for load in (half, full):
        assert load.result["outcomes"].keys() == {"ok"}, load.result


@pytest.mark.needs_own_cluster
def test_more_pods_than_devices_are_not_asked_for_without_end(scene: Scene) -> None:
    kind = f"device-{scene.namespace[-5:]}"
    resource = f"example.com/{kind}"
    status = {"status": {"capacity": {resource: "2"}, "allocatable": {resource: "2"}}}
    scene.world.kubectl.run(
        "patch", "node", NODE_NAME, "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )
    scene.api.apply(hardware_class(kind, resources=[{"name": resource, "count": 1}]))
    try:
        scaled = Scaled(scene, "devices", most=20, hardware={"class": [kind]})
        with scaled.load(2 * BUSY, rise=(CALM, RISE_SECONDS / 2)):
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
        scene.api.delete("HardwareClass", kind)
