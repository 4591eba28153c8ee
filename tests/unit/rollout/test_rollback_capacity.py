"""How a revision that comes back gets its places: every row of the table, from `new` back to `old`."""

from dataclasses import replace
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.rollout.model import RevisionState, RolloutInput
from tailbound.rollout.problem import Problem
from tailbound.rollout.rollback_capacity import in_turn, interrupted
from tailbound.rollout.weights import weight_of

from tests.unit.rollout.inputs import rollout, situation, state, step_of, to

NO_NODE = Problem(Reason.UNSCHEDULABLE, "pod p has no node; a pod needs example.com/gpu 1")
CRASHES = Problem(Reason.CRASH_LOOP, "it crashes")


def pods(ready: int, replicas: int | None = None, **fields: Any) -> RevisionState:
    """A Deployment and its pods."""
    wanted = ready if replicas is None else replicas
    return state(ready, **{"replicas": wanted, "pods": wanted, "promoted_at": "2026", **fields})


def waiting(ready: int = 0, replicas: int = 4) -> RevisionState:
    """Some of its pods lack capacity."""
    return pods(ready, replicas, trouble=NO_NODE, stuck=replicas - ready)


BESIDE: dict[str, tuple[str, int, RevisionState, RevisionState, int]] = {
    "it has all its pods": ("inPlace", 4, pods(4), pods(4), 0),
    "it has all requests": ("inPlace", 4, pods(3, 4), pods(1), 100),
    "surge": ("surge", 4, waiting(), pods(4), 0),
    "surge, and all are dead, but it finds capacity": ("surge", 4, pods(0, 4), pods(0, 4, stuck=4), 0),
    "the other has one pod": ("inPlace", 1, waiting(0, 1), pods(1), 0),
    "which is not ready now": ("inPlace", 1, waiting(0, 1), pods(0, 1), 0),
    "auto finds capacity": ("auto", 4, pods(0, 4), pods(4), 0),
    "its pods crash where they found capacity": ("auto", 4, pods(0, 4, trouble=CRASHES), pods(4), 0),
    "some are ready, the other is rejected": ("inPlace", 4, waiting(1), pods(3, rejected=True), 25),
    "some are ready, and none of the other": ("inPlace", 4, waiting(1), pods(0, 3), 25),
    "the other has no Deployment": ("inPlace", 4, waiting(0), state(4, deployed=False), 0),
}


def coming_back(
    capacity: str, whole: int, old: RevisionState, new: RevisionState, weight: int, **fields: Any
) -> RolloutInput:
    traffic = to("old") if weight == 100 else to(old=weight, new=100 - weight)
    return situation(
        {"old": old, "new": new},
        traffic,
        spec={"capacity": capacity},
        replicas=whole,
        acknowledged=True,
        **fields,
    )


@pytest.mark.parametrize(("capacity", "whole", "old", "new", "weight"), BESIDE.values(), ids=BESIDE)
def test_no_pod_is_replaced_in_place(
    capacity: str, whole: int, old: RevisionState, new: RevisionState, weight: int
) -> None:
    now = coming_back(capacity, whole, old, new, weight)
    assert in_turn(now, "old", {"new"} if new.rejection else (), lost=False) is None


# Whole, pods of both, the weight before; then pods of both, and the weight.
IN_TURN: dict[str, tuple[int, RevisionState, RevisionState, int, tuple[int, int, int]]] = {
    "the first place is given up": (4, waiting(), pods(4), 0, (0, 3, 0)),
    "one that is not ready goes first": (4, waiting(), pods(3, 4), 0, (0, 3, 0)),
    "not while one is being replaced": (4, waiting(), pods(4, 4, pods=5), 0, (0, 4, 0)),
    "it is taken": (4, pods(0), pods(3), 0, (1, 3, 0)),
    "ready, it gets weight": (4, pods(1), pods(3), 0, (1, 3, 33)),
    "with its weight the next one goes": (4, pods(1), pods(3), 33, (1, 2, 33)),
    "weight is kept while a pod is missing": (4, pods(1, 2), pods(2), 66, (2, 2, 66)),
    "the last place waits for the weight": (4, pods(3), pods(1), 66, (3, 1, 100)),
    "two pods": (2, pods(1), pods(1), 0, (1, 1, 100)),
    "dead ones go at once": (4, waiting(), pods(2, 4, stuck=2), 0, (0, 2, 0)),
    "never one that serves for one that is stuck": (2, waiting(), pods(2, 2, stuck=1, pods=3), 0, (0, 2, 0)),
    "all are dead: one may recover": (4, waiting(), pods(0, 4, stuck=4), 0, (0, 1, 0)),
    "the only one is dead": (1, waiting(0, 1), pods(0, 1, stuck=1), 0, (0, 0, 0)),
    "its place is taken": (1, pods(0), pods(0), 0, (1, 0, 0)),
    "rejected, but the only ready copy": (4, waiting(), pods(4, rejected=True), 0, (0, 3, 0)),
}


@pytest.mark.parametrize("capacity", ["inPlace", "auto"])
@pytest.mark.parametrize(("whole", "old", "new", "weight", "expected"), IN_TURN.values(), ids=IN_TURN)
def test_pods_are_replaced_in_place(
    capacity: str,
    whole: int,
    old: RevisionState,
    new: RevisionState,
    weight: int,
    expected: tuple[int, int, int],
) -> None:
    now = coming_back(capacity, whole, old, new, weight)
    turn = in_turn(now, "old", {"new"} if new.rejection else (), lost=False)
    assert turn is not None
    assert turn.flow.traffic is not None
    weights = {backend.revision: backend.weight for backend in turn.flow.traffic.backends}
    assert (turn.fleet["old"], turn.fleet["new"], weights.get("old", 0)) == expected
    assert turn.makes_way == "new"


def test_with_surge_dead_pods_make_way_for_a_return_without_capacity() -> None:
    now = coming_back("surge", 4, waiting(), pods(2, 4, stuck=2), 0)
    turn = in_turn(now, "old", (), lost=False)
    assert turn is not None
    assert turn.fleet == {"old": 4, "new": 2}


@pytest.mark.parametrize(("whole", "kept"), [(1, 0), (2, 1), (4, 1)])
def test_pods_of_a_lost_revision_are_dead_whatever_they_say(whole: int, kept: int) -> None:
    now = coming_back("inPlace", whole, waiting(0, whole), pods(0, whole), 0)
    turn = in_turn(now, "old", (), lost=True)
    assert turn is not None
    assert turn.fleet == {"old": 0, "new": kept}


def asked(
    oldest: RevisionState, old: RevisionState, new: RevisionState, weights: dict[str, int], **spec: str
) -> RolloutInput:
    """Somebody asks for a return to `oldest` from `old`, which is stable, while `new` is on its way."""
    return situation(
        {"oldest": oldest, "old": old, "new": replace(new, promoted_at=None)},
        to(**weights),
        spec=spec,
        replicas=4,
        acknowledged=True,
        annotations={"rollback-to": "oldest"},
    )


HALF = {"old": 50, "new": 50}
INTERRUPTED: dict[str, tuple[RolloutInput, str | None]] = {
    "a third has some": (asked(pods(0), pods(4), pods(2), HALF), "old"),
    "a third has all": (asked(pods(0), pods(1), pods(3), {"new": 100}), "old"),
    "its own pods lack capacity": (asked(pods(0), waiting(1), pods(3), {"new": 100}), "old"),
    "no third has any": (asked(pods(0), pods(4), pods(4), {"old": 100}), None),
    "the one that comes back has the others": (
        asked(pods(2), pods(2), pods(0), {"oldest": 50, "old": 50}),
        None,
    ),
    "the one that comes back has all its pods": (asked(pods(4), pods(4), pods(4), {"new": 100}), None),
    "none of its pods is ready": (asked(pods(0), pods(0, 4), pods(4), {"new": 100}), None),
    "pods of it fail": (asked(pods(0), pods(3, 4, trouble=CRASHES), pods(2), HALF), None),
    "whatever else there is ends first": (
        asked(pods(0), pods(4), pods(2), HALF, strategy="recreate"),
        None,
    ),
}


@pytest.mark.parametrize(("now", "expected"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_when_the_stable_revision_takes_back_what_a_third_has(
    now: RolloutInput, expected: str | None
) -> None:
    assert interrupted(now, "oldest") == expected


# Ready pods of the stable one and of the third, whose weight it is; then what the third has meanwhile.
BESIDE_A_THIRD: dict[str, tuple[int, int, int, int]] = {
    "it has all its pods": (4, 4, 100, 0),
    "it has as many as the third": (3, 3, 75, 25),
    "it has fewer": (2, 3, 75, 50),
    "it has fewer, and as many requests": (2, 3, 50, 50),
    "the third has few": (2, 1, 10, 0),
}


@pytest.mark.parametrize(("old", "new", "weight", "left"), BESIDE_A_THIRD.values(), ids=BESIDE_A_THIRD)
def test_the_stable_revision_keeps_its_pods_until_the_older_one_serves(
    old: int, new: int, weight: int, left: int
) -> None:
    step = step_of(asked(pods(0), pods(old, 4), pods(new), {"old": 100 - weight, "new": weight}))
    assert (step.flow.target, step.fleet["old"], step.fleet["oldest"]) == ("old", 4, 4)
    assert weight_of(step.flow.traffic, "new") == left
    assert step.fleet.get("new", 0) == (new if left else 0)


TOLD: dict[str, tuple[str, RevisionState, RevisionState, str]] = {
    "surge": (
        "surge",
        waiting(),
        pods(4),
        "let the pods of new be replaced in place: set spec.rollout.capacity to auto",
    ),
    "in its places": ("inPlace", pods(0, 0), pods(4), "The pods of old replace those of new in place"),
    "in its places, which are too few": ("auto", waiting(), pods(4), "or ask for fewer pods in spec.scaling"),
    "a start": ("auto", pods(0, 4), pods(4), "a rollback to old was requested"),
    "nobody has any": (
        "surge",
        waiting(),
        state(deployed=False),
        "Add or free the resources that a pod needs",
    ),
}


@pytest.mark.parametrize(("capacity", "old", "new", "words"), TOLD.values(), ids=TOLD)
def test_a_return_says_where_it_finds_capacity(
    capacity: str, old: RevisionState, new: RevisionState, words: str
) -> None:
    weight = 0 if new.deployed else 100
    now = coming_back(
        capacity, 4, old, new, weight, stable="new", annotations={"rollback-to": "old"}, stored=rollout()
    )
    told = step_of(now).rollout
    assert told is not None
    assert (told.state, told.reason) == ("Promoting", "RolledBackManually")
    assert told.message.endswith(words)
