"""Servers of other projects on the cluster: served, promoted, drained, and sized by their own counters."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from e2e.scenarios.library import installation
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.foreign import MLSERVER, SECONDS, TORCHSERVE, Service
from e2e.scenarios.library.rollouts import canary
from e2e.scenarios.library.scaling import BATCHING, FOLLOWS_SECONDS, TIMEOUT_SECONDS
from e2e.scenarios.library.scene import GONE_SECONDS, REVISION_LABEL, Scene
from e2e.scenarios.library.waiting import Unmet

# Little enough that one pod does it, however many rows its batches have.
RATE = 12.0
MISSING = "no_such_metric_total"


@pytest.mark.lasts(90)
def test_a_foreign_server_is_promoted_without_a_lost_request_and_sized_by_its_own_counters(
    scene: Scene,
) -> None:
    mapped = MLSERVER.runtime()
    unmapped = MLSERVER.runtime(metrics={**mapped["metrics"], "requests": MISSING})
    server = Service(scene, MLSERVER, "foreign", canary(50), unmapped)
    rollout = server.rollout
    first = rollout.stable()
    assert server.multiplies_by() == 2.0
    with rollout.load(RATE) as load:
        second = server.introduce(3.0, mapped)
        # No count of the gateways stands in for the counters that a runtime names.
        said = _told(scene, "foreign", first, lambda told: f"no fresh series of {MISSING}" in told["message"])
        assert "capacityPerSecond" not in said, said
        rollout.promoted(second)
        _ended(scene, first)
        known = _told(scene, "foreign", second, lambda told: "capacityPerSecond" in told)
        other = f"http://foreign.{scene.namespace}.svc/v2/models/other/infer"
        refused = scene.world.client.request(other, method="POST", body={})
    load.assert_flawless(at_least=100)
    assert (refused.status, "serves the model 'foreign'" in refused.body) == (421, True), refused
    assert server.multiplies_by() == 3.0
    rows = BATCHING["maxBatchSize"]
    assert 0.5 / (2 * SECONDS) < known["capacityPerSecond"] <= rows / (SECONDS * (1 + rows)) * 1.2, known


@pytest.mark.heavy
@pytest.mark.needs_own_cluster
@pytest.mark.lasts(150)
def test_torchserve_is_promoted_without_a_lost_request_and_ends_when_it_is_told(scene: Scene) -> None:
    TORCHSERVE.load_heavy_image(installation.own_cluster())
    rollout = canary(50, progressDeadline="5m")
    server = Service(scene, TORCHSERVE, "torch-line", rollout, TORCHSERVE.runtime())
    first = server.rollout.stable()
    assert server.multiplies_by() == 2.0
    with server.rollout.load(RATE, path="/predictions/torch-line", timeout_seconds=TIMEOUT_SECONDS) as load:
        second = server.introduce(3.0, TORCHSERVE.runtime())
        server.rollout.promoted(second)
        left = _seconds_left(scene, first)
    load.assert_flawless(at_least=100)
    assert server.multiplies_by() == 3.0
    assert left > 5, "the pod was killed at the end of its grace period"


def _seconds_left(scene: Scene, revision: str) -> float:
    """The part of its grace period that the only pod of a revision did not need to end."""

    def ending() -> float | Unmet:
        for pod in scene.api.list("Pod", scene.namespace, f"{REVISION_LABEL}={revision}"):
            if "deletionTimestamp" in pod["metadata"]:
                return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
        return Unmet(f"no pod of {revision} ends")

    limit = scene.wait(f"a pod of {revision} that ends", ending, GONE_SECONDS)
    _ended(scene, revision)
    return limit - datetime.now(UTC).timestamp()


def _told(scene: Scene, name: str, revision: str, fits: Callable[[Object], bool]) -> Object:
    """What status.scaling says of a revision, once it fits."""

    def probe() -> Object | Unmet:
        revisions: list[Object] = scene.service(name)["status"].get("scaling", {}).get("revisions", [])
        found = [each for each in revisions if each["revision"] == revision and fits(each)]
        return found[0] if found else Unmet(str(revisions))

    return scene.wait(f"status.scaling of {revision}", probe, FOLLOWS_SECONDS)


def _ended(scene: Scene, revision: str) -> None:
    """Wait until the last pod of a revision, drained ones included, is gone."""

    def probe() -> bool | Unmet:
        pods = scene.api.list("Pod", scene.namespace, f"{REVISION_LABEL}={revision}")
        return Unmet(f"{len(pods)} pods") if pods else True

    scene.wait(f"end of the pods of {revision}", probe, GONE_SECONDS)
