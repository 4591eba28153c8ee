"""Hardware classes: models that do not fit them, and services that may use several."""

from collections.abc import Iterator

import pytest

from e2e.scenarios.library.installation import own_cluster
from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import Unmet

pytestmark = pytest.mark.needs_own_cluster

# That requests outlive the exchange of pods is tried in test_rollover.py, with as many as there may be.
RATE = 50
GPU = [{"name": "nvidia.com/gpu", "count": 1}]


@pytest.fixture
def tight(scene: Scene) -> Iterator[str]:
    """A class whose pods have one device of 40 GB."""
    name = f"tight-{scene.namespace}"
    scene.api.apply(hardware_class(name, resources=GPU, deviceMemory="40G"))
    yield name
    scene.api.delete("HardwareClass", name)


def test_a_model_that_fits_no_pod_is_refused_with_the_arithmetic_and_fits_in_fewer_bits(
    scene: Scene, tight: str
) -> None:
    model = scene.model(slope=9.0)
    manifest = scene.manifest("large", model, hardware={"class": [tight]})
    manifest["spec"]["model"]["size"] = {"parameters": "70B", "dtype": "float16"}
    scene.api.apply(manifest)
    scene.not_ready("large", "ModelTooLarge", "140 GB")
    scene.condition("large", "Stalled", "True", "ModelTooLarge", "at least 4 devices")
    assert not any(scene.children("large").values()), "nothing is made"
    assert not scene.pods("large")
    manifest["spec"]["model"]["size"] = {"parameters": "70B", "dtype": "int4"}
    scene.api.apply(manifest)
    status = scene.ready("large")["status"]
    assert "1 device of 40G holds 40 GB" in status["hardware"]["memory"], status
    scene.predicts("large", model)


@pytest.fixture
def absent(scene: Scene) -> Iterator[str]:
    """A class of a device that no node has yet; its name is that of the resource, too."""
    name = f"absent-{scene.namespace}"
    scene.api.apply(hardware_class(name, resources=[{"name": f"devices.example.com/{name}", "count": 1}]))
    yield name
    scene.api.delete("HardwareClass", name)
    offer(scene, name, None)


def offer(scene: Scene, name: str, count: str | None) -> None:
    """The node has so many of these devices; None: it does not know of them."""
    (node,) = (each["metadata"]["name"] for each in scene.api.list("Node"))
    amount = {f"devices.example.com/{name}": count}
    status = {"status": {"capacity": amount, "allocatable": amount}}
    scene.api.patch("Node", node, None, status, subresource="status")


def counted(scene: Scene, name: str) -> bool | Unmet:
    """The status of the class says what it has and who uses it."""
    found = scene.api.need("HardwareClass", name).get("status", {})
    sums = {key: value for key, value in found.items() if key != "installations"}
    expected = {"nodes": 1, "devices": 1, "free": 0, "room": 0, "services": 1, "waiting": 0}
    return sums == expected or Unmet(str(found))


def serves_from(scene: Scene, name: str, hardware: str) -> bool | Unmet:
    found = scene.service(name)["status"].get("hardware", {})
    return found.get("class") == hardware or Unmet(str(found))


def test_the_next_class_serves_where_the_first_has_no_room_and_a_refresh_returns_without_a_lost_request(
    scene: Scene, absent: str
) -> None:
    model = scene.model(slope=10.0)
    hardware = {"class": [absent, "cpu"], "fallbackAfter": "10s"}
    scene.apply("either", model, hardware=hardware)
    scene.condition("either", "Scheduled", "False", says=absent)
    status = scene.ready("either")["status"]
    assert status["hardware"]["class"] == "cpu", status
    assert status["hardware"]["since"], status
    scene.condition("either", "Scheduled", "True", "FallbackClass", f"instead of {absent}")
    scene.predicts("either", model)
    offer(scene, absent, "1")
    with scene.world.client.load(scene.namespace, "either", rate=RATE) as load:
        annotations = {"metadata": {"annotations": {"tailbound.dev/refresh": "1"}}}
        scene.api.patch("InferenceService", "either", scene.namespace, annotations)
        scene.wait("the preferred class", lambda: serves_from(scene, "either", absent), 240)
        scene.condition("either", "Scheduled", "True", "Scheduled")
        scene.ready("either")
    load.assert_flawless(at_least=20)
    scene.wait("the count of its devices", lambda: counted(scene, absent), 150)


def test_the_service_returns_by_itself_once_there_is_room(scene: Scene, absent: str) -> None:
    model = scene.model(slope=11.0)
    back = {"return": "whenRoom", "returnAfter": "5s"}
    scene.apply("homing", model, hardware={"class": [absent, "cpu"], "fallbackAfter": "5s", **back})
    scene.ready("homing")
    scene.wait("the next class", lambda: serves_from(scene, "homing", "cpu"), 60)
    with scene.world.client.load(scene.namespace, "homing", rate=RATE) as load:
        offer(scene, absent, "1")
        scene.wait("the preferred class", lambda: serves_from(scene, "homing", absent), 300)
        scene.ready("homing")
    load.assert_flawless(at_least=20)


@pytest.fixture
def driver(scene: Scene) -> Iterator[str]:
    """A driver of dynamic resource allocation with one device, and a class whose pods claim it."""
    name = "gpu.example.com"  # short, as the path of a socket holds it
    own_cluster().start_device_driver(name, 1)
    selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
    scene.api.apply({**device_class, "spec": {"selectors": selectors}})
    request = {"name": "gpu", "deviceClass": name, "selectors": ['device.driver.endsWith("example.com")']}
    scene.api.apply(hardware_class(name, resourceClaim={"requests": [request]}))
    yield name
    # The kubelet asks the driver to take the device back from each pod: without it, pods would not end.
    for service in scene.api.list("InferenceService", scene.namespace):
        scene.api.delete("InferenceService", service["metadata"]["name"], scene.namespace)
    scene.wait("end of the pods", lambda: _gone(scene), 120)
    own_cluster().stop_device_driver()
    for each in scene.api.list("ResourceSlice"):
        if each["spec"]["driver"] == name:
            scene.api.delete("ResourceSlice", each["metadata"]["name"])
    scene.api.delete("HardwareClass", name)
    scene.api.delete("DeviceClass", name)


def _gone(scene: Scene) -> bool | Unmet:
    left = [pod["metadata"]["name"] for pod in scene.api.list("Pod", scene.namespace)]
    return Unmet(f"{left} are there") if left else True


def test_a_driver_allocates_its_device_to_the_pod_and_the_next_pod_waits_for_it(
    scene: Scene, driver: str
) -> None:
    model = scene.model(slope=12.0)
    scene.apply("claiming", model, hardware={"class": [driver]})
    scene.ready("claiming")
    scene.predicts("claiming", model)
    (pod,) = scene.pods("claiming")
    (claim,) = scene.api.list("ResourceClaim", scene.namespace)
    (device,) = claim["status"]["allocation"]["devices"]["results"]
    assert (device["driver"], device["request"]) == (driver, "gpu"), claim
    assert claim["status"]["reservedFor"][0]["name"] == pod["metadata"]["name"], claim
    scene.apply("waiting", model, hardware={"class": [driver]})
    scene.condition("waiting", "Scheduled", "False", "Unschedulable", "cannot allocate all claims")
    scene.api.delete("InferenceService", "claiming", scene.namespace)
    scene.ready("waiting", within=120)
