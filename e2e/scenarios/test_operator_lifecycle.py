"""The operator may stop, crash, be cut off or be replaced: serving goes on, and what was asked gets done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import pytest

from e2e.scenarios.library import gateways, host, parts
from e2e.scenarios.library.api import Object, conditions, names
from e2e.scenarios.library.audit import OPERATOR_USER, AuditLog
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary
from e2e.scenarios.library.scaling import BUSY, CALM, RISE_SECONDS, Scaled
from e2e.scenarios.library.scene import (
    GATEWAY,
    LOOKED_AT_EVERYTHING_SECONDS,
    OPERATOR,
    Scene,
    leader,
    restarts,
    scale,
    workload,
)
from e2e.scenarios.library.waiting import SYSTEM, Unmet

RUNTIME = ("ClusterServingRuntime", "onnxruntime")
DEFAULTS = (("HardwareClass", "cpu"), ("HardwareClass", "gpu"), RUNTIME)
EDITED_DRAIN = "7s"


@contextmanager
def _without_operator(scene: Scene) -> Iterator[None]:
    scale(scene.world, OPERATOR, 0)
    try:
        yield
    finally:
        scale(scene.world, OPERATOR, 2)


@contextmanager
def _edited_runtime(scene: Scene) -> Iterator[None]:
    """Somebody's edit of a default that the operator has made."""
    before = scene.api.need(*RUNTIME)["spec"]["drain"]["time"]
    scene.api.patch(*RUNTIME, None, {"spec": {"drain": {"time": EDITED_DRAIN}}})
    try:
        yield
    finally:
        scene.api.patch(*RUNTIME, None, {"spec": {"drain": {"time": before}}})


@pytest.mark.disturbs(parts.OPERATOR)
def test_without_an_operator_what_serves_goes_on_and_what_was_asked_is_done_later(
    scene: Scene, other_scene: Scene
) -> None:
    for kind, name in DEFAULTS:
        scene.api.need(kind, name)
    old, new, other = (scene.model(slope=slope) for slope in (2.0, 3.0, 4.0))
    other_scene.apply("leaving", other, timeout="5s")
    for name, model in (("patient", old), ("broken", other), ("outdated", other)):
        scene.apply(name, model)
    scene.all_ready(["patient", "broken", "outdated"])
    other_scene.ready("leaving")
    pods = restarts(scene.pods("outdated"))
    with _edited_runtime(scene):
        scene.condition("outdated", "RuntimeOutdated", "True", "RuntimeChanged")
        with _without_operator(scene):
            other_scene.api.delete("Namespace", other_scene.namespace)
            scene.apply("patient", new)
            scene.apply("newcomer", new)
            _replace_pod(scene, "patient")
            scene.predicts("patient", old, within=90)  # gateways follow the endpoints by themselves
            _write_nonsense(scene, "broken")
            scene.predicts("broken", other)  # the last good state stays in force
            scene.predicts("outdated", other)
            scene.wait("end of the namespace", lambda: _gone(other_scene), 120)
        for name in ("patient", "newcomer"):
            scene.ready(name)
            scene.predicts(name, new)
        scene.ready("broken")
        time.sleep(LOOKED_AT_EVERYTHING_SECONDS)
        assert scene.api.need(*RUNTIME)["spec"]["drain"]["time"] == EDITED_DRAIN
        assert conditions(scene.service("outdated"))["Ready"]["status"] == "True"
    scene.condition("outdated", "RuntimeOutdated", "False", "UpToDate")
    assert restarts(scene.pods("outdated")) == pods


def _replace_pod(scene: Scene, name: str) -> None:
    """Delete the only pod of a service, and wait for another one."""
    (pod,) = scene.pods(name)
    scene.api.delete("Pod", pod["metadata"]["name"], scene.namespace)
    before = restarts([pod]).keys()
    scene.wait(
        "another pod",
        lambda: True if before.isdisjoint(restarts(scene.pods(name))) else Unmet("the old one"),
        60,
    )


def _write_nonsense(scene: Scene, name: str) -> None:
    """Write a route into the status that no gateway can apply, and wait until each has refused it."""
    traffic = scene.service(name)["status"]["traffic"]
    nonsense = {
        "generation": traffic["generation"] + 1,
        "backends": [{**backend, "weight": 0} for backend in traffic["backends"]],
    }
    scene.api.patch(
        "InferenceService", name, scene.namespace, {"status": {"traffic": nonsense}}, subresource="status"
    )
    for pod in workload(scene.api, GATEWAY):
        found = scene.wait("the rejected route", partial(gateways.rejected, scene, pod, name), 240)
        assert found["trafficGeneration"] == nonsense["generation"]
        assert found["message"]


def _gone(scene: Scene) -> bool | Unmet:
    return Unmet("it is there") if scene.api.get("Namespace", scene.namespace) else True


def _leads(scene: Scene) -> Object | Unmet:
    try:
        return leader(scene.api)
    except AssertionError as reason:
        return Unmet(str(reason))


def _judged(rollout: Rollout, least: float) -> float | Unmet:
    """Judged requests of the candidate, as far as the status tells."""
    found = float(sum(finding["requests"] for finding in rollout.status().get("findings", [])))
    return found if found >= least else Unmet(f"{found:g} requests are judged")


@pytest.mark.needs_own_cluster
@pytest.mark.disturbs(parts.OPERATOR, needs=(parts.GATEWAYS,))
def test_operator_killed_at_work_finishes_it_follows_a_ramp_and_counts_each_request_once(
    scene: Scene, other_scene: Scene, audit: AuditLog
) -> None:
    old, new = other_scene.model(slope=5.0), other_scene.model(slope=6.0)
    services = [f"killed-{number}" for number in range(3)]
    _apply_all(other_scene, services, old)
    # Neither verdict comes before the evidence that is counted after the kill.
    good = Rollout.applied(scene, "survivor", canary(50, minStepTime="45s"))
    bad = Rollout.applied(scene, "condemned", canary(50, minStepTime="90s"), sla={"errorRate": "5%"})
    scaled = Scaled(scene, "ramp")
    scene.all_ready([good.name, bad.name])
    other_scene.all_ready(services)
    stable = bad.stable()
    with good.load(rate=12) as load, bad.load():
        revision, condemned = good.introduce("second"), bad.introduce("second")
        began = good.analysed(revision)
        bad.analysed(condemned)
        judged = scene.wait("evidence", partial(_judged, good, 20), 240)
        mark = audit.mark()
        with scaled.load(BUSY / 2, rise=(CALM, RISE_SECONDS / 2)) as ramp:
            _apply_all(other_scene, services, new)
            scene.wait("a first write for the edits", partial(_written, other_scene, audit, mark), 30)
            _kill_operators(scene)
            bad.afflict(condemned, ERRORS)
            counted = scene.wait("more evidence", partial(_judged, good, judged + 20), 240)
            again = good.status()
            scaled.until("another pod for the ramp", 2, ready=True)
        assert (again["revision"], again["startedAt"]) == (revision, began["startedAt"]), again
        assert again["stepStartedAt"] == began["stepStartedAt"], again
        assert counted <= 2 * good.served(revision)["good"], "a request was counted twice"
        bad.rolled_back(condemned, "Failing", stable=stable, within=120)
        good.promoted(revision)
    load.assert_flawless(at_least=100)
    assert ramp.result["outcomes"].keys() == {"ok"}, ramp.result
    bad.assert_untouched(stable)
    for name in services:
        other_scene.ready(name)
        other_scene.predicts(name, new)
        assert len(other_scene.children(name)["ControllerRevision"]) == 2
        scene.wait(f"one Deployment of {name}", partial(_one_deployment, other_scene, name), 240)


def _apply_all(scene: Scene, services: list[str], model: Model) -> None:
    for name in services:
        scene.apply(name, model, rollout={"scaleDownDelay": "2s"})


def _kill_operators(scene: Scene) -> None:
    """The standby too, so that no process takes over."""
    for pod in workload(scene.api, OPERATOR):
        host.kill_container(pod, "operator")


def _written(scene: Scene, audit: AuditLog, mark: int) -> bool | Unmet:
    return bool(audit.writes(mark, user=OPERATOR_USER, namespaces=[scene.namespace])) or Unmet("none")


def _one_deployment(scene: Scene, name: str) -> bool | Unmet:
    found = names(scene.children(name)["Deployment"])
    return True if len(found) == 1 else Unmet(f"there are {found}")


@pytest.mark.needs_own_cluster
@pytest.mark.disturbs(parts.OPERATOR)
def test_leader_cut_off_from_the_api_falls_silent_before_the_new_one_writes(
    scene: Scene, audit: AuditLog
) -> None:
    old, new = scene.model(slope=8.0), scene.model(slope=9.0)
    scene.serve("contested", old)
    deposed = leader(scene.api)
    api_address = scene.api.need("Service", "kubernetes", "default")["spec"]["clusterIP"]
    mark = audit.mark()
    with host.cut_off(deposed, "operator", api_address):
        scene.apply("contested", new)  # work for whoever leads
        successor = scene.wait(
            "another leader",
            lambda: (
                found
                if not isinstance(found := _leads(scene), Unmet)
                and found["metadata"]["name"] != deposed["metadata"]["name"]
                else Unmet("the old one holds the Lease")
            ),
            60,
        )
        scene.ready("contested")
        silent = scene.wait("the end of the deposed leader's process", partial(_ended, scene, deposed), 240)
        writes = audit.writes(mark, user=OPERATOR_USER)
    scene.predicts("contested", new)
    by_old = [write.completed for write in writes if write.pod == deposed["metadata"]["name"]]
    by_new = [
        write.received
        for write in writes
        if write.pod == successor["metadata"]["name"] and write.resource != "leases"
    ]
    told = [f"the old process ended at {silent}", *(str(write) for write in writes)]
    assert by_new, told
    assert silent <= min(by_new), told
    assert all(moment < min(by_new) for moment in by_old), told


def _ended(scene: Scene, pod: Object) -> datetime | Unmet:
    """When the process that ran in this pod ended, in whole seconds."""
    (state,) = scene.api.need("Pod", pod["metadata"]["name"], SYSTEM)["status"]["containerStatuses"]
    if state["containerID"] == pod["status"]["containerStatuses"][0]["containerID"]:
        return Unmet("its process still runs")
    return datetime.fromisoformat(state["lastState"]["terminated"]["finishedAt"])
