"""Clocks that are set back, or ahead of one another."""

from dataclasses import replace

import pytest
from tailbound.autoscale.decide import decide
from tailbound.autoscale.model import Known, LearnedCapacity

from tests.unit.autoscale.observations import LIMITS, OBJECTIVE, batches, ready, seen, steady


@pytest.mark.parametrize(
    ("back", "ahead"),
    [(3600.0, 0.0), (0.0, 3600.0), (50.0, 70.0)],
    ids=["set-back", "prometheus-ahead", "both"],
)
def test_a_clock_that_is_wrong_holds_nothing_up(back: float, ahead: float) -> None:
    """Half the traffic, a third slower, is learned of within ten minutes, also after late requests."""
    before = steady(160, 60)
    state, count = before.state, before.replicas
    for tick in range(60, 120):
        now = tick * 10.0 - (back if tick > 60 else 0.0)
        p99 = 3.0 if tick == 60 else 0.8
        known = seen(now + ahead, 80, ready(count), p99=p99)
        slow = replace(known, service=Known(batches(factor=1.35), now + ahead))
        decision = decide(now, slow, replace(OBJECTIVE, p99=2.5), LIMITS, state)
        state, count = decision.state, decision.replicas
    assert isinstance(state.learned, LearnedCapacity)
    assert state.learned.base + 16 * state.learned.per_row == pytest.approx(1.35, rel=0.02)
    assert count < 0.8 * before.replicas
    assert isinstance(decision.explanation.forecast, Known)
    assert decision.explanation.forecast.value == pytest.approx(84, rel=0.05)
