"""The numbers of pods of both revisions in a rollout follow their traffic."""

from collections.abc import Callable
from typing import Any

import pytest
from tailbound.autoscale.model import LatencyTarget
from tailbound.reconcile.model import ScalingDecision, ScalingDecisions

from tests.support.simulated.objects import model
from tests.support.simulated.rollouts import CANARY, around, begun, replicas, state, until
from tests.support.simulated.scaling import decided, decision, following, shares


def test_a_canary_is_sized_for_its_share_and_the_stable_revision_for_everything() -> None:
    simulator = following()
    decided(simulator, r1=8)
    simulator.settle()
    simulator.edit(model=model("b"))
    around(simulator)
    assert replicas(simulator) == {"r1": 8, "r2": 1}
    assert shares(simulator.plan()) == {"r1": 100, "r2": 10}
    decided(simulator, r1=8, r2=(3, 10))
    assert replicas(simulator) == {"r1": 8, "r2": 3}
    until(simulator, lambda rollout: rollout["step"] == 1)
    around(simulator)
    assert replicas(simulator) == {"r1": 8, "r2": 11}, "who needs 3 for a tenth needs more than 10 for half"
    assert simulator.weights() == {"r1": 90, "r2": 10}, "no weight before the pods for it are ready"
    decided(simulator, r1=8, r2=(6, 50))
    assert replicas(simulator) == {"r1": 8, "r2": 6}
    until(simulator, lambda rollout: rollout["weight"] == 50)
    decided(simulator, r1=9, r2=(6, 50))
    assert (replicas(simulator), simulator.weights()) == ({"r1": 9, "r2": 6}, {"r1": 50, "r2": 50})
    until(simulator, state("Promoted"))
    simulator.settle()
    assert replicas(simulator) == {"r2": 11}


def beyond(step: int) -> Callable[[dict[str, Any]], bool]:
    """The rollout is at a later step."""
    return lambda rollout: bool(rollout["step"] > step)


# Pods of the canary for 5 percent, as decided and as its traffic needs; then at 25, 50 and 100 percent.
AT_EACH_STEP: dict[str, tuple[int, int, list[int]]] = {
    "one is more than five percent need": (1, 1, [1, 2, 3]),
    "it has more than it needs": (4, 1, [1, 2, 3]),
    "its pods are slower than those of stable": (2, 2, [6, 11, 12]),
}


@pytest.mark.parametrize(("pods", "needed", "expected"), AT_EACH_STEP.values(), ids=AT_EACH_STEP)
def test_a_canary_grows_with_its_traffic_and_not_with_the_pods_that_it_happens_to_have(
    pods: int, needed: int, expected: list[int]
) -> None:
    simulator = following({"min": 1, "max": 12})
    simulator.edit(rollout={"strategy": "canary"})
    decided(simulator, r1=3)
    simulator.settle()
    simulator.edit(model=model("b"))
    around(simulator)
    seen = []
    for step in (0, 1, 2):
        decided(simulator, r1=3, r2=(decision(pods, needed=needed), 5))
        until(simulator, beyond(step))
        around(simulator)
        seen.append(replicas(simulator)["r2"])
    assert seen == expected


def test_a_canary_that_is_promoted_at_its_first_step_asks_for_what_the_traffic_needs() -> None:
    simulator = following({"min": 1, "max": 20})
    decided(simulator, r1=3)
    simulator.settle()
    simulator.devices = 10
    simulator.edit(model=model("b"))
    until(simulator, lambda rollout: rollout["weight"] == 10)
    decided(simulator, r1=3, r2=(1, 10))
    simulator.annotate(promote=simulator.names("ControllerRevision")[1])
    around(simulator)
    assert replicas(simulator) == {"r1": 3, "r2": 3}
    until(simulator, state("Promoted"))


def test_a_promoted_canary_takes_over_with_the_pods_that_find_capacity() -> None:
    simulator = begun(CANARY, replicas=6, sla=None)
    simulator.devices = 10
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.annotate(promote=simulator.names("ControllerRevision")[1])
    for _ in range(5):
        around(simulator)
    assert (replicas(simulator), simulator.weights()) == ({"r1": 6, "r2": 6}, {"r1": 34, "r2": 66})
    assert "4 of" not in simulator.rollout["message"] and "2 of 6 pods" in simulator.rollout["message"]
    simulator.devices = 12
    until(simulator, state("Promoted"))


def test_an_operator_that_starts_during_a_canary_changes_no_count() -> None:
    simulator = following()
    decided(simulator, r1=8)
    simulator.settle()
    simulator.edit(model=model("b"))
    around(simulator)
    decided(simulator, r1=8, r2=(3, 10))
    simulator.sizes = None
    around(simulator)
    assert replicas(simulator) == {"r1": 8, "r2": 3}


def test_learned_capacity_is_written_once_beside_the_marks() -> None:
    simulator = following()
    (name,) = simulator.names("Deployment")
    simulator.sizes = ScalingDecisions(
        {name: ScalingDecision(100, decision(2), capacity='{"base": 0.1}')}, None
    )
    simulator.reconcile()
    (record,) = simulator.of("ControllerRevision")
    annotations = record["metadata"]["annotations"]
    assert annotations["tailbound.dev/capacity"] == '{"base": 0.1}'
    assert annotations["tailbound.dev/stable"] == "true"
    simulator.settle()
    simulator.sizes = ScalingDecisions({name: ScalingDecision(100, decision(2))}, None)
    assert simulator.plan().writes == ()


@pytest.mark.parametrize(
    ("batching", "objective"),
    [
        ({}, LatencyTarget(0.1)),
        ({"mode": "dynamic"}, LatencyTarget(0.1, 8)),
        ({"mode": "dynamic", "maxBatchSize": 16, "maxQueueDelay": "5ms"}, LatencyTarget(0.1, 16, 0.005)),
        ({"mode": "static", "maxBatchSize": 4, "maxQueueDelay": "9s"}, LatencyTarget(0.1, 4, 0.9 * 0.1)),
    ],
)
def test_each_revision_is_sized_with_its_own_batching(
    batching: dict[str, Any], objective: LatencyTarget
) -> None:
    simulator = following(batching=batching)
    simulator.edit(batching={"mode": "dynamic", "maxBatchSize": 2})
    around(simulator)
    plan = simulator.plan()
    assert plan.scalable is not None
    found = {name.split("-")[-2]: each.objective for name, each in plan.scalable.revisions.items()}
    assert found == {"r1": objective, "r2": LatencyTarget(0.1, 2)}
