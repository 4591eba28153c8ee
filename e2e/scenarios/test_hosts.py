"""Hosts belong to the service that has them, and to the namespaces that they are granted to."""

from collections.abc import Iterator

import pytest

from e2e.scenarios.library.manifests import host_grant
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.traffic import GATEWAY_URL, VALUES
from e2e.scenarios.library.waiting import Unmet


@pytest.fixture
def granted(scene: Scene) -> Iterator[str]:
    """A host for the scenario's namespace alone."""
    host, grant = f"{scene.namespace}.granted.example.org", f"grant-{scene.namespace}"
    scene.api.create(host_grant(grant, namespaces=[scene.namespace], hosts=[host]))
    yield host
    scene.api.delete("HostGrant", grant)


@pytest.mark.security
def test_host_stays_with_its_owner_and_in_the_namespaces_of_its_grant(
    scene: Scene, other_scene: Scene, granted: str
) -> None:
    """Also when the owner is deleted and created again."""
    mine, theirs = scene.model(slope=4.0), other_scene.model(slope=5.0)
    host = f"{scene.namespace}.example.org"
    other_scene.apply("stranger", theirs, hosts=[granted])
    other_scene.serve("older", theirs)
    scene.serve("owner", mine, hosts=[host, granted])
    other_scene.condition("stranger", "TrafficApplied", "False", "HostNotGranted", other_scene.namespace)
    owner = f"{scene.namespace}/owner"
    for claimant in ("older", "younger"):
        other_scene.apply(claimant, theirs, hosts=[host])
        other_scene.condition(claimant, "TrafficApplied", "False", "HostConflict", owner)
    scene.api.delete("InferenceService", "owner", scene.namespace)
    scene.gone("InferenceService", "owner")
    answers = scene.wait("421 for the host", lambda: _refused(scene, host), 30)
    assert answers == 421
    scene.serve("owner", mine, hosts=[host, granted])
    for name in (host, granted):
        answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=name)
        assert answer.status == 200, (name, answer)
        assert answer.json()["outputs"][0]["data"] == mine.expected(VALUES)
    for claimant in ("older", "younger"):
        other_scene.condition(claimant, "TrafficApplied", "False", "HostConflict", owner)


def _refused(scene: Scene, host: str) -> int | Unmet:
    answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=host)
    return 421 if answer.status == 421 else Unmet(f"HTTP {answer.status}: {answer.body[:200]}")
