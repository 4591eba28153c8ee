"""A new revision gets requests step by step, is judged by what they saw, and is promoted or rolled back."""

from collections.abc import Mapping

import pytest

from e2e.scenarios.library.rollouts import (
    ERRORS,
    HANGS,
    HEALTHY,
    PROMOTED_SECONDS,
    SLOW,
    Rollout,
    canary,
    only_from,
    quick,
)
from e2e.scenarios.library.scene import Scene, restarts
from e2e.scenarios.library.waiting import Unmet, stays


def test_good_canary_is_promoted_through_every_step_without_a_failed_request(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "good", canary(40, 70))
    seen: list[int] = []

    def promoted() -> bool | Unmet:
        status = rollout.status()
        weight = status.get("weight", 0)
        if status["revision"] == revision and weight and weight not in seen:
            seen.append(weight)
        return status["state"] == "Promoted" or Unmet(str(status))

    with rollout.load(rate=30) as load:
        before = rollout.stable()
        revision = rollout.introduce("second")
        scene.wait("promotion", promoted, PROMOTED_SECONDS)
        scene.gone("Deployment", before)
    load.assert_flawless(at_least=100)
    assert seen == [40, 70, 100]
    rollout.promoted(revision)
    findings = rollout.status()
    assert findings["step"] == 2, findings


@pytest.mark.parametrize(
    ("faults", "reasons"),
    [
        pytest.param(SLOW, ("Slow",), id="slow"),
        pytest.param(ERRORS, ("Failing",), id="erroring"),
        pytest.param(HANGS, ("Slow", "Failing"), id="hanging"),
    ],
)
def test_bad_canary_is_rolled_back_and_stable_requests_are_untouched(
    scene: Scene, faults: Mapping[str, float], reasons: tuple[str, ...]
) -> None:
    rollout = Rollout.begin(scene, "bad", canary(40, 70))
    stable, pods = rollout.stable(), restarts(scene.pods("bad"))
    with rollout.load() as load:
        revision = rollout.introduce("second", faults)
        found = rollout.rolled_back(revision, *reasons, stable=stable)
        scene.gone("Deployment", revision)
    assert "the SLA allows" in found["message"], found
    assert load.result["requests"] > 50, load.result
    only_from(load, revision)
    rollout.assert_untouched(stable)
    assert restarts(scene.pods("bad")) == pods
    stays("the rejection", lambda: _stays_rejected(rollout, revision), 3)


def _stays_rejected(rollout: Rollout, revision: str) -> bool | Unmet:
    status = rollout.status()
    rejected = (status["state"], status["revision"]) == ("RolledBack", revision)
    return True if rejected and not rollout.pods(revision) else Unmet(str(status))


@pytest.mark.parametrize(
    ("faults", "limits", "reasons"),
    [
        pytest.param({"CRASH_AFTER": 0}, {"restartLimit": 1}, ("CrashLoop",), id="crash-looping"),
        pytest.param(
            {"NEVER_READY": 1}, {"progressDeadline": "15s"}, ("DeadlineExceeded",), id="never-ready"
        ),
    ],
)
def test_canary_that_never_serves_is_rolled_back_without_a_request(
    scene: Scene, faults: Mapping[str, float], limits: Mapping[str, object], reasons: tuple[str, ...]
) -> None:
    rollout = Rollout.begin(scene, "stuck", canary(50, **limits))
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second", faults)
        rollout.rolled_back(revision, *reasons, stable=stable)
        scene.gone("Deployment", revision)
    load.assert_flawless(at_least=50)
    assert revision not in rollout.counted()


def test_canary_that_crashes_under_requests_is_rolled_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "crashing", canary(50, restartLimit=2))
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second", {"CRASH_AFTER": 30})
        rollout.rolled_back(revision, "CrashLoop", "Failing", stable=stable)
    rollout.assert_untouched(stable)


def test_canary_that_degrades_at_a_later_step_is_rolled_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "late", canary(50, 60, 70, minStepTime="3s"), sla={"errorRate": "5%"})
    stable = rollout.stable()
    with rollout.load(rate=20) as load:
        revision = rollout.introduce("second")
        assert rollout.analysed(revision, weight=70)["step"] == 2
        rollout.afflict(revision, ERRORS)
        found = rollout.rolled_back(revision, "Failing", stable=stable)
        scene.gone("Deployment", revision)
    assert found["step"] == 2, found
    only_from(load, revision)
    rollout.assert_untouched(stable)


def test_both_slow_holds_the_rollout_and_blames_nobody(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "shared", canary(50))
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second")
        rollout.analysed(revision)
        for each in (stable, revision):
            rollout.afflict(each, {**SLOW, "SLOW_FRACTION": 0.4})
        rollout.reaches("Analysing", "SharedBreach", revision=revision)
        stays("the hold", lambda: _holds(rollout, revision), 8)
        for each in (stable, revision):
            rollout.afflict(each, HEALTHY)
    assert load.result["failed"] == 0, load.result
    assert rollout.stable() == stable


def _holds(rollout: Rollout, revision: str) -> bool | Unmet:
    status = rollout.status()
    held = (status["state"], status["revision"], status["weight"]) == ("Analysing", revision, 50)
    return True if held else Unmet(str(status))


def test_too_little_traffic_is_inconclusive_and_a_person_promotes(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "quiet", canary(50, maxStepTime="5s"))
    revision = rollout.introduce("second")
    paused = rollout.reaches("Paused", "Inconclusive", revision=revision, weight=50)
    assert "without a verdict" in paused["message"]
    scene.condition("quiet", "Promoted", "Unknown", "Inconclusive")
    rollout.action("promote", revision)
    rollout.promoted(revision)
    assert rollout.status()["reason"] == "PromotedManually"


def test_blue_green_returns_at_once_while_the_old_pods_are_kept(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "bluegreen", quick(scaleDownDelay="2m"), sla={"errorRate": "5%"})
    stable, pods = rollout.stable(), restarts(scene.pods("bluegreen"))
    with rollout.load() as load:
        revision = rollout.introduce("second")
        rollout.reaches("Promoting", revision=revision, weight=100)
        rollout.afflict(revision, ERRORS)
        rollout.rolled_back(revision, "Failing", stable=stable, within=45)
        scene.gone("Deployment", revision)
    only_from(load, revision)
    rollout.assert_untouched(stable)
    assert restarts(scene.pods("bluegreen")) == pods


def test_blue_green_promotes_a_good_revision_without_a_failed_request(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "switch", quick(scaleDownDelay="5s"))
    before = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second")
        rollout.promoted(revision)
        scene.gone("Deployment", before)
    load.assert_flawless(at_least=50)
