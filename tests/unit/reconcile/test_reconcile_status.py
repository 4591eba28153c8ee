"""What the columns of `kubectl get` are made from."""

from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.support.simulated.objects import service
from tests.support.simulated.rollouts import around, begun, state, until
from tests.support.simulated.simulator import Simulator


def canary(simulator: Simulator) -> Any:
    return simulator.service["status"].get("canary")


def test_replicas_are_those_of_what_serves_and_a_weight_is_that_of_a_canary() -> None:
    simulator = begun()
    assert (simulator.service["status"]["servingPods"], canary(simulator)) == ("4/4", None)
    until(simulator, lambda rollout: rollout["weight"] == 10)
    around(simulator)
    assert canary(simulator)["weight"] == 10
    assert simulator.service["status"]["stable"]["weight"] == 90
    ready, _, wanted = simulator.service["status"]["servingPods"].partition("/")
    assert ready == wanted
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.settle()
    assert (simulator.service["status"]["servingPods"], canary(simulator)) == ("4/4", None)
    simulator.make_ready(next(iter(simulator.pods)), ready=False)
    simulator.reconcile()
    assert simulator.service["status"]["servingPods"] == "3/4"


def test_evidence_in_the_status_has_few_digits() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    for finding in simulator.rollout["findings"]:
        numbers = [finding["requests"], finding["bad"]]
        numbers += [finding[test][key] for test in ("absolute", "relative") for key in ("value", "threshold")]
        assert [number for number in numbers if round(number, 2) != number] == []


ASKED: dict[str, tuple[dict[str, Any], str, str]] = {
    "over-max": (
        {"min": 2, "max": 2, "replicas": 9},
        "AtMaximum",
        "asks for 9 pods, and spec.scaling.max allows 2",
    ),
    "over-max-external": (
        {"mode": "external", "min": 1, "max": 3, "replicas": 9},
        "AtMaximum",
        "asks for 9 pods, and spec.scaling.max allows 3",
    ),
    "under-min-external": (
        {"mode": "external", "min": 3, "max": 5, "replicas": 2},
        "AtMinimum",
        "asks for 2 pods, and spec.scaling.min keeps 3",
    ),
}


@pytest.mark.parametrize(("scaling", "reason", "words"), ASKED.values(), ids=ASKED)
def test_a_scale_that_the_bounds_cut_is_told(scaling: dict[str, Any], reason: str, words: str) -> None:
    simulator = Simulator(service=service(scaling=scaling))
    simulator.settle()
    assert simulator.condition("ScalingLimited") == ("True", reason)
    assert words in simulator.message("ScalingLimited")
    assert simulator.plan() == Plan()
    simulator.edit(scaling={"min": 2, "max": 2})
    simulator.settle()
    kinds = [each["type"] for each in simulator.service["status"]["conditions"]]
    assert "ScalingLimited" not in kinds
