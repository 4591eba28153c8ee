"""Rollouts on a node whose devices all serve already, under each `spec.rollout.capacity`."""

from collections.abc import Iterator

import pytest

from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary, quick
from e2e.scenarios.library.scene import REVISION_LABEL, Scene
from e2e.scenarios.library.waiting import Unmet, stays

pytestmark = pytest.mark.needs_own_cluster

PODS = 2
# Longer than progressDeadline below, within which other rollouts are given up.
OVERDUE_SECONDS = 30


class Devices:
    """A kind of device that only this scenario has, so that it takes none from the others."""

    def __init__(self, scene: Scene) -> None:
        self._api = scene.api
        self.resource = f"devices.example.com/{scene.namespace}"
        self.hardware_class = f"own-{scene.namespace}"
        (self._node,) = (node["metadata"]["name"] for node in scene.api.list("Node"))

    def offer(self, count: int | None) -> None:
        """The node has so many; None: it does not know of them."""
        amount = {self.resource: None if count is None else str(count)}
        status = {"status": {"capacity": amount, "allocatable": amount}}
        self._api.patch("Node", self._node, None, status, subresource="status")

    def __enter__(self) -> "Devices":
        self.offer(PODS)
        self._api.apply(hardware_class(self.hardware_class, resources=[{"name": self.resource, "count": 1}]))
        return self

    def __exit__(self, *_: object) -> None:
        self._api.delete("HardwareClass", self.hardware_class)
        self.offer(None)


@pytest.fixture
def devices(scene: Scene) -> Iterator[Devices]:
    with Devices(scene) as made:
        yield made


def full(scene: Scene, devices: Devices, rollout: dict[str, object]) -> Rollout:
    """A service whose pods have all devices."""
    return Rollout.begin(
        scene,
        "tight",
        rollout,
        sla={"errorRate": "5%"},
        hardware={"class": [devices.hardware_class]},
        scaling={"min": PODS},
    )


@pytest.mark.lasts(80)
def test_surge_waits_for_a_device_and_names_it(scene: Scene, devices: Devices) -> None:
    rollout = full(scene, devices, quick(capacity="surge", progressDeadline="25s"))
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second")
        told = rollout.reaches("Starting", "Unschedulable", revision=revision)["message"]
        assert f"{devices.resource} 1 (HardwareClass {devices.hardware_class})" in told
        stays("the wait for room", lambda: _waits(rollout, stable), OVERDUE_SECONDS)
        devices.offer(2 * PODS)
        rollout.promoted(revision)
        scene.gone("Deployment", stable)
        devices.offer(PODS)
        rollout.action("rollback-to", stable)
        ends = "is abandoned if no further pod gets ready within 25s"
        rollout.reaches("Promoting", "RolledBackManually", revision=stable, says=ends)
        told = rollout.reaches("Promoted", "Unschedulable", revision=revision, within=120)["message"]
        assert f"the rollback to {stable} was abandoned" in told, told
        assert "What to do: change the spec" in told, told
        scene.gone("Deployment", stable)
        scene.ready("tight")
    load.assert_flawless(at_least=50)


def _waits(rollout: Rollout, stable: str) -> bool | Unmet:
    found = rollout.status()
    waiting = found["reason"] == "Unschedulable" and len(rollout.pods(stable)) == PODS
    return waiting or Unmet(str(found))


def test_pods_that_no_node_can_take_cost_the_stable_revision_none(scene: Scene, devices: Devices) -> None:
    unfit = f"unfit-{scene.namespace}"
    selector = {"nodeSelector": {"example.com/absent": scene.namespace}}
    scene.api.apply(hardware_class(unfit, **selector))
    try:
        rollout = full(scene, devices, quick(capacity="auto", progressDeadline="20s"))
        stable = rollout.stable()
        with rollout.load() as load:
            manifest = rollout.manifest("second")
            manifest["spec"]["hardware"] = {"class": [unfit]}
            scene.api.apply(manifest)
            scene.condition("tight", "Scheduled", "False", "NoNodeFits", "What to do")
            stays("the stable pods", lambda: len(rollout.pods(stable)) == PODS or Unmet("fewer"), 15)
            rollout.reaches("RolledBack", "NoNodeFits", says="What to do", within=60)
        load.assert_flawless(at_least=50)
        rollout.assert_untouched(stable)
    finally:
        scene.api.delete("HardwareClass", unfit)


def test_in_place_takes_over_without_a_spare_device_or_a_lost_request(scene: Scene, devices: Devices) -> None:
    rollout = full(scene, devices, quick(capacity="inPlace"))
    stable = rollout.stable()
    with rollout.load() as load:
        revision = rollout.introduce("second")
        rollout.reaches("Promoting", revision=revision, weight=100)
        assert len(rollout.pods(stable)) == 1, "the pod to return to"
        rollout.promoted(revision)
        scene.wait("all pods", lambda: _ready(rollout, revision), 240)
    load.assert_flawless(at_least=50)
    scene.gone("Deployment", stable)


def test_auto_replaces_pods_in_place_where_there_is_no_capacity_and_gives_them_back(
    scene: Scene, devices: Devices
) -> None:
    rollout = full(scene, devices, canary(50, capacity="auto"))
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second", ERRORS)
        rollout.analysed(revision)
        assert rollout.status()["inPlace"]
        rollout.rolled_back(revision, "Failing", stable=stable)
        scene.wait("all stable pods", lambda: _ready(rollout, stable), 240)
    rollout.assert_untouched(stable)
    devices.offer(2 * PODS)
    third = rollout.introduce("third")
    rollout.analysed(third)
    assert not rollout.status().get("inPlace"), "there is room beside"
    assert len(rollout.pods(stable)) == PODS


@pytest.mark.lasts(135)
def test_one_that_dies_later_makes_way_for_the_one_before(scene: Scene, devices: Devices) -> None:
    rollout = full(scene, devices, quick(capacity="auto"))
    stable = rollout.stable()
    revision = rollout.introduce("second")
    rollout.promoted(revision)
    scene.wait("all pods", lambda: _ready(rollout, revision), 240)
    scene.gone("Deployment", stable)
    # The pods of the one before have no longer than this to start, either.
    rollout.rollout = quick(capacity="auto", progressDeadline="20s")
    rollout.change("second")
    rollout.afflict(revision, {"NEVER_READY": 1})
    rollout.rolled_back(revision, "Lost", stable=stable)
    scene.wait("all pods of the one before", lambda: _ready(rollout, stable), 240)
    with rollout.load() as load:
        scene.wait("answers", lambda: _answered(rollout, stable), 120)
    load.assert_flawless(at_least=20)


def test_a_fix_takes_the_places_of_stable_pods_that_hang(scene: Scene, devices: Devices) -> None:
    rollout = full(scene, devices, quick(capacity="auto", progressDeadline="60s"))
    stable = rollout.stable()
    scene.wait("all pods of stable", lambda: _ready(rollout, stable), 240)
    rollout.afflict(stable, {"NEVER_READY": 1})
    scene.condition("tight", "Ready", "False", "NotReady")
    fix = rollout.introduce("second")
    rollout.promoted(fix)
    scene.wait("all pods", lambda: _ready(rollout, fix), 240)
    with rollout.load() as load:
        scene.wait("answers", lambda: _answered(rollout, fix), 120)
    load.assert_flawless(at_least=20)


def _answered(rollout: Rollout, revision: str) -> bool | Unmet:
    counted = sum(rollout.counted()[revision].values())
    return counted >= 20 or Unmet(f"{counted:g} requests")


def _ready(rollout: Rollout, revision: str) -> bool | Unmet:
    holding = {pod["metadata"]["labels"][REVISION_LABEL] for pod in rollout.scene.pods(rollout.name)}
    found = rollout.service()["status"]["stable"]
    done = holding == {revision} and (found["revision"], found.get("ready")) == (revision, PODS)
    return done or Unmet(f"{found}, pods of {holding}")
