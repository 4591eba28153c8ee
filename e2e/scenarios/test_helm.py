"""Tested, upgraded, paused, uninstalled and installed again by Helm: what serves goes on serving."""

import time

import pytest

from e2e.scenarios.library import installation
from e2e.scenarios.library.api import conditions
from e2e.scenarios.library.audit import OPERATOR_USER, AuditLog, assert_at_most_one_condition
from e2e.scenarios.library.scene import (
    GATEWAY,
    LOOKED_AT_EVERYTHING_SECONDS,
    OPERATOR,
    Scene,
    restarts,
    scale,
    serving,
    workload,
)
from e2e.scenarios.library.waiting import SYSTEM, Unmet

pytestmark = pytest.mark.disturbs

CRDS = (
    "inferenceservices.tailbound.dev",
    "hardwareclasses.tailbound.dev",
    "servingruntimes.tailbound.dev",
    "clusterservingruntimes.tailbound.dev",
)


def test_helm_test_passes(scene: Scene) -> None:
    scene.world.helm.run("test", installation.RELEASE, "-n", SYSTEM, "--timeout", "120s")


@pytest.mark.needs_own_cluster
def test_upgrade_to_another_image_restarts_no_pod_and_writes_one_condition_at_most(
    scene: Scene, audit: AuditLog
) -> None:
    names = ["first", "second"]
    for name in names:
        scene.apply(name, scene.model(slope=2.0))
    for name in names:
        scene.ready(name)
    pods = {name: restarts(scene.pods(name)) for name in names}
    mark = audit.quiet_mark(scene.namespace)
    try:
        installation.upgrade(scene.world, installation.NEXT_TAG)
        operators = workload(scene.api, OPERATOR)
        assert all(pod["spec"]["containers"][0]["image"].endswith(installation.NEXT_TAG) for pod in operators)
        time.sleep(LOOKED_AT_EVERYTHING_SECONDS)
        assert {name: restarts(scene.pods(name)) for name in names} == pods
        assert_at_most_one_condition(audit.writes(mark, user=OPERATOR_USER, namespaces=[scene.namespace]))
        for name in names:
            found = conditions(scene.service(name))
            assert found["Ready"]["status"] == "True", found
            assert found["RuntimeOutdated"]["status"] == "True", found
    finally:
        installation.upgrade(scene.world, scene.world.tag)
    for name in names:
        scene.condition(name, "RuntimeOutdated", "False", "UpToDate")
    assert {name: restarts(scene.pods(name)) for name in names} == pods


def test_without_an_operator_what_serves_goes_on_serving(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    scene.serve("unattended", model)
    pods = restarts(scene.pods("unattended"))
    scale(scene.world, OPERATOR, 0)
    try:
        (pod,) = scene.pods("unattended")
        scene.api.delete("Pod", pod["metadata"]["name"], scene.namespace)
        scene.wait(
            "another pod",
            lambda: (
                True if pods.keys().isdisjoint(restarts(scene.pods("unattended"))) else Unmet("the old one")
            ),
            60,
        )
        scene.predicts("unattended", model, within=90)  # gateways follow the endpoints by themselves
    finally:
        scale(scene.world, OPERATOR, 2)


@pytest.mark.runs_last
def test_uninstall_leaves_the_pods_and_a_new_install_adopts_them(scene: Scene) -> None:
    model = scene.model(slope=4.0)
    revision = serving(scene.serve("surviving", model))
    pods = restarts(scene.pods("surviving"))
    (pod,) = scene.pods("surviving")
    direct = f"http://{pod['status']['podIP']}:8080"
    installation.uninstall(scene.world)
    try:
        for name in CRDS:
            scene.api.need("CustomResourceDefinition", name)
        for deployment in (OPERATOR, GATEWAY):
            assert scene.api.get("Deployment", deployment, SYSTEM) is None
        assert scene.world.client.infer(scene.namespace, "surviving", base=direct).status == 200
        assert restarts(scene.pods("surviving")) == pods
    finally:
        installation.upgrade(scene.world, scene.world.tag)
    assert serving(scene.ready("surviving")) == revision
    scene.predicts("surviving", model)
    assert restarts(scene.pods("surviving")) == pods
