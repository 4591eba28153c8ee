"""Hosts belong to the service that has them, and to the namespaces that they are granted to."""

import pytest

from e2e.scenarios.library.manifests import host_grant
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.traffic import GATEWAY_URL, VALUES
from e2e.scenarios.library.waiting import Unmet


@pytest.mark.security
def test_host_stays_with_its_owner_also_when_that_one_is_deleted_and_created_again(
    scene: Scene, other_scene: Scene
) -> None:
    mine, theirs = scene.model(slope=4.0), other_scene.model(slope=5.0)
    host = f"{scene.namespace}.example.org"
    other_scene.serve("older", theirs)
    scene.serve("owner", mine, hosts=[host])
    owner = f"{scene.namespace}/owner"
    for claimant in ("older", "younger"):
        other_scene.apply(claimant, theirs, hosts=[host])
        other_scene.condition(claimant, "TrafficApplied", "False", "HostConflict", owner)
    scene.api.delete("InferenceService", "owner", scene.namespace)
    scene.gone("InferenceService", "owner")
    answers = scene.wait("421 for the host", lambda: _refused(scene, host), 30)
    assert answers == 421
    scene.serve("owner", mine, hosts=[host])
    answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=host)
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == mine.expected(VALUES)
    for claimant in ("older", "younger"):
        other_scene.condition(claimant, "TrafficApplied", "False", "HostConflict", owner)


@pytest.mark.security
def test_granted_host_is_for_the_namespaces_of_its_grant(scene: Scene, other_scene: Scene) -> None:
    model = scene.model(slope=6.0)
    host = f"{scene.namespace}.granted.example.org"
    grant = f"grant-{scene.namespace}"
    scene.api.create(host_grant(grant, namespaces=[scene.namespace], hosts=[host]))
    try:
        other_scene.apply("stranger", other_scene.model(slope=7.0), hosts=[host])
        scene.serve("owner", model, hosts=[host])
        answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=host)
        assert answer.status == 200, answer
        assert answer.json()["outputs"][0]["data"] == model.expected(VALUES)
        other_scene.condition("stranger", "TrafficApplied", "False", "HostNotGranted", other_scene.namespace)
    finally:
        scene.api.delete("HostGrant", grant)


def _refused(scene: Scene, host: str) -> int | Unmet:
    answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=host)
    return 421 if answer.status == 421 else Unmet(f"HTTP {answer.status}: {answer.body[:200]}")
