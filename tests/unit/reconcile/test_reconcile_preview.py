"""The name under which a candidate answers before it takes over."""

from typing import Any

import pytest

from tests.support.copies import remembered
from tests.support.simulated.objects import NAME, model, service
from tests.support.simulated.rollouts import around
from tests.support.simulated.simulator import Simulator

PREVIEW = f"{NAME}-preview"
MANUAL = {"promotion": "manual"}


@remembered
def settled(rollout: dict[str, Any], name: str = NAME) -> Simulator:
    simulator = Simulator(service=service(rollout=rollout))
    simulator.service["metadata"]["name"] = name
    simulator.settle()
    return simulator


@pytest.mark.parametrize(
    ("rollout", "named"),
    [
        ({}, False),
        (MANUAL, True),
        ({"strategy": "canary", **MANUAL}, False),
        ({"strategy": "recreate"}, False),
    ],
)
def test_a_blue_green_that_somebody_promotes_has_a_preview(rollout: dict[str, Any], named: bool) -> None:
    simulator = settled(rollout)
    assert (PREVIEW in simulator.names("Service")) is named
    if named:
        front, preview = (simulator.objects["Service", name]["spec"] for name in (NAME, PREVIEW))
        assert front == preview


def test_a_preview_goes_with_what_it_was_for() -> None:
    simulator = settled(MANUAL)
    simulator.edit(rollout={})
    simulator.settle()
    assert PREVIEW not in simulator.names("Service")


def test_a_name_too_long_for_a_service_has_no_preview() -> None:
    assert len("a" * 56 + "-preview") > 63
    simulator = settled(MANUAL, "a" * 56)
    assert [name for name in simulator.names("Service") if name.endswith("-preview")] == []
    assert simulator.condition("Ready") == ("True", "Serving")


def test_somebody_elses_service_of_that_name_is_left_alone_and_holds_nothing_up() -> None:
    simulator = Simulator(service=service(rollout=MANUAL))
    theirs = somebodys_service()
    simulator.objects["Service", PREVIEW] = theirs
    for _ in range(4):
        around(simulator)
    assert simulator.condition("Ready") == ("False", "NameConflict")
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert f"Service {PREVIEW} exists and belongs to" in simulator.message("Ready")
    assert simulator.weights() == {"r1": 100}
    simulator.edit(model=model("b"))
    for _ in range(4):
        around(simulator)
    assert [name for name in simulator.names("Deployment") if "-r2-" in name], "the rollout goes on"
    assert simulator.objects["Service", PREVIEW] == theirs
    simulator.edit(rollout={})
    simulator.settle()
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.objects["Service", PREVIEW] == theirs


def somebodys_service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": PREVIEW,
            "namespace": "risk",
            "uid": "uid-of-theirs",
            "resourceVersion": "1",
            "labels": {"tailbound.dev/service": NAME},
        },
        "spec": {"type": "ClusterIP"},
    }
