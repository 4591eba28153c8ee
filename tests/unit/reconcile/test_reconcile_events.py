"""One Event per fact: what was told is not told again under another condition."""

from collections.abc import Callable

import pytest

from tests.support.simulated.rollouts import around, judging, promoted_and_alone
from tests.support.simulated.simulator import Simulator

Told = list[tuple[str, str]]


def told(simulator: Simulator, rounds: int = 30) -> Told:
    """The Events of these rounds, in a cluster where everything works."""
    events = [event for _ in range(rounds) for event in around(simulator).events]
    return [(event.type, event.reason) for event in events]


def returns(simulator: Simulator) -> None:
    old, _ = simulator.names("ControllerRevision")
    simulator.annotate(rollback_to=old)


def stops(simulator: Simulator) -> None:
    simulator.edit(stopped=True)


STORIES: dict[str, tuple[Callable[[Simulator], None], Told]] = {
    "return": (returns, [("Normal", "RollingOut"), ("Warning", "RolledBack")]),
    "stop": (stops, [("Normal", "Stopped")]),
}


@pytest.mark.parametrize(("act", "expected"), STORIES.values(), ids=STORIES)
def test_each_fact_has_one_event(act: Callable[[Simulator], None], expected: Told) -> None:
    simulator = promoted_and_alone()
    act(simulator)
    assert told(simulator) == expected


def test_a_revision_that_is_rejected_has_one_warning() -> None:
    simulator = judging()
    events = [event for _ in range(40) for event in around(simulator, r2=0.1).events]
    assert simulator.rollout["state"] == "RolledBack"
    assert [event.reason for event in events if event.type == "Warning"] == ["RolledBack"]


def test_a_stop_while_a_revision_is_judged_is_no_rollout_that_goes_on() -> None:
    simulator = judging()
    simulator.edit(stopped=True)
    simulator.settle()
    assert simulator.condition("Promoted") == ("Unknown", "Stopped")
    _, new = simulator.names("ControllerRevision")
    assert simulator.message("Promoted") == (
        f"spec.stopped is true: {new} cannot take over before spec.stopped is false"
    )
