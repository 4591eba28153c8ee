"""Where requests go: the truth table, row by row, and the generation that tells gateways about it.

Here are the rows that every strategy shares: a base that serves, or is to, and revisions beside it.
"""

import pytest
from tailbound.api.traffic import Backend
from tailbound.rollout.situation import Situation

from tests.unit.rollout.situations import GONE, rollout, situation, state, step_of, to

TARGETS: dict[str, tuple[Situation, str | None]] = {
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
    "the rejected one has the weight, and one of stable is ready: back": (
        situation({"old": state(1), "new": state(2, rejected=True)}, to("new")),
        "old",
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
def test_target(now: Situation, target: str | None) -> None:
    where = step_of(now).flow
    assert where.target == target
    if where.traffic is not None:
        assert where.traffic.backends == ((Backend(revision=target, weight=100),) if target else ())


GENERATIONS: dict[str, tuple[Situation, int | None]] = {
    "first": (situation({}), 1),
    "unchanged": (situation({"new": state(2)}, to("new")), 5),
    "changed": (situation({"old": state(2), "new": state(2)}, to("old")), 6),
    "stopped": (situation({"new": state(2)}, to("new"), stopped=True), 6),
    "still stopped": (situation({"new": state()}, to(), stopped=True), 5),
    "stopped before it ever served: said, so that gateways can acknowledge": (situation({}, stopped=True), 1),
    "nothing to say": (situation({}, desired=None), None),
}


@pytest.mark.parametrize(("now", "generation"), GENERATIONS.values(), ids=GENERATIONS)
def test_generation_rises_with_every_change_and_only_then(now: Situation, generation: int | None) -> None:
    traffic = step_of(now).flow.traffic
    assert (traffic.generation if traffic is not None else None) == generation


# what holds: (settled, promoted, shrink)
STEPS: dict[str, tuple[Situation, tuple[bool, bool, bool]]] = {
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
    now: Situation, holds: tuple[bool, bool, bool]
) -> None:
    step = step_of(now)
    assert (step.flow.settled, step.promoted, step.shrink) == holds
