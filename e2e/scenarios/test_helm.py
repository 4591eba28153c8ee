"""Tested, upgraded, uninstalled and installed again by Helm: what serves goes on serving."""

import time

import pytest

from e2e.scenarios.library import installation, parts
from e2e.scenarios.library.api import conditions
from e2e.scenarios.library.audit import OPERATOR_USER, AuditLog, assert_at_most_one_condition
from e2e.scenarios.library.scene import (
    GATEWAY,
    LOOKED_AT_EVERYTHING_SECONDS,
    OPERATOR,
    Scene,
    World,
    restarts,
    serving,
    workload,
)
from e2e.scenarios.library.waiting import SYSTEM, Unmet

CRDS = (
    "inferenceservices.tailbound.dev",
    "hardwareclasses.tailbound.dev",
    "hostgrants.tailbound.dev",
    "servingruntimes.tailbound.dev",
    "clusterservingruntimes.tailbound.dev",
)


def test_helm_test_passes(world: World) -> None:
    world.helm.run("test", installation.RELEASE, "-n", SYSTEM, "--timeout", "120s")


@pytest.mark.disturbs(*parts.EVERYTHING)
@pytest.mark.needs_own_cluster
@pytest.mark.runs_last
def test_upgrade_under_load_and_new_installation_restart_no_pod(
    scene: Scene, other_scene: Scene, audit: AuditLog
) -> None:
    names = ["first", "second"]
    model = scene.model(slope=2.0)
    for name in names:
        scene.apply(name, model)
    other_scene.serve("steady", model)
    revisions = {name: serving(scene.ready(name)) for name in names}
    pods = {name: restarts(scene.pods(name)) for name in names}
    mark = audit.quiet_mark(scene.namespace)
    try:
        _upgrade_under_load(other_scene, "steady")
        time.sleep(LOOKED_AT_EVERYTHING_SECONDS)
        assert {name: restarts(scene.pods(name)) for name in names} == pods
        assert_at_most_one_condition(audit.writes(mark, user=OPERATOR_USER, namespaces=[scene.namespace]))
        for name in names:
            found = conditions(scene.service(name))
            assert found["Ready"]["status"] == "True", found
            assert found["RuntimeOutdated"]["status"] == "True", found
        installation.uninstall(scene.world)
        for name in CRDS:
            scene.api.need("CustomResourceDefinition", name)
        for deployment in (OPERATOR, GATEWAY):
            assert scene.api.get("Deployment", deployment, SYSTEM) is None
        (pod,) = scene.pods("first")
        direct = f"http://{pod['status']['podIP']}:8080"
        assert scene.world.client.infer(scene.namespace, "first", base=direct).status == 200
    finally:
        installation.upgrade(scene.world, scene.world.tag)
    for name in names:
        scene.condition(name, "RuntimeOutdated", "False", "UpToDate")
        assert serving(scene.ready(name)) == revisions[name]
        scene.predicts(name, model)
    assert {name: restarts(scene.pods(name)) for name in names} == pods


def _upgrade_under_load(scene: Scene, name: str) -> None:
    """Replace operators and gateways by those of another image; no request of a service may fail."""
    client = scene.world.client
    before = {pod["metadata"]["uid"] for pod in workload(scene.api, GATEWAY)}

    def replaced() -> bool | Unmet:
        left = before & {pod["metadata"]["uid"] for pod in workload(scene.api, GATEWAY)}
        return Unmet("the old gateways drain") if left else True

    with (
        client.load(scene.namespace, name) as kept,
        client.load(scene.namespace, name, new_connections=True) as fresh,
    ):
        installation.upgrade(scene.world, installation.NEXT_TAG)
        scene.wait("end of the old gateways", replaced, 120)
    kept.assert_flawless(at_least=50)
    fresh.assert_flawless(at_least=50)
    for deployment in (OPERATOR, GATEWAY):
        for pod in workload(scene.api, deployment):
            images = [container["image"] for container in pod["spec"]["containers"]]
            assert any(image.endswith(installation.NEXT_TAG) for image in images), images
