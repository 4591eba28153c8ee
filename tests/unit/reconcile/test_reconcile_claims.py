"""A class with a resourceClaim: its template is frozen in the revision, and comes and goes with its pods."""

import copy
import json
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import Create, RefusedWrite
from tailbound.revisions.record import CorruptRevisionError, from_object

from tests.support.simulated.objects import hardware_class, model, service
from tests.support.simulated.serving import template_of
from tests.support.simulated.simulator import Simulator

LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
CLAIM = {
    "requests": [
        {"name": "gpu", "deviceClass": "gpu.example.com", "count": 2, "selectors": [LARGE]},
        {"name": "nic", "deviceClass": "nic.example.com"},
    ]
}
DEVICE_CLASSES = {name: {"metadata": {"name": name}} for name in ("gpu.example.com", "nic.example.com")}


def claiming(**claim: Any) -> dict[str, Any]:
    return {"cpu": hardware_class(resourceClaim={**CLAIM, **claim})}


def started(**fields: Any) -> Simulator:
    values: dict[str, Any] = {"hardware_classes": claiming(), "device_classes": DEVICE_CLASSES, **fields}
    simulator = Simulator(service=service(), **values)
    simulator.settle()
    return simulator


def test_each_pod_claims_the_devices_of_its_class() -> None:
    simulator = started()
    assert simulator.condition("Ready") == ("True", "Serving")
    (revision,), (claim,) = simulator.names("ControllerRevision"), simulator.of("ResourceClaimTemplate")
    gpu = {
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [{"cel": {"expression": LARGE}}],
    }
    nic = {"deviceClassName": "nic.example.com", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "gpu", "exactly": gpu}, {"name": "nic", "exactly": nic}]
    assert claim["spec"] == {"spec": {"devices": {"requests": requests}}}
    assert claim["metadata"]["name"].startswith(f"{revision}-")
    pod = template_of(simulator, revision)["spec"]
    name = claim["metadata"]["name"]
    assert pod["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": name}]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "devices"}]
    assert "claims" not in pod["initContainers"][0]["resources"]


def test_the_claim_is_that_of_the_revision_whatever_becomes_of_the_class_and_returns_with_it() -> None:
    simulator = started()
    (claim,) = copy.deepcopy(simulator.of("ResourceClaimTemplate"))
    simulator.hardware_classes = claiming(requests=[{"name": "gpu", "deviceClass": "gpu.example.com"}])
    del simulator.objects["ResourceClaimTemplate", claim["metadata"]["name"]]
    simulator.settle()
    (again,) = simulator.of("ResourceClaimTemplate")
    assert again["spec"] == claim["spec"]
    simulator.edit(model=model("b"), rollout={"scaleDownDelay": "1s"})
    simulator.settle()
    (newer,) = simulator.of("ResourceClaimTemplate")
    assert len(newer["spec"]["spec"]["devices"]["requests"]) == 1
    simulator.annotate(rollback_to=simulator.names("ControllerRevision")[0])
    simulator.settle()
    (returned,) = simulator.of("ResourceClaimTemplate")
    assert (returned["metadata"]["name"], returned["spec"]) == (claim["metadata"]["name"], claim["spec"])


@pytest.mark.parametrize(
    ("known", "reason", "says"),
    [
        (
            {"gpu.example.com": {}},
            "DeviceClassNotFound",
            "HardwareClass cpu asks for devices of DeviceClass nic.example.com, and there is none",
        ),
        (Unknown("no such group"), "DynamicAllocationUnavailable", "upgrade to Kubernetes 1.34 or newer"),
    ],
    ids=["no-class", "no-api"],
)
def test_devices_that_cannot_be_are_named_before_a_pod_waits_for_them(
    known: Any, reason: str, says: str
) -> None:
    simulator = started(device_classes=known)
    assert simulator.condition("Stalled") == ("True", reason)
    assert says in simulator.message("Stalled")
    assert not simulator.pods
    assert not simulator.of("ControllerRevision")
    simulator.device_classes = DEVICE_CLASSES
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_refused_claim_keeps_nothing_of_its_revision() -> None:
    simulator = Simulator(service=service(), hardware_classes=claiming(), device_classes=DEVICE_CLASSES)
    bodies = [write.body for write in simulator.plan().writes if isinstance(write, Create)]
    (name,) = (each["metadata"]["name"] for each in bodies if each["kind"] == "ResourceClaimTemplate")
    refused = RefusedWrite("ResourceClaimTemplate", name, Reason.RESOURCE_CLAIM_REFUSED, f"{name}: bad CEL")
    simulator.refused_writes = (refused,)
    for _ in range(3):
        simulator.work()
        simulator.reconcile()
    assert simulator.condition("Stalled") == ("True", "ResourceClaimRefused")
    assert not simulator.of("ControllerRevision")
    assert not simulator.pods
    simulator.hardware_classes = claiming(requests=[{"name": "gpu", "deviceClass": "gpu.example.com"}])
    for _ in range(9):
        simulator.work()
        simulator.reconcile()
    assert simulator.condition("Ready") == ("True", "Serving")


FORGED: dict[str, Any] = {
    "administrator": lambda claim: claim["devices"]["requests"][0]["exactly"].update(adminAccess=True),
    "all-devices": lambda claim: claim["devices"]["requests"][0].update(firstAvailable=[]),
    "configuration": lambda claim: claim["devices"].update(config=[]),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_claim_that_tailbound_would_not_write_is_not_written_from_a_record(forge: Any) -> None:
    (stored,) = started().of("ControllerRevision")
    ((name, hardware, text),) = json.loads(stored["data"]["claims"])
    claim = json.loads(text)
    forge(claim)
    claims = json.dumps([[name, hardware, json.dumps(claim)]])
    with pytest.raises(CorruptRevisionError, match="claims"):
        from_object({**stored, "data": {**stored["data"], "claims": claims}})
    with pytest.raises(CorruptRevisionError, match="is not the revision's own"):
        from_object({**stored, "data": {**stored["data"], "claims": "[]"}})
