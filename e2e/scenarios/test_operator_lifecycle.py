"""The operator may stop, crash, be cut off or be replaced: serving goes on, and what was asked gets done."""

import json
import time
from datetime import datetime
from functools import partial

import pytest

from e2e.scenarios.library import host
from e2e.scenarios.library.api import Object, conditions, names
from e2e.scenarios.library.audit import OPERATOR_USER, AuditLog, assert_at_most_one_condition
from e2e.scenarios.library.scene import (
    LOOKED_AT_EVERYTHING_SECONDS,
    OPERATOR,
    Scene,
    leader,
    restarts,
    scale,
    workload,
)
from e2e.scenarios.library.waiting import SYSTEM, Unmet

pytestmark = pytest.mark.disturbs


def _restart_operator(scene: Scene) -> None:
    kubectl = scene.world.kubectl
    kubectl.run("rollout", "restart", f"deployment/{OPERATOR}", "-n", SYSTEM)
    kubectl.run("rollout", "status", f"deployment/{OPERATOR}", "-n", SYSTEM, "--timeout=240s")
    scene.wait("an operator that leads", lambda: _leads(scene), 240)


def _leads(scene: Scene) -> Object | Unmet:
    try:
        return leader(scene.api)
    except AssertionError as reason:
        return Unmet(str(reason))


def test_edit_while_the_operator_is_down_is_carried_out_later(scene: Scene) -> None:
    old, new = scene.model(slope=2.0), scene.model(slope=3.0)
    scene.serve("patient", old)
    scale(scene.world, OPERATOR, 0)
    try:
        scene.apply("patient", new)
        scene.apply("newcomer", new)
        scene.predicts("patient", old)  # what serves needs no operator
    finally:
        scale(scene.world, OPERATOR, 2)
    scene.ready("patient")
    scene.ready("newcomer")
    scene.predicts("patient", new)
    scene.predicts("newcomer", new)


def test_namespace_deleted_while_the_operator_is_down_goes(scene: Scene) -> None:
    scene.serve("leaving", scene.model(slope=4.0), timeout="5s")
    scale(scene.world, OPERATOR, 0)
    try:
        scene.api.delete("Namespace", scene.namespace)
        scene.wait(
            "end of the namespace",
            lambda: Unmet("it is there") if scene.api.get("Namespace", scene.namespace) else True,
            120,
        )
    finally:
        scale(scene.world, OPERATOR, 2)


@pytest.mark.needs_own_cluster
def test_operator_killed_while_it_reconciles_finishes_after_its_restart(
    scene: Scene, audit: AuditLog
) -> None:
    old, new = scene.model(slope=5.0), scene.model(slope=6.0)
    services = [f"killed-{number}" for number in range(4)]
    for name in services:
        scene.apply(name, old)
    for name in services:
        scene.ready(name)
    pods = workload(scene.api, OPERATOR)
    mark = audit.mark()
    for name in services:
        scene.apply(name, new)
    scene.wait(
        "a first write for the edits",
        lambda: (
            found
            if (found := audit.writes(mark, user=OPERATOR_USER, namespaces=[scene.namespace]))
            else Unmet("none")
        ),
        30,
    )
    for pod in pods:  # the standby too: nobody takes over smoothly
        host.kill_container(pod, "operator")
    for name in services:
        scene.ready(name)
        scene.predicts(name, new)
        assert len(scene.children(name)["ControllerRevision"]) == 2
        scene.wait(f"one Deployment of {name}", partial(_one_deployment, scene, name), 240)


def _one_deployment(scene: Scene, name: str) -> bool | Unmet:
    found = names(scene.children(name)["Deployment"])
    return True if len(found) == 1 else Unmet(f"there are {found}")


@pytest.mark.needs_own_cluster
def test_restart_of_the_operator_restarts_no_pod_and_writes_one_condition_at_most(
    scene: Scene, audit: AuditLog
) -> None:
    services = ["first", "second"]
    for name in services:
        scene.apply(name, scene.model(slope=7.0))
    for name in services:
        scene.ready(name)
    pods = {name: restarts(scene.pods(name)) for name in services}
    mark = audit.quiet_mark(scene.namespace)
    _restart_operator(scene)
    time.sleep(LOOKED_AT_EVERYTHING_SECONDS)
    assert {name: restarts(scene.pods(name)) for name in services} == pods
    assert_at_most_one_condition(audit.writes(mark, user=OPERATOR_USER, namespaces=[scene.namespace]))


@pytest.mark.needs_own_cluster
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


def _open_schema(crd: Object) -> Object:
    """The CRD as an older release might have had it: any spec is accepted."""
    (version,) = crd["spec"]["versions"]
    open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": open_, "status": open_}}
    return {"spec": {"versions": [{**version, "schema": {"openAPIV3Schema": schema}}]}}


def test_spec_stored_before_a_rule_existed_is_invalid_and_disturbs_nobody(scene: Scene) -> None:
    good, bad = scene.model(slope=10.0), scene.model(slope=11.0)
    scene.serve("neighbour", good)
    name = "inferenceservices.tailbound.dev"
    crd = scene.api.need("CustomResourceDefinition", name)
    manifest = scene.manifest("relic", bad)
    manifest["spec"]["timeout"] = "soon"
    scene.api.patch("CustomResourceDefinition", name, None, _open_schema(crd))
    try:
        scene.wait("the open schema", lambda: _accepted(scene, manifest), 240)
    finally:
        # The fields are Helm's again afterwards, for the next chart with another schema.
        fields = {"metadata": {"managedFields": crd["metadata"]["managedFields"]}}
        for before in ({"spec": {"versions": crd["spec"]["versions"]}}, fields):
            scene.api.patch("CustomResourceDefinition", name, None, before)
    scene.condition("relic", "Ready", "False", "InvalidSpec", "timeout")
    scene.condition("relic", "Stalled", "True", "InvalidSpec")
    assert scene.children("relic")["Deployment"] == []
    edited = scene.model(slope=12.0)
    scene.serve("neighbour", edited)
    scene.predicts("neighbour", edited)
    scene.api.delete("InferenceService", "relic", scene.namespace)
    scene.gone("InferenceService", "relic")


def _accepted(scene: Scene, manifest: Object) -> bool | Unmet:
    outcome = scene.world.kubectl.attempt("apply", "--server-side", "-f", "-", text=json.dumps(manifest))
    return True if outcome.code == 0 else Unmet(outcome.err)


DEFAULTS = (("HardwareClass", "cpu"), ("HardwareClass", "gpu"), ("ClusterServingRuntime", "onnxruntime"))


def test_defaults_exist_and_an_edit_of_them_is_never_overwritten(scene: Scene) -> None:
    for kind, name in DEFAULTS:
        scene.api.need(kind, name)
    mine = {"spec": {"drain": "7s"}}
    before = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]["drain"]
    scene.serve("outdated", scene.model(slope=13.0))
    pods = restarts(scene.pods("outdated"))
    scene.api.patch("ClusterServingRuntime", "onnxruntime", None, mine)
    try:
        scene.condition("outdated", "RuntimeOutdated", "True", "RuntimeChanged")
        _restart_operator(scene)
        time.sleep(LOOKED_AT_EVERYTHING_SECONDS)
        assert scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]["drain"] == "7s"
        assert restarts(scene.pods("outdated")) == pods
        assert conditions(scene.service("outdated"))["Ready"]["status"] == "True"
    finally:
        scene.api.patch("ClusterServingRuntime", "onnxruntime", None, {"spec": {"drain": before}})
    scene.condition("outdated", "RuntimeOutdated", "False", "UpToDate")
