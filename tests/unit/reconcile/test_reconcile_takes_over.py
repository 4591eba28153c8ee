"""A candidate with all requests takes over only once nothing that it answered is suspected to be a breach."""

import pytest

from tests.support.copies import remembered
from tests.support.simulated.rollouts import around, begun, state, until
from tests.support.simulated.simulator import Simulator

STRATEGIES = ["blueGreen", "recreate", "canary"]


@remembered
def with_all_requests(strategy: str, delay: str) -> Simulator:
    """Just after the switch."""
    steps = {"steps": [{"weight": 50}]} if strategy == "canary" else {}
    simulator = begun({"strategy": strategy, "scaleDownDelay": delay, **steps})
    until(simulator, lambda rollout: rollout.get("weight") == 100)
    return simulator


@pytest.mark.parametrize("share", [0.05, 1.0])
@pytest.mark.parametrize("delay", ["6s", "15s"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_bad_revision_is_rejected_however_short_the_delay(strategy: str, delay: str, share: float) -> None:
    simulator = with_all_requests(strategy, delay)
    until(simulator, state("RolledBack", "Promoted"), r2=share)
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Slow")
    simulator.settle()
    assert simulator.weights() == {"r1": 100}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bad_seconds_put_off_the_promotion_and_are_named(strategy: str) -> None:
    simulator = with_all_requests(strategy, "6s")
    messages = set()
    for _ in range(4):
        around(simulator, r2=1.0)
        messages.add(simulator.rollout["message"])
    until(simulator, state("RolledBack", "Promoted"))
    assert simulator.rollout["state"] == "Promoted", simulator.rollout
    assert any("when the evidence shows no breach" in message for message in messages), messages
