"""The weights of revisions: the truth table, row by row, and the generation by which gateways know them.

Here are the rows that every strategy shares: a base that serves, or is to, and revisions beside it.
"""

from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.rejection import Rejection
from tailbound.api.traffic import Backend
from tailbound.rollout.model import RevisionState, RolloutInput
from tailbound.rollout.problem import Problem
from tailbound.rollout.sizing import fixed

from tests.unit.rollout.inputs import GONE, NOW, ago, rollout, situation, state, step_of, to

TARGETS: dict[str, tuple[RolloutInput, str | None]] = {
    "stopped: nobody": (situation({"new": state(2)}, to("new"), stopped=True), None),
    "first deployment: at once, so that its first endpoint serves": (situation({}), "new"),
    "all ready: desired": (situation({"old": state(2), "new": state(2)}, to("old")), "new"),
    "more than all ready: desired": (situation({"old": state(2), "new": state(3)}, to("old")), "new"),
    "some ready while old serves: old": (situation({"old": state(1), "new": state(1)}, to("old")), "old"),
    "none ready while old serves: old": (situation({"old": state(1), "new": state()}, to("old")), "old"),
    "some ready and old is down: desired": (situation({"old": state(), "new": state(1)}, to("old")), "new"),
    "none ready anywhere: stays": (situation({"old": state(), "new": state()}, to("old")), "old"),
    "none ready, and old is gone and was never promoted: desired": (
        situation({"old": GONE, "new": state()}, to("old"), stable=None),
        "new",
    ),
    "weight moved and some still ready: stays": (
        situation({"old": state(2), "new": state(1)}, to("new"), stored=rollout("Promoting", weight=100)),
        "new",
    ),
    "weight moved, some still ready, and the rollout is lost with the status: back": (
        situation({"old": state(2), "new": state(1)}, to("new")),
        "old",
    ),
    "weight moved and none ready any more: back": (
        situation({"old": state(2), "new": state()}, to("new"), stored=rollout("Promoting", weight=100)),
        "old",
    ),
    "back to the stable one of several": (
        situation({"a": state(1, number=9), "b": state(1, number=2), "new": state()}, to("new"), stable="b"),
        "b",
    ),
    "back to the newest of several": (
        situation({"a": state(1, number=9), "b": state(1, number=2), "new": state()}, to("new")),
        "a",
    ),
    "a third edit: the first still serves": (
        situation({"old": state(2), "middle": state(1), "new": state()}, to("old")),
        "old",
    ),
    "status lost: stable serves on": (situation({"old": state(2), "new": state(1)}), "old"),
    "status lost, all ready: desired": (situation({"old": state(2), "new": state(2)}), "new"),
    "status and marks lost: what is ready": (
        situation({"old": state(2), "new": state()}, stable=None),
        "old",
    ),
    "resumed with an edit: what was judged comes back first": (situation({"old": GONE}, to()), "old"),
    "the rejected one has little weight, and one of stable is ready: back": (
        situation({"old": state(1), "new": state(2, rejected=True)}, to(old=90, new=10)),
        "old",
    ),
    "the rejected one has the weight, and another one that never served is ready": (
        situation(
            {"old": state(), "third": state(1, number=2), "new": state(2, number=3, rejected=True)}, to("new")
        ),
        "third",
    ),
    "the rejected one has the weight, and none of stable is ready: better than nothing": (
        situation({"old": state(), "new": state(2, rejected=True)}, to("new")),
        "new",
    ),
    "the rejected one is the only ready one: it gets nothing that it has not": (
        situation({"old": state(), "new": state(2, rejected=True)}, to("old")),
        "old",
    ),
    "no desired revision: what serves": (situation({"old": state(1)}, to("old"), desired=None), "old"),
    "no desired revision, none ready: as it is": (
        situation({"old": state()}, to("old"), desired=None),
        "old",
    ),
    "nothing at all": (situation({}, desired=None), None),
    "several weights of another release: the heaviest": (
        situation(
            {"old": state(1), "other": state(1), "new": state()},
            to(other=5, old=95),
            stable=None,
        ),
        "old",
    ),
}


@pytest.mark.parametrize(("now", "target"), TARGETS.values(), ids=TARGETS)
def test_target(now: RolloutInput, target: str | None) -> None:
    where = step_of(now).flow
    assert where.target == target
    if where.traffic is not None:
        assert where.traffic.backends == ((Backend(revision=target, weight=100),) if target else ())


NO_NODE = Problem(Reason.UNSCHEDULABLE, "pod p has no node")
CRASHES = Problem(Reason.CRASH_LOOP, "it crashes")
AT_75 = rollout(step=0, weight=75, step_started_at=ago(60))
PLAN = {"strategy": "canary", "steps": [{"weight": 75}]}
REVERT: dict[str, Any] = {"desired": "old"}
ABORT: dict[str, Any] = {"stored": AT_75, "spec": PLAN, "annotations": {"abort": "new"}}
NEWER: dict[str, Any] = {"desired": "newer", "spec": PLAN}
LATE = rollout("Promoting", revision="old", from_revision="new", moving_since=ago(600))


def short(ready: int, weight: int, new: RevisionState | None = None, **fields: Any) -> RolloutInput:
    """A rollout in which so many of four stable pods are ready, and `new` has this weight."""
    old = state(ready, replicas=4, trouble=fields.pop("trouble", None))
    traffic = to(**{name: part for name, part in {"old": 100 - weight, "new": weight}.items() if part})
    revisions = {"old": old, "new": new or state(3, number=2, replicas=3), **fields.pop("more", {})}
    return situation(revisions, traffic, replicas=4, **fields)


# What is left of the weight of revisions beside `old`, whose pods are missing.
LEFT: dict[str, tuple[RolloutInput, dict[str, int]]] = {
    "stable is asked for more pods: the canary keeps its step": (
        short(4, 75, stored=AT_75, spec=PLAN, sizing=fixed(5)),
        {"new": 75},
    ),
    "stable loses a pod: the canary keeps its step": (short(3, 75, stored=AT_75, spec=PLAN), {"new": 75}),
    "stable lost all, and one is back: it takes what that carries": (
        short(1, 100, stored=rollout(weight=5, step_started_at=ago(60)), spec={"strategy": "canary"}),
        {"new": 75},
    ),
    "stable is back but for one pod: never less than the step": (
        short(3, 100, stored=AT_75, spec=PLAN),
        {"new": 75},
    ),
    "revert": (short(3, 75, **REVERT), {"new": 25}),
    "revert with one pod ready": (short(1, 75, **REVERT), {"new": 75}),
    "revert, the next pod is ready": (short(2, 75, **REVERT), {"new": 50}),
    "revert, all are ready": (short(4, 75, **REVERT), {}),
    "revert of a first step": (short(3, 5, **REVERT), {}),
    "revert of one that has all": (short(3, 100, **REVERT), {"new": 25}),
    "revert of one that has no ready pod": (short(3, 75, new=state(0, replicas=3), **REVERT), {}),
    "revert, and the places are taken": (short(3, 75, trouble=NO_NODE, **REVERT), {}),
    "revert, and a pod crashes": (short(3, 75, trouble=CRASHES, **REVERT), {"new": 25}),
    "revert, and the pod does not come": (short(3, 25, stored=LATE, **REVERT), {}),
    "revert in place": (short(3, 75, spec={"capacity": "inPlace"}, **REVERT), {}),
    "nine of ten are ready": (short(9, 75, sizing=fixed(10), **REVERT), {}),
    "aborted": (short(3, 75, **ABORT), {"new": 25}),
    "rejected": (short(2, 75, new=state(3, replicas=3, rejected=True)), {"new": 50}),
    "a newer spec": (short(3, 75, **NEWER), {"new": 25}),
    "several: what was rejected gives up first": (
        short(2, 60, more={"newer": state(1, number=3, replicas=1)}, **REVERT, new=state(2, rejected=True)),
        {"new": 50},
    ),
}


@pytest.mark.parametrize(("now", "left"), LEFT.values(), ids=LEFT)
def test_what_stable_cannot_carry_yet_leaves_the_others_as_its_pods_come(
    now: RolloutInput, left: dict[str, int]
) -> None:
    step = step_of(now)
    assert step.flow.traffic is not None
    weights = {backend.revision: backend.weight for backend in step.flow.traffic.backends}
    assert weights == {"old": 100 - sum(left.values()), **left}
    assert all(step.fleet[name] >= now.of(name).replicas for name in left), "its pods stay while it has any"
    assert step.marking.stable is None


def test_the_rest_goes_first_where_it_was_rejected_and_then_where_it_never_served() -> None:
    revisions = {
        "old": state(2, replicas=4),
        "served": state(1, number=2, promoted_at="2026"),
        "canary": state(1, number=3),
        "rejected": state(1, number=4, rejection=Rejection("rejected", "Slow", "it was slow")),
    }
    weights = {"old": 10, "served": 30, "canary": 30, "rejected": 30}
    step = step_of(situation(revisions, to(**weights), desired="old", replicas=4))
    assert step.flow.traffic is not None
    left = {backend.revision: backend.weight for backend in step.flow.traffic.backends}
    assert left == {"old": 50, "served": 30, "canary": 20}


def test_what_is_left_elsewhere_is_looked_at_again_when_it_has_waited_too_long() -> None:
    step = step_of(short(3, 75, **REVERT))
    assert step.rollout is not None
    assert (step.rollout.state, step.rollout.moving_since) == ("Promoting", NOW)
    assert (
        step.rollout.message == "old gets 75 percent of the requests, and the others as its pods become ready"
    )
    assert step.wake == timedelta(minutes=10)
    later = step_of(short(4, 25, **REVERT, stored=step.rollout, acknowledged=False))
    assert later.rollout is not None
    assert (later.rollout.state, later.rollout.moving_since) == ("Promoting", None)
    ended = step_of(short(4, 0, **REVERT, stored=later.rollout, acknowledged=True))
    assert ended.rollout is not None
    assert (ended.rollout.state, ended.marking.stable) == ("Promoted", "old")


GENERATIONS: dict[str, tuple[RolloutInput, int | None]] = {
    "first": (situation({}), 1),
    "unchanged": (situation({"new": state(2)}, to("new")), 5),
    "changed": (situation({"old": state(2), "new": state(2)}, to("old")), 6),
    "stopped": (situation({"new": state(2)}, to("new"), stopped=True), 6),
    "still stopped": (situation({"new": state()}, to(), stopped=True), 5),
    "stopped before it ever served: said, so that gateways can acknowledge": (situation({}, stopped=True), 1),
    "nothing to say": (situation({}, desired=None), None),
}


@pytest.mark.parametrize(("now", "generation"), GENERATIONS.values(), ids=GENERATIONS)
def test_generation_rises_with_every_change_and_only_then(now: RolloutInput, generation: int | None) -> None:
    traffic = step_of(now).flow.traffic
    assert (traffic.generation if traffic is not None else None) == generation


# what holds: (settled, promoted, shrink)
STEPS: dict[str, tuple[RolloutInput, tuple[bool, bool, bool]]] = {
    "not acknowledged": (situation({"new": state(2)}, to("new")), (False, False, False)),
    "acknowledged": (situation({"new": state(2)}, to("new"), acknowledged=True), (True, True, True)),
    "acknowledged, but the weight moves on": (
        situation({"old": state(2), "new": state(2)}, to("old"), acknowledged=True),
        (False, False, False),
    ),
    "old acknowledged, new starting: a middle one may go": (
        situation({"old": state(2), "middle": state(1), "new": state()}, to("old"), acknowledged=True),
        (True, False, True),
    ),
    "acknowledged with no endpoint is no promotion": (
        situation({"new": state()}, to("new"), acknowledged=True),
        (True, False, True),
    ),
    "without a desired revision all is left": (
        situation({"old": state(1)}, to("old"), desired=None, acknowledged=True),
        (True, False, False),
    ),
    "stopped and acknowledged": (
        situation({"new": state(2)}, to(), stopped=True, acknowledged=True),
        (True, False, True),
    ),
    "never any traffic": (situation({}, desired=None, acknowledged=True), (False, False, False)),
}


@pytest.mark.parametrize(("now", "holds"), STEPS.values(), ids=STEPS)
def test_shrink_and_promotion_wait_for_the_acknowledgement(
    now: RolloutInput, holds: tuple[bool, bool, bool]
) -> None:
    step = step_of(now)
    assert (step.flow.settled, step.marking.stable is not None, step.shrink) == holds
