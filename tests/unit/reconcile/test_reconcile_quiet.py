"""A rollout that can do nothing but wait writes nothing while it waits."""

from typing import Any

import pytest

from tests.support.simulated.objects import model, service
from tests.unit.reconcile.trials import Trial

STEP: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 50}]}


@pytest.mark.parametrize(
    ("promotion", "state"),
    [
        pytest.param("automatic", "Pending", id="for-the-old-pods-to-go"),
        pytest.param("manual", "Paused", id="for-its-promotion"),
    ],
)
def test_a_rollout_that_waits_is_not_written_at_every_look(promotion: str, state: str) -> None:
    trial = Trial(service=service(rollout=STEP, scaling={"min": 2}))
    trial.go(6)
    trial.edit(model=model("b"))
    trial.behind.add("gateway-b")
    trial.go(1)
    trial.edit(rollout={"strategy": "recreate", "promotion": promotion})
    trial.go(5)
    assert trial.rollout["state"] == state
    for _ in range(5):
        plan = trial.go_round()
        assert (plan.writes, plan.status) == ((), None)
