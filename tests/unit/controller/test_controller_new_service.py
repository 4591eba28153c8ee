"""A new service: what it is given, in which order and by how many decisions."""

from tests.support.simulated.simulator import Simulator
from tests.unit.controller.reconciling import Operator

CHILDREN = ["Service", "ControllerRevision", "Service", "Deployment"]


async def test_a_new_service_is_ready_after_two_decisions_and_the_third_finds_nothing_to_do() -> None:
    simulator = Simulator()
    operator = Operator(simulator)
    await operator.passes()
    assert [kind for _, kind, _ in operator.api.writes] == [*CHILDREN, "InferenceService"]
    assert simulator.condition("Ready") == ("Unknown", "Starting")
    assert simulator.weights() == {"r1": 100}, "gateways make its routes while its pods start"
    operator.api.writes.clear()
    simulator.work()
    assert (await operator.passes()).wrote
    assert [kind for _, kind, _ in operator.api.writes] == ["ControllerRevision", "InferenceService"]
    assert simulator.condition("Ready") == ("True", "Serving")
    assert not (await operator.passes()).wrote
