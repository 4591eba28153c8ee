"""A model that does not fit the devices of a pod is refused before there is a pod."""

from typing import Any

import pytest
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.model_size import ModelSize
from tailbound.reconcile.device_memory import Fits, TooLarge, Unchecked, memory_verdict

from tests.support.simulated.objects import hardware_class, service, spec
from tests.support.simulated.serving import settled
from tests.support.simulated.simulator import Simulator

LLAMA = {"parameters": "70B", "dtype": "float16"}


def gpus(count: int, memory: str | None = "40G", name: str = "nvidia.com/gpu") -> dict[str, Any]:
    stated = {} if memory is None else {"deviceMemory": memory}
    return {"resources": [{"name": name, "count": count}], **stated}


VERDICTS: dict[str, tuple[dict[str, Any] | None, dict[str, Any], type | None, str]] = {
    "no-size": (None, gpus(1), None, ""),
    "no-devices": (LLAMA, {}, Unchecked, "not checked: HardwareClass a has no devices"),
    "no-memory": (LLAMA, gpus(1, None), Unchecked, "HardwareClass a does not state deviceMemory"),
    "70B-on-one": (
        LLAMA,
        gpus(1),
        TooLarge,
        "spec.model.size is 70B parameters of 2 bytes (float16) = 140 GB, and in HardwareClass a, 1 device "
        "of 40G holds 40 GB per pod: choose a class with at least 4 devices of this memory per pod, or with "
        "larger ones, or smaller weights",
    ),
    "70B-on-four": (
        LLAMA,
        gpus(4),
        Fits,
        "70B parameters of 2 bytes (float16) = 140 GB; in HardwareClass a, 4 devices of 40G hold 160 GB",
    ),
    "70B-in-4-bits": ({"parameters": "70B", "dtype": "int4"}, gpus(1), Fits, "0.5 bytes (int4) = 35 GB;"),
    "activations-count": ({**LLAMA, "activations": "30Gi"}, gpus(4), TooLarge, "of activations = 172.2 GB"),
    "exactly-full": ({"weights": "40G"}, gpus(1), Fits, "40 GB of weights; in"),
    "a-byte-too-much": ({"weights": "40000000001"}, gpus(1), TooLarge, "40 GB of weights, and"),
    "no-device-but-parts": ({"weights": "9G"}, gpus(80, "8G", "nvidia.com/gpumem"), Unchecked, "no devices"),
    "small": ({"weights": "500M"}, gpus(1, "200M"), TooLarge, "500 MB of weights"),
}  # fmt: skip


@pytest.mark.parametrize(("size", "fields", "kind", "says"), VERDICTS.values(), ids=VERDICTS)
def test_memory_of_all_devices_of_a_pod_counts(
    size: dict[str, Any] | None, fields: dict[str, Any], kind: type | None, says: str
) -> None:
    declared = None if size is None else ModelSize.model_validate(size)
    found = memory_verdict(declared, HardwareClass.model_validate(hardware_class("a", **fields)))
    assert isinstance(found, kind or type(None))
    assert found is None or says in (found.message if isinstance(found, TooLarge) else found.text)


def sized(simulator: Simulator) -> None:
    simulator.service["spec"]["model"]["size"] = LLAMA
    simulator.service["metadata"]["generation"] += 1
    simulator.touch(simulator.service)


def test_no_pod_is_made_of_a_model_that_fits_no_pod() -> None:
    model = {**spec()["model"], "size": LLAMA}
    simulator = Simulator(
        service=service(model=model), hardware_classes={"a": hardware_class("a", **gpus(1))}
    )
    simulator.settle()
    assert simulator.of("Deployment") == simulator.of("ControllerRevision") == ()
    assert simulator.condition("Ready") == ("False", "ModelTooLarge")
    assert simulator.condition("Stalled") == ("True", "ModelTooLarge")
    assert "140 GB" in simulator.message("Ready")
    simulator.hardware_classes = {"a": hardware_class("a", **gpus(4))}
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert "4 devices of 40G hold 160 GB" in simulator.service["status"]["hardware"]["memory"]


def test_a_size_makes_no_revision_and_stops_no_pod_that_serves() -> None:
    simulator = settled()
    simulator.hardware_classes = {"cpu": hardware_class(**gpus(1))}
    sized(simulator)
    simulator.settle()
    assert len(simulator.of("ControllerRevision")) == 1
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("RuntimeOutdated") == ("True", "ModelTooLarge")


def test_what_weights_are_compared_with_makes_no_pods_outdated() -> None:
    simulator = Simulator(service=service(), hardware_classes={"cpu": hardware_class(**gpus(4))})
    simulator.settle()
    before = simulator.names("ControllerRevision")
    sized(simulator)  # the pods compare nothing any more
    simulator.settle()
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")
    simulator.hardware_classes = {"cpu": hardware_class(**(gpus(4) | {"nodeSelector": {"zone": "a"}}))}
    simulator.settle()
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeChanged")
    assert simulator.names("ControllerRevision") == before


def test_a_class_without_memory_is_said_to_be_unchecked() -> None:
    simulator = settled()
    sized(simulator)
    simulator.settle()
    assert simulator.service["status"]["hardware"] == {
        "memory": "not checked: HardwareClass cpu has no devices"
    }
