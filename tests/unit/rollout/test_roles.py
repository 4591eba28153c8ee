"""Which revision carries a rollout, and which one is to follow it."""

from dataclasses import replace

import pytest
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.roles import roles

from tests.unit.rollout.inputs import GONE, ago, rollout, situation, state, to

BASES: dict[str, tuple[RolloutInput, tuple[str | None, str | None]]] = {
    "nothing": (situation({}), (None, "new")),
    "marked": (situation({"old": state(), "new": state(2)}), ("old", "new")),
    "marked and desired": (situation({"new": state()}, stable="new"), ("new", None)),
    "marked, and nothing is desired": (situation({"old": state()}, desired=None), ("old", None)),
    "not marked, but it has the weight": (
        situation({"a": state(1), "old": state(1)}, to("a"), stable=None),
        ("a", "new"),
    ),
    "not marked and no weights known": (
        situation({"a": state(1, number=1), "b": state(1, number=2)}, stable=None),
        ("b", "new"),
    ),
    "only promoted once": (
        situation({"a": replace(GONE, promoted_at="1"), "b": replace(GONE, promoted_at="2")}, to("new")),
        ("b", "new"),
    ),
    "marked, but rejected: the one before": (
        situation(
            {"old": state(2, promoted_at="1"), "new": state(2, promoted_at="2", rejected=True)},
            to("new"),
            stable="new",
        ),
        ("old", None),
    ),
    "rejected": (situation({"old": state(2), "new": state(2, rejected=True)}), ("old", None)),
    "rejected with nothing else": (situation({"new": state(2, rejected=True)}), (None, "new")),
    "rejected, tried again": (
        situation({"old": state(2), "new": state(rejected=True)}, annotations={"retry": "new/1"}),
        ("old", "new"),
    ),
    "rejected, tried again before": (
        situation(
            {"old": state(2), "new": state(rejected=True)},
            annotations={"retry": "new/1"},
            handled=("retry",),
        ),
        ("old", None),
    ),
    "return to one that served": (
        situation({"a": replace(GONE, promoted_at="1"), "old": state(2)}, annotations={"rollback-to": "a"}),
        ("a", None),
    ),
    "return to one that never served": (
        situation({"a": GONE, "old": state(2)}, annotations={"rollback-to": "a"}),
        ("old", "new"),
    ),
    "return to one that cannot be read": (
        situation(
            {"a": replace(GONE, promoted_at="1", restorable=False), "old": state(2)},
            annotations={"rollback-to": "a"},
        ),
        ("old", "new"),
    ),
    "return that was made": (
        situation(
            {"a": replace(GONE, promoted_at="1"), "old": state(2)},
            annotations={"rollback-to": "a"},
            handled=("rollback-to",),
        ),
        ("old", "new"),
    ),
}


@pytest.mark.parametrize(("now", "expected"), BASES.values(), ids=BASES)
def test_who_is_who(now: RolloutInput, expected: tuple[str | None, str | None]) -> None:
    who = roles(now)
    assert (who.base, who.candidate) == expected


LOST = rollout("Promoted", revision="new", from_revision="old", weight=100, progress_at=ago(600))


@pytest.mark.parametrize(
    ("ready", "since", "base"),
    [(0, 600, "old"), (0, 599, "new"), (1, 600, "new")],
    ids=["overdue", "not yet", "it is back"],
)
def test_a_lost_one_makes_way_for_the_one_before(ready: int, since: int, base: str) -> None:
    now = situation(
        {"old": replace(GONE, promoted_at="1"), "new": state(ready, promoted_at="2")},
        to("new"),
        stable="new",
        stored=replace(LOST, progress_at=ago(since)),
    )
    assert roles(now).base == base
