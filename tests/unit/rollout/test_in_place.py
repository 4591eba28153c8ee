"""Whose place a candidate's pods take: every row of the tables, from `old` to `new`."""

from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.rollout.in_place import needed, places, settled_on
from tailbound.rollout.model import RevisionState, RolloutInput
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress

from tests.unit.rollout.inputs import ago, rollout, situation, state, step_of, to

NO_NODE = Problem(Reason.UNSCHEDULABLE, "pod p has no node")
ENDING = state(0, pods=1)
FULL = rollout("Starting", no_capacity_since=ago(5))
BEGUN = rollout("Starting", in_place=True)
STARTED = rollout("Starting")


@pytest.mark.parametrize(
    ("capacity", "pods", "stored", "others", "in_place"),
    [
        ("surge", 4, FULL, {}, False),
        ("surge", 4, FULL, {"old": state(3, replicas=4, stuck=1)}, True),
        ("surge", 4, FULL, {"old": state(3, replicas=4, unready_since=(ago(600),))}, True),
        ("surge", 4, FULL, {"old": state(3, replicas=4, unready_since=(ago(599),))}, False),
        ("surge", 4, STARTED, {"old": state(3, replicas=4, stuck=1)}, False),
        ("surge", 4, BEGUN, {"old": state(3, replicas=3)}, True),
        ("surge", 1, FULL, {"old": state(0, replicas=1, unready_since=(ago(600),))}, True),
        ("auto", 1, FULL, {"old": state(0, replicas=1, unready_since=(ago(600),))}, True),
        ("inPlace", 1, STARTED, {"old": state(0, replicas=1, unready_since=(ago(599),))}, False),
        ("inPlace", 1, FULL, {}, False),
        ("auto", 1, FULL, {}, False),
        ("inPlace", 2, STARTED, {}, True),
        ("auto", 2, STARTED, {}, False),
        ("auto", 2, FULL, {}, True),
        ("auto", 2, BEGUN, {}, True),
        ("auto", 2, FULL, {"middle": ENDING}, False),
        ("surge", 2, BEGUN, {}, False),
    ],
)
def test_whether_pods_come_in_place(
    capacity: str, pods: int, stored: RolloutProgress, others: dict[str, RevisionState], in_place: bool
) -> None:
    now = situation(
        {"old": state(pods, replicas=pods), "new": state(), **others},
        spec={"capacity": capacity},
        replicas=pods,
    )
    assert settled_on(now, stored).in_place is in_place


def held(ready: int, replicas: int | None = None, pods: int | None = None) -> dict[str, Any]:
    """A Deployment and its pods; `pods` are more than `replicas` while one is ending."""
    wanted = ready if replicas is None else replicas
    return {"ready": ready, "replicas": wanted, "pods": wanted if pods is None else pods}


PLACES: dict[str, tuple[dict[str, Any], dict[str, Any], int, int, tuple[int, int]]] = {
    "the first place is given up at once": (held(4), held(0), 0, 2, (3, 0)),
    "by a pod that is not ready before any other": (held(3, 4), held(0), 0, 2, (3, 0)),
    "of several that are not ready by one": (held(1, 4), held(0), 0, 2, (3, 0)),
    "but not while one is being replaced": (held(4, 4, 5), held(0), 0, 2, (4, 0)),
    "it is taken when its pod has ended": (held(3, 3, 4), held(0), 0, 2, (3, 0)),
    "then it is taken": (held(3), held(0), 0, 2, (3, 1)),
    "the next one waits for the pod in the first": (held(3), held(0, 1), 0, 2, (3, 1)),
    "and for its weight": (held(3), held(1), 0, 2, (3, 1)),
    "with its weight the next one goes": (held(3), held(1), 25, 2, (2, 1)),
    "enough places were given up": (held(2), held(2), 50, 2, (2, 2)),
    "fewer are needed than were given up": (held(1), held(3), 50, 2, (2, 2)),
    "the last one stays": (held(1), held(3), 100, 3, (1, 3)),
    "somebody scales up": (held(1), held(1), 50, 1, (3, 1)),
    "somebody scales down: what is ready stays": (held(6), held(2), 50, 2, (4, 2)),
}


@pytest.mark.parametrize(("old", "new", "weight", "pods", "expected"), PLACES.values(), ids=PLACES)
def test_places(
    old: dict[str, Any], new: dict[str, Any], weight: int, pods: int, expected: tuple[int, int]
) -> None:
    now = situation(
        {"old": state(**old), "new": state(**new)},
        to(old=100 - weight, new=weight),
        replicas=4,
        acknowledged=True,
        spec={"capacity": "inPlace"},
    )
    fleet = places(now, rollout(in_place=True), pods)
    assert (fleet["old"], fleet["new"]) == expected


DEAD: dict[str, tuple[str, dict[str, Any], int, tuple[int, int]]] = {
    "surge-dead-ones-go": ("surge", {**held(2, 4), "stuck": 2}, 3, (2, 3)),
    "surge-as-many-as-are-needed": ("surge", {**held(2, 4), "stuck": 2}, 1, (3, 1)),
    "surge-not-ready-for-long": ("surge", {**held(3, 4), "unready_since": (ago(600),)}, 3, (3, 3)),
    "surge-not-ready-for-a-while": ("surge", {**held(3, 4), "unready_since": (ago(599),)}, 3, (4, 3)),
    "surge-living-ones-stay": ("surge", held(4), 3, (4, 3)),
    "in-place-not-ready-for-long": ("inPlace", {**held(1, 4), "unready_since": (ago(600),) * 3}, 3, (1, 0)),
}


@pytest.mark.parametrize(("capacity", "old", "pods", "expected"), DEAD.values(), ids=DEAD)
def test_dead_pods_give_up_their_places_at_once(
    capacity: str, old: dict[str, Any], pods: int, expected: tuple[int, int]
) -> None:
    now = situation(
        {"old": state(**old), "new": state(**held(0))},
        to("old"),
        replicas=4,
        acknowledged=True,
        spec={"capacity": capacity},
    )
    fleet = places(now, rollout(in_place=True), pods)
    assert (fleet["old"], fleet["new"]) == expected


def test_a_place_is_given_up_only_for_weight_that_every_gateway_applies() -> None:
    revisions = {"old": state(**held(3)), "new": state(**held(1))}
    traffic, spec = to(old=75, new=25), {"capacity": "inPlace"}
    now = situation(revisions, traffic, replicas=4, acknowledged=False, spec=spec)
    assert places(now, rollout(in_place=True), 2) == {"old": 3, "new": 1}


@pytest.mark.parametrize(
    ("weight", "carries", "pods"), [(0, 100, 1), (5, 5, 1), (50, 50, 2), (99, 99, 3), (100, 100, 3)]
)
def test_pods_in_place_leave_the_stable_one_its_last(weight: int, carries: int, pods: int) -> None:
    now = situation({"old": state(4), "new": state()}, replicas=4)
    assert needed(now, rollout(in_place=True), weight, carries) == pods
    assert needed(now, rollout(), weight, carries) == max(pods, now.pods("new", carries))


TOLD: dict[str, tuple[RolloutInput, tuple[str, str]]] = {
    "a place is awaited": (
        situation(
            {"old": state(**held(2)), "new": state(**held(0))},
            to("old"),
            spec={"capacity": "inPlace"},
            stored=rollout("Starting", progress_at=ago(9000), in_place=True),
        ),
        ("Starting", "RollingOut"),
    ),
    "somebody else took the place that was given up": (
        situation(
            {"old": state(**held(1)), "new": state(**held(0, 1), trouble=NO_NODE)},
            to("old"),
            spec={"capacity": "inPlace"},
            stored=rollout("Starting", progress_at=ago(9000), high_water=0),
        ),
        ("Starting", "Unschedulable"),
    ),
    "its pod has the place and does not get ready": (
        situation(
            {"old": state(**held(1)), "new": state(**held(0, 1))},
            to("old"),
            spec={"capacity": "inPlace"},
            stored=rollout("Starting", progress_at=ago(9000), high_water=0),
        ),
        ("RolledBack", "DeadlineExceeded"),
    ),
    "its pods carry a part": (
        situation(
            {"old": state(**held(3)), "new": state(**held(1))},
            to("old"),
            spec={"capacity": "inPlace"},
            replicas=4,
            stored=rollout("Promoting", weight=0),
        ),
        ("Promoting", "RollingOut"),
    ),
}


@pytest.mark.parametrize(("now", "expected"), TOLD.values(), ids=TOLD)
def test_what_is_told(now: RolloutInput, expected: tuple[str, str]) -> None:
    told = step_of(now).rollout
    assert told is not None
    assert (told.state, told.reason) == expected
