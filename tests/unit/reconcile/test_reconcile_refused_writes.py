"""A refused write costs nobody a request: what serves gives nothing up for what cannot be."""

from typing import Any

import pytest
from tailbound.api.conditions import Reason

from tests.support.copies import remembered
from tests.support.simulated.objects import model, service
from tests.support.simulated.rollouts import replicas
from tests.unit.reconcile.trials import Trial

RECREATE: dict[str, Any] = {"strategy": "recreate"}
IN_PLACE: dict[str, Any] = {"capacity": "inPlace"}
CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 50}], "minStepTime": "2s"}
QUOTE = "is refused: no luck today"


@remembered
def serving(rollout: dict[str, Any], **fields: Any) -> Trial:
    """Two pods that serve."""
    times = {"scaleDownDelay": "4s", "progressDeadline": "60s"}
    trial = Trial(service=service(rollout={**times, **rollout}, scaling={"min": 2}, **fields))
    trial.go(6)
    return trial


@remembered
def refused(rollout: dict[str, Any], target: str) -> Trial:
    """The spec is changed, and the API server refuses to write this child."""
    trial = serving(rollout)
    trial.refuses = {target: Reason.WRITE_REFUSED}
    trial.edit(model=model("b"))
    return trial


def watch(trial: Trial, rounds: int = 40) -> None:
    """Rounds of three seconds in which the old revision keeps its pods and its requests."""
    for _ in range(rounds):
        trial.go_round(seconds=3)
        assert (replicas(trial)["r1"], trial.weights()) == (2, {"r1": 100}), trial.rollout


def rejected_with_the_refusal(trial: Trial, target: str) -> None:
    """The new revision is given up after the deadline, and the message quotes the API server."""
    kind, number = target.split()
    rollout = trial.rollout
    assert (rollout["state"], rollout["reason"]) == ("RolledBack", "WriteRefused"), rollout
    assert rollout["revision"].split("-")[1] == "r2"
    assert f"{kind} churn-{number}-" in rollout["message"]
    assert QUOTE in rollout["message"]


@pytest.mark.parametrize("rollout", [RECREATE, IN_PLACE], ids=["recreate", "in-place"])
def test_the_old_revision_serves_on_while_its_own_deployment_cannot_be_changed(
    rollout: dict[str, Any],
) -> None:
    trial = refused(rollout, "Deployment r1")
    watch(trial, rounds=8)
    assert trial.rollout["state"] == "Starting"
    assert QUOTE in trial.rollout["message"]
    assert trial.condition("Conflict")[0] == "True"
    watch(trial)
    rejected_with_the_refusal(trial, "Deployment r1")
    trial.mend()
    trial.heals()


@pytest.mark.parametrize("rollout", [RECREATE, IN_PLACE], ids=["recreate", "in-place"])
def test_a_refusal_that_ends_in_time_only_delays(rollout: dict[str, Any]) -> None:
    trial = refused(rollout, "Deployment r1")
    watch(trial, rounds=8)
    trial.mend()
    trial.heals()
    assert replicas(trial) == {"r2": 2}


def test_requests_go_back_where_only_the_dry_run_is_taken() -> None:
    trial = refused(RECREATE, "Deployment r1")
    trial.dry_runs_pass = True
    without = 0
    for _ in range(60):
        trial.go_round(seconds=3)
        without = 0 if trial.weights() == {"r1": 100} else without + 1
        assert without <= 2, trial.rollout
    rejected_with_the_refusal(trial, "Deployment r1")


@pytest.mark.parametrize("target", ["ControllerRevision r2", "Service r2", "Deployment r2"])
@pytest.mark.parametrize(
    "rollout",
    [RECREATE, IN_PLACE, CANARY, {}],
    ids=["recreate", "in-place", "canary", "blueGreen"],
)
def test_nothing_is_given_up_for_a_revision_that_cannot_be_written(
    rollout: dict[str, Any], target: str
) -> None:
    trial = refused(rollout, target)
    watch(trial)
    rejected_with_the_refusal(trial, target)
    trial.mend()
    trial.heals()


def test_pods_that_cannot_be_asked_for_cost_nothing() -> None:
    trial = serving(RECREATE)
    trial.edit(model=model("b"))
    trial.reconcile()
    trial.refuses = {"Deployment r2": Reason.WRITE_REFUSED}
    watch(trial)
    rejected_with_the_refusal(trial, "Deployment r2")


def test_a_return_that_nobody_can_make_way_for_is_given_up() -> None:
    trial = serving(RECREATE)
    trial.edit(model=model("b"))
    trial.settle()
    back = trial.names("ControllerRevision")[0]
    trial.refuses = {"Deployment r2": Reason.WRITE_REFUSED}
    trial.annotate(rollback_to=back)
    for _ in range(8):
        trial.go_round(seconds=3)
        assert (replicas(trial)["r2"], trial.weights()) == (2, {"r2": 100})
    assert QUOTE in trial.rollout["message"]
    trial.go(40, seconds=3)
    assert trial.weights() == {"r2": 100}
    assert QUOTE in trial.rollout["message"]
    assert trial.rollout["message"].startswith(f"the rollback to {back} was abandoned")


@pytest.mark.parametrize("rollout", [CANARY, {}, RECREATE], ids=["canary", "blueGreen", "recreate"])
def test_what_was_rejected_does_not_start_again_where_its_record_cannot_say_so(
    rollout: dict[str, Any],
) -> None:
    trial = serving(rollout)
    trial.dead.add("r2")
    trial.edit(model=model("b"))
    trial.go(3)
    trial.refuses = {"ControllerRevision": Reason.QUOTA_EXCEEDED}
    trial.go(60)
    assert trial.rollout["state"] == "RolledBack"
    trial.dead.clear()
    for _ in range(40):
        trial.go_round(seconds=3)
        assert (trial.rollout["state"], trial.rollout["reason"]) == ("RolledBack", "CrashLoop")
    assert trial.weights() == {"r1": 100}
    assert trial.marked("rejected-at") == set()
    trial.refuses.clear()
    trial.go(31)
    assert {name.split("-")[1] for name in trial.marked("rejected-at")} == {"r2"}
    trial.annotate(retry=trial.names("ControllerRevision")[1])
    trial.settle()
    assert replicas(trial) == {"r2": 2}
