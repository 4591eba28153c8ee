"""One step of a rollout: every row of its tables, from `old` to `new`, two pods each."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tailbound.judge.analysis import Verdict
from tailbound.rollout.model import RolloutInput

from tests.unit.rollout.canaries import (
    ABORT,
    ALL,
    MANUAL,
    PASS,
    SPLIT,
    WAIT,
    canary,
    told,
    unread,
)
from tests.unit.rollout.canary_steps import STEPS
from tests.unit.rollout.canary_trouble import TROUBLE
from tests.unit.rollout.inputs import ago, rollout, situation, state, step_of, to

CANARIES = STEPS | TROUBLE


@pytest.mark.parametrize(("now", "verdict", "expected"), CANARIES.values(), ids=CANARIES)
def test_canary(now: RolloutInput, verdict: Verdict, expected: tuple[str, str, int, dict[str, int]]) -> None:
    assert told(now, verdict) == expected


@pytest.mark.parametrize(("now", "verdict"), [row[:2] for row in CANARIES.values()], ids=CANARIES)
def test_the_base_keeps_its_pods_until_the_promotion(now: RolloutInput, verdict: Verdict) -> None:
    step = step_of(now, verdict)
    assert step.rollout is not None
    assert (step.fleet.get("old") == now.pods("old")) is (step.rollout.state != "Promoted")
    assert (step.marking.stable == "new") is (step.rollout.state == "Promoted")
    assert (step.marking.rejection is not None) is (step.rollout.state == "RolledBack")


RECREATE = {"strategy": "recreate"}
SERVES = state(2, replicas=2, pods=2)
EXCHANGES: dict[str, tuple[RolloutInput, dict[str, int], dict[str, int]]] = {
    "nothing is given up before the new Deployment is there": (
        situation({"old": state(2, replicas=2, pods=2)}, to("old"), spec=RECREATE, acknowledged=True),
        {"old": 100},
        {"old": 2, "new": 0},
    ),
    "weight goes first": (
        situation({"old": SERVES, "new": state(0)}, to("old"), spec=RECREATE, acknowledged=True),
        {},
        {"old": 2, "new": 0},
    ),
    "no weights are known: that nobody is to serve must be said": (
        situation({"old": SERVES, "new": state(0)}, None, spec=RECREATE),
        {},
        {"old": 2, "new": 0},
    ),
    "then the pods": (
        situation({"old": SERVES, "new": state(0)}, to(), spec=RECREATE, acknowledged=True),
        {},
        {"old": 0, "new": 0},
    ),
    "until the last one has ended": (
        situation({"old": state(0, pods=1), "new": state(0)}, to(), spec=RECREATE, acknowledged=True),
        {},
        {"old": 0, "new": 0},
    ),
    "then the new ones come": (
        situation({"old": state(0)}, to(), spec=RECREATE, acknowledged=True),
        {"new": 100},
        {"old": 0, "new": 2},
    ),
    "one that is ready already gets the weight": (
        situation(
            {"old": state(2, replicas=2, pods=2), "new": state(1, replicas=2, pods=2)},
            to("old"),
            spec=RECREATE,
        ),
        {"new": 100},
        {"old": 2, "new": 2},
    ),
    "manual waits before anything ends": (
        situation({"old": state(2, replicas=2, pods=2)}, to("old"), spec={**RECREATE, **MANUAL}),
        {"old": 100},
        {"old": 2},
    ),
}


@pytest.mark.parametrize(("now", "weights", "fleet"), EXCHANGES.values(), ids=EXCHANGES)
def test_recreate(now: RolloutInput, weights: dict[str, int], fleet: dict[str, int]) -> None:
    step = step_of(now)
    assert step.flow.traffic is not None
    assert {backend.revision: backend.weight for backend in step.flow.traffic.backends} == weights
    assert step.fleet == fleet


WAKES: dict[str, tuple[RolloutInput, Verdict, int | None]] = {
    "the deadline of its pods": (
        canary(rollout("Starting", progress_at=ago(100)), ready=0, traffic=to("old")),
        WAIT,
        500,
    ),
    "the least time of a step": (canary(rollout(weight=5, step_started_at=ago(10))), WAIT, 20),
    "the most time of a step": (canary(rollout(weight=5, step_started_at=ago(40))), WAIT, 1760),
    "requests that may hang": (canary(), replace(PASS, passed_at=ago(1)), 1),
    "missing counters": (canary(), unread(20), 40),
    "the way back": (canary(ALL, ready=2, traffic=to("new")), WAIT, 20),
    "nothing, after the promotion": (
        canary(replace(ALL, step_started_at=ago(30)), ready=2, traffic=to("new")),
        WAIT,
        None,
    ),
    "nothing, after a rollback": (canary(annotations=ABORT), WAIT, None),
}


@pytest.mark.parametrize(("now", "verdict", "seconds"), WAKES.values(), ids=WAKES)
def test_it_wakes_for_the_next_limit(now: RolloutInput, verdict: Verdict, seconds: int | None) -> None:
    wake = step_of(now, verdict).wake
    assert wake == (timedelta(seconds=seconds) if seconds is not None else None)


@pytest.mark.parametrize("waits", [True, False])
def test_a_new_spec_waits_for_the_canary_before_it_to_go(waits: bool) -> None:
    before = canary(traffic=SPLIT if waits else to("old"), desired="newer", replicas=2)
    step = step_of(before)
    assert step.rollout is not None
    assert (step.rollout.revision, step.rollout.from_revision) == ("newer", "old")
    assert ("newer" in step.fleet) is not waits
    assert (step.rollout.state == "Pending") is waits
    assert "new" not in step.fleet
    assert step.shrink is not waits
