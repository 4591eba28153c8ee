"""The cost of a service: from prices of classes and its pods that have a node."""

from typing import Any

import pytest
from tailbound.objects.pod import Pod
from tailbound.reconcile.cost import cost_per_hour

from tests.support.simulated.objects import hardware_class, service
from tests.support.simulated.simulator import Simulator

GPUS: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "count": 4}]}
AMOUNTS: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpumem", "count": 4}]}


def pod(*cpus: str) -> Pod:
    return Pod({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}} for cpu in cpus]}})


COSTS: dict[str, tuple[dict[str, Any], list[Pod], str | None]] = {
    "by-device": ({**GPUS, "price": {"perHour": "2.10"}}, [pod("8"), pod("8")], "16.8"),
    "by-cpu": ({"price": {"perHour": "0.04"}}, [pod("2", "500m", "?")], "0.1"),
    "by-cpu-of-devices": ({**GPUS, "price": {"perHour": "1", "unit": "CPU"}}, [pod("8")], "8"),
    "by-pod": ({"price": {"perHour": "100", "unit": "Pod"}}, [pod("8")] * 30, "3000"),
    "no-pods": ({"price": {"perHour": "3"}}, [], "0"),
    "no-price": ({}, [pod("1")], None),
    "no-price-and-no-pods": ({}, [], None),
    "by-device-without-devices": ({**AMOUNTS, "price": {"perHour": "3", "unit": "Device"}}, [pod("1")], None),
    "unreadable": ({"price": {"perHour": "much"}}, [pod("1")], None),
}


@pytest.mark.parametrize(("fields", "pods", "cost"), COSTS.values(), ids=COSTS)
def test_cost_by_table(fields: dict[str, Any], pods: list[Pod], cost: str | None) -> None:
    classes = {"a": hardware_class("a", **fields), "b": hardware_class("b")}
    assert cost_per_hour([(each, "a") for each in pods], classes, "a") == cost
    mixed = [*((each, "a") for each in pods), (pod("1"), "b")]
    assert cost_per_hour(mixed, classes, "a") is None
    assert cost_per_hour([(pod("1"), None)], classes, "a") is None


def test_status_follows_the_number_of_pods_and_the_price() -> None:
    def priced(price: str) -> dict[str, Any]:
        return {"cpu": hardware_class(price={"perHour": price, "unit": "Pod"})}

    def cost() -> Any:
        return simulator.service["status"]["hardware"]["costPerHour"]

    simulator = Simulator(service=service(scaling={"min": 2, "max": 2}), hardware_classes=priced("1.5"))
    simulator.settle()
    assert cost() == "3"
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")
    simulator.hardware_classes = priced("2")
    simulator.settle()
    assert cost() == "4"
    assert len(simulator.of("ControllerRevision")) == 1
    simulator.hardware_classes = {"cpu": hardware_class()}
    simulator.settle()
    assert "hardware" not in simulator.service["status"]
