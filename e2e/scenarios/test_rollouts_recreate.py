"""Rollouts on a node that has no device to spare."""

import pytest

from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.rollouts import ERRORS, Rollout, quick
from e2e.scenarios.library.scene import REVISION_LABEL, SERVICE_LABEL, Scene
from e2e.scenarios.library.waiting import Unmet

# Of the node's four: no two pods fit side by side, and other scenarios have one.
DEVICES = 3


@pytest.mark.lasts(150)
def test_recreate_needs_no_spare_device_and_comes_back_from_a_bad_revision(scene: Scene) -> None:
    many = f"three-{scene.namespace}"
    scene.api.apply(hardware_class(many, resources=[{"name": "nvidia.com/gpu", "count": DEVICES}]))
    try:
        rollout = Rollout.begin(
            scene,
            "tight",
            quick(strategy="recreate", scaleDownDelay="15s"),
            sla={"errorRate": "5%"},
            hardware={"class": [many]},
        )
        first = rollout.stable()
        second = rollout.introduce("second")
        assert _most_at_once(rollout, second) == 1
        rollout.promoted(second)
        scene.gone("Deployment", first)
        with rollout.load():
            third = rollout.introduce("third", ERRORS)
            rollout.rolled_back(third, "Failing", within=120)
        scene.wait("the second revision", lambda: _serves(rollout, second), 240)
    finally:
        scene.api.delete("HardwareClass", many)


def _most_at_once(rollout: Rollout, revision: str) -> int:
    """Revisions that held devices at the same time, until this one is promoted."""
    most = 0

    def promoted() -> bool | Unmet:
        nonlocal most
        pods = rollout.scene.api.list("Pod", rollout.scene.namespace, f"{SERVICE_LABEL}={rollout.name}")
        holding = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        most = max(most, len({pod["metadata"]["labels"][REVISION_LABEL] for pod in holding}))
        status = rollout.status()
        done = (status["state"], status["revision"]) == ("Promoted", revision)
        return True if done else Unmet(str(status))

    rollout.scene.wait(f"promotion of {revision}", promoted, 240)
    return most


def _serves(rollout: Rollout, revision: str) -> bool | Unmet:
    found = rollout.service()["status"]["stable"]
    return True if found["revision"] == revision and found.get("ready") else Unmet(str(found))
