"""People, pipelines and their manifests act on a rollout."""

import json
import re
from collections import Counter
from collections.abc import Mapping

import pytest

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.rollouts import (
    ERRORS,
    PREFIX,
    RATE,
    Rollout,
    canary,
    only_from,
    quick,
)
from e2e.scenarios.library.scene import REVISION_LABEL, Scene, restarts
from e2e.scenarios.library.tools import Kubectl
from e2e.scenarios.library.waiting import Unmet, stays

ENOUGH_FOR_A_VERDICT_SECONDS = 15
COUNTED = re.compile(
    r"expected, at ([0-9.]+) requests/s \(counted for 5s; [0-9.]+% slow, ([0-9.]+)% failed\):"
)


@pytest.mark.lasts(125)
def test_abort_wins_and_a_retry_begins_again_as_planned(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "aborted", canary(50))
    stable = rollout.stable()
    with rollout.load() as load:
        scene.wait("a served request", lambda: bool(rollout.counted()[stable]) or Unmet("none"), 60)
        planned = _planned(rollout, "second")
        revision = rollout.introduce("second")
        assert f"new revision {revision} takes over from {stable}: canary, 50 %" in planned
        rollout.analysed(revision)
        rollout.action("abort", revision)
        rollout.rolled_back(revision, "AbortedManually", stable=stable)
        scene.gone("Deployment", revision)
        rollout.action("retry", f"{revision}/first")
        rollout.analysed(revision)
        rollout.action("promote", revision)
        rollout.promoted(revision)
    load.assert_flawless(at_least=50)
    record = scene.api.need("ControllerRevision", revision, scene.namespace)
    assert f"{PREFIX}rejected-reason" not in record["metadata"]["annotations"]


def _planned(rollout: Rollout, version: str) -> str:
    """What a plan tells, and that it counts the requests that there are."""
    before = rollout.service()
    wanted, namespace = json.dumps(rollout.manifest(version)), rollout.scene.namespace
    text = rollout.scene.world.kubectl.plugin.run(
        "plan", "-f", "-", "--measure", "5s", "-n", namespace, text=wanted
    )
    counted = COUNTED.search(text)
    assert counted is not None, text
    rate, failed = (float(number) for number in counted.groups())
    # A busy machine sends late, and reads the counters late.
    assert RATE / 3 < rate < RATE * 3, text
    assert failed == 0, text
    assert "promoted" in text, text
    assert rollout.service()["spec"] == before["spec"], "a plan does nothing"
    return text


def _paused(rollout: Rollout) -> bool | Unmet:
    status = rollout.status()
    return status["state"] == "Paused" or Unmet(str(status))


@pytest.mark.lasts(95)
def test_pause_keeps_the_weight_while_the_scale_changes_and_its_end_goes_on(scene: Scene) -> None:
    """The new scale reaches both revisions, and restarts nothing."""
    how = canary(50, minStepTime="20s")
    rollout = Rollout.begin(scene, "growing", how, sla={"errorRate": "10%"}, scaling={"min": 1})
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second")
        rollout.analysed(revision)
        rollout.action("pause", revision)
        rollout.reaches("Paused", "Paused", revision=revision, weight=50)
        began, running = rollout.status()["startedAt"], restarts(scene.pods("growing"))
        rollout.spec["scaling"] = {"min": 3}
        rollout.change("second")
        scene.wait("pods for the new scale", lambda: _ready_pods(rollout, {stable: 3, revision: 2}), 90)
        assert rollout.status()["startedAt"] == began
        assert running.items() <= restarts(scene.pods("growing")).items()
        stays("the pause", lambda: _paused(rollout), ENOUGH_FOR_A_VERDICT_SECONDS)
        rollout.action("pause", "")
        rollout.promoted(revision)
        scene.wait("the pods of one revision", lambda: _ready_pods(rollout, {revision: 3}), 90)
    load.assert_flawless(at_least=50)


def _ready_pods(rollout: Rollout, wanted: Mapping[str, int]) -> bool | Unmet:
    """Whether every pod there is is ready, and they are so many of each revision."""
    pods = rollout.scene.pods(rollout.name)
    ready = Counter(
        pod["metadata"]["labels"][REVISION_LABEL]
        for pod in pods
        if all(state["ready"] for state in pod["status"].get("containerStatuses") or [{"ready": False}])
    )
    return True if ready == wanted and ready.total() == len(pods) else Unmet(f"{dict(ready)} of {len(pods)}")


def test_lost_status_a_new_spec_and_the_return_to_the_old_one_in_the_middle(scene: Scene) -> None:
    """None of them is a first deployment: each goes on, or begins anew, from the last promoted revision."""
    rollout = Rollout.begin(scene, "overtaken", canary(50, minStepTime="2m"), sla={"errorRate": "10%"})
    stable = rollout.stable()
    with rollout.load() as load:
        second = rollout.introduce("second")
        rollout.analysed(second)
        scene.api.patch(
            "InferenceService", "overtaken", scene.namespace, {"status": None}, subresource="status"
        )
        status = rollout.analysed(second)
        assert (status["from"], status["weight"], rollout.stable()) == (stable, 50, stable)
        third = rollout.introduce("third")
        assert third != second
        assert rollout.analysed(third)["from"] == stable
        rollout.change("first")
        rollout.reaches("Promoted", revision=stable, within=30)
        scene.ready("overtaken")
        for revision in (second, third):
            scene.gone("Deployment", revision)
    load.assert_flawless(at_least=50)
    record = scene.api.need("ControllerRevision", third, scene.namespace)
    assert f"{PREFIX}rejected-reason" not in record["metadata"]["annotations"], "nobody condemned it"
    told = [
        event
        for event in scene.api.list("Event", scene.namespace)
        if (event["involvedObject"].get("name"), event["reason"]) == (rollout.name, "Superseded")
    ]
    assert any(second in event["message"] and event["lastTimestamp"] for event in told), told


def test_return_to_the_old_spec_moves_what_its_ready_pods_carry_and_the_rest_as_they_come(
    scene: Scene,
) -> None:
    rollout = Rollout.begin(scene, "short", canary(70, minStepTime="2m"), sla={}, scaling={"min": 3})
    stable = rollout.stable()
    revision = rollout.introduce("second")
    rollout.reaches("Analysing", revision=revision, weight=70)
    rollout.afflict(stable, {"NEVER_READY": 1}, pods=1)
    scene.wait("a stable pod that is not ready", lambda: _ready_of_stable(rollout, 2), 60)
    rollout.afflict(revision, ERRORS)
    rollout.change("first")
    scene.condition("short", "Promoted", "Unknown", "RollingOut")
    rollout.reaches("Promoting", revision=stable, weight=66)
    scene.condition("short", "TrafficApplied", "True")
    with rollout.load() as load:
        stays("the split", lambda: rollout.status()["weight"] == 66 or Unmet(str(rollout.status())), 10)
        rollout.afflict(stable, {"NEVER_READY": 0})
        rollout.promoted(stable)
    only_from(load, revision)
    assert load.result["failed"] < load.result["requests"] / 3, load.result
    scene.gone("Deployment", revision)


def _ready_of_stable(rollout: Rollout, ready: int) -> bool | Unmet:
    found = rollout.service()["status"]["stable"]
    return found.get("ready") == ready or Unmet(str(found))


def test_rollback_restores_the_pods_byte_for_byte(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "restored", quick(scaleDownDelay="0s"), sla={})
    first = rollout.stable()
    (old,) = rollout.pods(first)
    second = rollout.introduce("second")
    rollout.promoted(second)
    scene.gone("Deployment", first)
    with rollout.load() as load:
        rollout.action("rollback-to", first)
        rollout.rolled_back(second, "RolledBackManually")
        scene.wait("the first revision", lambda: rollout.stable() == first or Unmet(rollout.stable()), 240)
        scene.gone("Deployment", second)
    load.assert_flawless(at_least=20)
    (new,) = rollout.pods(first)
    assert _bytes(new) == _bytes(old)


def _bytes(pod: Object) -> str:
    """What the operator wrote into a pod, without what the API server and the node made of it."""
    metadata = {key: pod["metadata"].get(key) for key in ("labels", "annotations")}
    return json.dumps({"metadata": metadata, "spec": pod["spec"]}, sort_keys=True)


def test_verdict_acts_during_a_manual_wait_and_a_manifest_applied_again_does_not_undo_it(
    scene: Scene,
) -> None:
    rollout = Rollout.begin(scene, "gitops", canary(50, promotion="manual"), sla={"errorRate": "5%"})
    stable, kubectl = rollout.stable(), scene.world.kubectl
    with rollout.load(rate=20):
        revision = rollout.introduce("second")
        rollout.reaches("Paused", "AwaitingPromotion", revision=revision, weight=50)
        rollout.afflict(revision, ERRORS)
        rollout.rolled_back(revision, "Failing", stable=stable)
    rollout.assert_untouched(stable)
    wanted = json.dumps(rollout.manifest("second"))
    scene.gone("Deployment", revision)
    _apply_as_pipelines_do(kubectl, wanted)

    def left_alone() -> bool | Unmet:
        status = rollout.status()
        calm = status["state"] == "RolledBack" and not rollout.pods(revision) and rollout.stable() == stable
        return True if calm else Unmet(str(status))

    with rollout.load() as load:
        stays("the rollback", left_alone, 8)
    load.assert_flawless(at_least=50)


def _apply_as_pipelines_do(kubectl: Kubectl, wanted: str) -> None:
    """Argo CD applies client-side, or server-side with its own field manager; Flux server-side and forced."""
    kubectl.run("apply", "-f", "-", text=wanted)
    for manager in ("argocd-controller", "kustomize-controller"):
        options = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
        kubectl.run("apply", *options, "-f", "-", text=wanted)


def test_too_little_traffic_is_inconclusive_and_a_person_with_the_permission_promotes(scene: Scene) -> None:
    """Actions and specs need permissions of their own, and the revision says who acted."""
    rollout = Rollout.begin(scene, "governed", canary(50, maxStepTime="5s"))
    _bind(scene, "pat", ["promote"])
    _bind(scene, "eve", ["edit-spec"])
    revision = rollout.introduce("second")
    paused = rollout.reaches("Paused", "Inconclusive", revision=revision, weight=50)
    assert "without a verdict" in paused["message"]
    scene.condition("governed", "Promoted", "Unknown", "Inconclusive")
    promote = {"metadata": {"annotations": {f"{PREFIX}promote": revision}}}
    edit = {"spec": {"rollout": {"scaleDownDelay": "3s"}}}  # makes no revision
    assert "promote" in _refused(scene, "eve", promote)
    assert "edit-spec" in _refused(scene, "pat", edit)
    _patched(scene, "eve", edit)
    _patched(scene, "pat", promote)
    rollout.promoted(revision)
    assert rollout.status()["reason"] == "PromotedManually"
    record = scene.api.need("ControllerRevision", revision, scene.namespace)
    assert record["metadata"]["annotations"].get(f"{PREFIX}promoted-by") == "pat", record["metadata"]


def _bind(scene: Scene, user: str, verbs: list[str]) -> None:
    rules = [
        {
            "apiGroups": ["tailbound.dev"],
            "resources": ["inferenceservices"],
            "verbs": ["get", "patch", *verbs],
        }
    ]
    meta = {"name": user, "namespace": scene.namespace}
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    }
    for made in (role, binding):
        scene.world.kubectl.run("apply", "-f", "-", text=json.dumps(made))


def _patch(scene: Scene, user: str, body: Object) -> tuple[str, ...]:
    return (
        *("patch", "infs/governed", "-n", scene.namespace, f"--as={user}"),
        *("--type=merge", "-p", json.dumps(body)),
    )


def _refused(scene: Scene, user: str, body: Object) -> str:
    outcome = scene.world.kubectl.attempt(*_patch(scene, user, body))
    assert outcome.code != 0, f"{user} may do {body}"
    return outcome.err


def _patched(scene: Scene, user: str, body: Object) -> None:
    scene.world.kubectl.run(*_patch(scene, user, body))
