"""A new revision gets requests step by step, is judged by what they saw, and is promoted or rolled back."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from e2e.scenarios.library import rpc
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.rollouts import (
    ERRORS,
    HANGS,
    HEALTHY,
    PROMOTED_SECONDS,
    SERVER_PORT,
    SLOW,
    Rollout,
    canary,
    only_from,
    quick,
)
from e2e.scenarios.library.scene import Scene, restarts
from e2e.scenarios.library.traffic import VALUES
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


def test_a_canary_of_the_real_server_is_promoted_over_grpc_without_a_lost_call(scene: Scene) -> None:
    spec = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]
    spec = {**spec, "server": rpc.offering(spec["server"], "TAILBOUND_GRPC_PORT")}
    scene.api.apply(serving_runtime(scene.namespace, "rpc", spec))
    rollout = Rollout(scene, "called", canary(50), _model=scene.model(slope=2.0), runtime="rpc")
    rollout.change("first")
    scene.ready("called")
    stable, client = rollout.stable(), scene.world.client
    watched = client.call(rpc.url(scene.namespace, "called", rpc.WATCH), b"", answers=1)
    assert rpc.serving(watched.messages[0]), watched
    tripling = scene.model(slope=3.0)
    with rollout.calls() as load:
        rollout.spec["model"] = scene.manifest("called", tripling)["spec"]["model"]
        revision = rollout.introduce("second")
        rollout.promoted(revision)
        scene.gone("Deployment", stable)
    load.assert_flawless(at_least=50)
    assert load.result["distinct_answers"] == 2, load.result
    url, message = rpc.url(scene.namespace, "called", rpc.MODEL_INFER), rpc.infer_message("called", VALUES)
    assert rpc.prediction(client.call(url, message).messages[0]) == tripling.expected(VALUES)
    for each in (stable, revision):
        rollout.assert_untouched(each)
    unknown = client.call(url, rpc.infer_message("other", VALUES))
    assert (unknown.code, "other" in unknown.details) == ("NOT_FOUND", True), unknown


def test_slow_and_failing_canaries_are_rolled_back_by_their_answers_over_grpc(scene: Scene) -> None:
    server = rpc.offering({"ports": [{"name": "http", "containerPort": SERVER_PORT}]}, "RPC_PORT")
    wrong = {"failing": (ERRORS, "Failing"), "slow": (SLOW, "Slow")}
    rollouts = {name: Rollout.applied(scene, name, canary(50), runtime={"server": server}) for name in wrong}
    scene.all_ready(rollouts)
    stable = {name: rollout.stable() for name, rollout in rollouts.items()}
    with ExitStack() as stack:
        loads = {name: stack.enter_context(rollout.calls()) for name, rollout in rollouts.items()}
        bad = {name: rollouts[name].introduce("second", faults) for name, (faults, _) in wrong.items()}
        for name, (_, reason) in wrong.items():
            rollouts[name].rolled_back(bad[name], reason, stable=stable[name])
            scene.gone("Deployment", bad[name])
    for name, rollout in rollouts.items():
        only_from(loads[name], bad[name])
        rollout.assert_untouched(stable[name])
    assert loads["failing"].result["outcomes"].keys() == {"ok", "grpc_internal"}, loads["failing"].result


FAULTS: Final[Mapping[str, tuple[Mapping[str, float], tuple[str, ...]]]] = {
    "slow": (SLOW, ("Slow",)),
    "erroring": (ERRORS, ("Failing",)),
    "hanging": (HANGS, ("Slow", "Failing")),
}


@pytest.mark.lasts(120)
def test_bad_canaries_are_rolled_back_and_stable_requests_are_untouched(scene: Scene) -> None:
    rollouts = {name: Rollout.applied(scene, name, canary(40, 70)) for name in FAULTS}
    scene.all_ready(rollouts)
    stable = {name: rollout.stable() for name, rollout in rollouts.items()}
    pods = {name: restarts(scene.pods(name)) for name in FAULTS}
    with ExitStack() as stack:
        loads = {name: stack.enter_context(rollout.load()) for name, rollout in rollouts.items()}
        bad = {name: rollouts[name].introduce("second", faults) for name, (faults, _) in FAULTS.items()}
        for name, (_, reasons) in FAULTS.items():
            found = rollouts[name].rolled_back(bad[name], *reasons, stable=stable[name])
            assert "the SLA allows" in found["message"], found
            scene.gone("Deployment", bad[name])
    for name, rollout in rollouts.items():
        assert loads[name].result["requests"] > 50, loads[name].result
        only_from(loads[name], bad[name])
        rollout.assert_untouched(stable[name])
        assert restarts(scene.pods(name)) == pods[name]
    for name, rollout in rollouts.items():
        stays("the rejection", partial(_stays_rejected, rollout, bad[name]), 1)


@pytest.mark.security
def test_slow_uploads_of_strangers_roll_no_healthy_revision_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "uploads", canary(50))
    uploads = rollout.load(rate=8, body_bytes=200_000, pause_seconds=3)
    with rollout.load() as load, uploads as slow:
        revision = rollout.introduce("second")
        rollout.promoted(revision)
    load.assert_flawless(at_least=50)
    slow.assert_flawless(at_least=50)
    assert rollout.counted()[revision]["slow"] <= 0.05 * rollout.counted()[revision]["good"]


@pytest.mark.security
def test_cheap_requests_of_strangers_promote_no_failing_revision(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "diluted", canary(50))
    stable = rollout.stable()
    with rollout.load(), rollout.load(rate=100, path="/v2/models/nobody/infers") as cheap:
        revision = rollout.introduce("second", ERRORS)
        rollout.rolled_back(revision, "Failing", stable=stable)
    assert cheap.result["outcomes"].keys() == {"http_404"}, cheap.result
    assert rollout.counted()[revision]["other"] > rollout.counted()[revision]["failed"]


def _stays_rejected(rollout: Rollout, revision: str) -> bool | Unmet:
    status = rollout.status()
    rejected = (status["state"], status["revision"]) == ("RolledBack", revision)
    return True if rejected and not rollout.pods(revision) else Unmet(str(status))


def test_canaries_that_never_serve_or_crash_under_requests_are_rolled_back(scene: Scene) -> None:
    """The ones that never serve get no request."""
    crashing = Rollout.applied(scene, "crashing", canary(50, restartLimit=1))
    silent = Rollout.applied(scene, "silent", canary(50, progressDeadline="15s"))
    dying = Rollout.applied(scene, "dying", canary(50, restartLimit=2))
    scene.all_ready([crashing.name, silent.name, dying.name])
    stable_of_dying = dying.stable()
    with crashing.load() as of_crashing, silent.load() as of_silent, dying.load():
        begun = (
            (crashing, crashing.stable(), crashing.introduce("second", {"CRASH_AFTER": 0}), "CrashLoop"),
            (silent, silent.stable(), silent.introduce("second", {"NEVER_READY": 1}), "DeadlineExceeded"),
        )
        died = dying.introduce("second", {"CRASH_AFTER": 30})
        for rollout, stable, revision, reason in begun:
            rollout.rolled_back(revision, reason, stable=stable)
            scene.gone("Deployment", revision)
        dying.rolled_back(died, "CrashLoop", "Failing", stable=stable_of_dying)
    dying.assert_untouched(stable_of_dying)
    for load in (of_crashing, of_silent):
        load.assert_flawless(at_least=50)
    for rollout, _, revision, _ in begun:
        assert revision not in rollout.counted()


def test_canary_that_degrades_at_a_later_step_is_rolled_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "late", canary(50, 70, minStepTime="8s"), sla={"errorRate": "5%"})
    stable = rollout.stable()
    with rollout.load(rate=20) as load:
        revision = rollout.introduce("second")
        assert rollout.analysed(revision, weight=70)["step"] == 1
        rollout.afflict(revision, ERRORS)
        found = rollout.rolled_back(revision, "Failing", stable=stable)
        scene.gone("Deployment", revision)
    assert found["step"] == 1, found
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


def test_a_canary_that_answers_500_is_rolled_back_without_an_sla(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "unpromised", canary(50), sla={})
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second", {"ERROR_FRACTION": 1})
        scene.condition("unpromised", "Judged", "False", "NotJudged", "spec.sla.latency.p99")
        rollout.rolled_back(revision, "Failing", stable=stable)
        healthy = rollout.introduce("third")
        rollout.promoted(healthy)
