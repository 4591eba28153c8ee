"""One step of a rollout: every row of its tables, from `old` to `new`, two pods each."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.rollout import RolloutStatus
from tailbound.rollout.analysis import Verdict
from tailbound.rollout.evidence import Tally
from tailbound.rollout.roles import roles
from tailbound.rollout.situation import Situation, Trouble
from tailbound.rollout.verdict import (
    Finding,
    Measure,
    Numbers,
    Outcome,
    Thresholds,
    error_objective,
    latency_objective,
)

from tests.unit.rollout.situations import GONE, ago, rollout, situation, state, step_of, to

CANARY = {"strategy": "canary", "steps": [{"weight": 5}, {"weight": 50}]}
SPLIT = to(old=95, new=5)
WAIT, HOLD = Verdict(Outcome.WAIT), Verdict(Outcome.HOLD)
PASS = Verdict(Outcome.PASS, passed_at=ago(5))
LIMITS = Thresholds(absolute=5, late=6, relative=5, passing=3)


def against(measure: Measure) -> Verdict:
    objective = latency_objective(0.99) if measure is Measure.LATENCY else error_objective(0.01)
    numbers = Numbers(absolute=7.0, late=0.0, relative=8.0, improves=0.0, passing=0.0, enough=True)
    finding = Finding(objective, Outcome.ROLL_BACK, numbers, LIMITS)
    return Verdict(Outcome.ROLL_BACK, (finding,), {measure: Tally(100, 20)})


def unread(seconds: float) -> Verdict:
    return Verdict(Outcome.PASS, unread_since=ago(seconds), unread_why="g is unread", passed_at=ago(90))


def canary(
    stored: RolloutStatus | None = None,
    *,
    ready: int = 1,
    old: int = 2,
    traffic: Any = SPLIT,
    spec: dict[str, Any] | None = None,
    new: dict[str, Any] | None = None,
    **fields: Any,
) -> Situation:
    """At the first step of a canary, long observed."""
    at_step = rollout(weight=5, step_started_at=ago(60))
    return situation(
        {"old": state(old, promoted_at="2026"), "new": state(ready, number=2, **(new or {}))},
        traffic,
        spec={**CANARY, **(spec or {})},
        stored=stored or at_step,
        **{"acknowledged": True, **fields},
    )


def told(now: Situation, verdict: Verdict = WAIT) -> tuple[str, str, int, dict[str, int]]:
    """State, reason, step and weights after one step."""
    step = step_of(now, verdict)
    assert step.rollout is not None
    assert step.flow.traffic is not None
    weights = {backend.revision: backend.weight for backend in step.flow.traffic.backends}
    return step.rollout.state, step.rollout.reason, step.rollout.step, weights


AT_5, AT_50, OLD, NEW = {"old": 95, "new": 5}, {"old": 50, "new": 50}, {"old": 100}, {"new": 100}
NO_NODE = Trouble(Reason.UNSCHEDULABLE, "pod p has no node")
NO_QUOTA = Trouble(Reason.QUOTA_EXCEEDED, "exceeded quota")
STARTED = rollout("Starting", weight=0)
SECOND = rollout(step=1, weight=5, progress_at=ago(10))
SECOND_OBSERVED = rollout(step=1, weight=50, step_started_at=ago(60))
LAST = rollout("Promoting", step=2, weight=50, progress_at=ago(10))
ALL = rollout("Promoting", step=2, weight=100, step_started_at=ago(10))
MANUAL = {"promotion": "manual"}
PAUSE, PROMOTE, ABORT = {"pause": "new"}, {"promote": "new"}, {"abort": "new"}

STEPS: dict[str, tuple[Situation, Verdict, tuple[str, str, int, dict[str, int]]]] = {
    "no pods yet": (
        canary(STARTED, ready=0, traffic=to("old")),
        WAIT,
        ("Starting", "Starting", 0, OLD),
    ),
    "its first pods are ready: weight": (
        canary(STARTED, traffic=to("old")),
        WAIT,
        ("Analysing", "RollingOut", 0, AT_5),
    ),
    "its pods are ready, but nobody would count": (
        canary(STARTED, traffic=to("old")),
        Verdict(Outcome.WAIT, counting=False),
        ("Starting", "Starting", 0, OLD),
    ),
    "nobody counts for too long": (
        canary(STARTED, traffic=to("old")),
        replace(unread(60), counting=False),
        ("Paused", "NoData", 0, OLD),
    ),
    "nobody would count, but somebody promotes it": (
        canary(STARTED, ready=2, traffic=to("old"), annotations=PROMOTE),
        replace(unread(60), counting=False),
        ("Promoting", "PromotedByHand", 2, NEW),
    ),
    "not every gateway applies it yet": (
        canary(rollout(weight=5), acknowledged=False),
        PASS,
        ("Analysing", "RollingOut", 0, AT_5),
    ),
    "observed": (canary(rollout(weight=5)), PASS, ("Analysing", "Analysing", 0, AT_5)),
    "no verdict": (canary(), WAIT, ("Analysing", "Analysing", 0, AT_5)),
    "passed": (canary(), PASS, ("Analysing", "RollingOut", 1, AT_5)),
    "nothing to judge by, and time is over": (canary(), Verdict(None), ("Analysing", "RollingOut", 1, AT_5)),
    "passed before its time": (
        canary(rollout(weight=5, step_started_at=ago(29))),
        PASS,
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "passed, but a request may still hang": (
        canary(),
        replace(PASS, passed_at=ago(1)),
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "passed, but a gateway is unread": (canary(), unread(59), ("Analysing", "Analysing", 0, AT_5)),
    "a gateway is unread for too long": (canary(), unread(60), ("Paused", "NoData", 0, AT_5)),
    "both are bad": (canary(), HOLD, ("Analysing", "SharedBreach", 0, AT_5)),
    "paused": (canary(annotations=PAUSE), PASS, ("Paused", "Paused", 0, AT_5)),
    "another one is paused": (canary(annotations={"pause": "x"}), PASS, ("Analysing", "RollingOut", 1, AT_5)),
    "paused before it had any weight": (
        canary(STARTED, traffic=to("old"), annotations=PAUSE),
        WAIT,
        ("Paused", "Paused", 0, OLD),
    ),
    "paused between two steps": (
        canary(SECOND, ready=2, annotations=PAUSE),
        WAIT,
        ("Paused", "Paused", 1, AT_5),
    ),
    "no verdict in time: pause": (
        canary(rollout(weight=5, step_started_at=ago(1800))),
        WAIT,
        ("Paused", "Inconclusive", 0, AT_5),
    ),
    "a verdict after that": (
        canary(rollout("Paused", weight=5, reason="Inconclusive", step_started_at=ago(9000))),
        PASS,
        ("Analysing", "RollingOut", 1, AT_5),
    ),
    "no verdict in time: promote": (
        canary(rollout(weight=5, step_started_at=ago(1800)), spec={"onInconclusive": "promote"}),
        WAIT,
        ("Analysing", "RollingOut", 1, AT_5),
    ),
    "both are bad, and time is over: no promotion": (
        canary(rollout(weight=5, step_started_at=ago(1800)), spec={"onInconclusive": "promote"}),
        HOLD,
        ("Paused", "Inconclusive", 0, AT_5),
    ),
    "no verdict in time: rollback": (
        canary(rollout(weight=5, step_started_at=ago(1800)), spec={"onInconclusive": "rollback"}),
        WAIT,
        ("RolledBack", "Inconclusive", 0, OLD),
    ),
    "the next step waits for its pods": (
        canary(SECOND, ready=1, replicas=4),
        WAIT,
        ("Analysing", "RollingOut", 1, AT_5),
    ),
    "the next step has its pods": (
        canary(SECOND, ready=2, replicas=4, old=4),
        WAIT,
        ("Analysing", "RollingOut", 1, AT_50),
    ),
    "the last step passed": (
        canary(SECOND_OBSERVED, traffic=to(old=50, new=50)),
        PASS,
        ("Promoting", "RollingOut", 2, AT_50),
    ),
    "the last step passed, manual": (
        canary(SECOND_OBSERVED, traffic=to(old=50, new=50), spec=MANUAL),
        PASS,
        ("Paused", "AwaitingPromotion", 2, AT_50),
    ),
    "manual, and nobody came": (
        canary(
            rollout("Paused", reason="AwaitingPromotion", step=2, weight=50),
            traffic=to(old=50, new=50),
            spec=MANUAL,
        ),
        PASS,
        ("Paused", "AwaitingPromotion", 2, AT_50),
    ),
    "all requests need all pods": (
        canary(LAST, traffic=to(old=50, new=50)),
        WAIT,
        ("Promoting", "RollingOut", 2, AT_50),
    ),
    "all pods: all requests": (
        canary(LAST, ready=2, traffic=to(old=50, new=50)),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "the old ones are kept": (
        canary(ALL, ready=2, traffic=to("new")),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "long enough": (
        canary(ALL.model_copy(update={"step_started_at": ago(30)}), ready=2, traffic=to("new")),
        WAIT,
        ("Promoted", "Promoted", 2, NEW),
    ),
    "long enough, but a gateway does not know yet": (
        canary(
            ALL.model_copy(update={"step_started_at": ago(30)}),
            ready=2,
            traffic=to("new"),
            acknowledged=False,
        ),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "it lost its pods at a step": (canary(ready=0), WAIT, ("Starting", "Starting", 0, OLD)),
    "stable lost its pods: better few than none": (
        canary(old=0),
        WAIT,
        ("Analysing", "Analysing", 0, NEW),
    ),
    "stable lost some: the split stays": (canary(old=1), WAIT, ("Analysing", "Analysing", 0, AT_5)),
    "promoted by hand, pods missing": (
        canary(annotations=PROMOTE),
        WAIT,
        ("Promoting", "PromotedByHand", 2, AT_5),
    ),
    "promoted by hand": (canary(ready=2, annotations=PROMOTE), WAIT, ("Promoting", "PromotedByHand", 2, NEW)),
    "promoted by hand beats a pause": (
        canary(ready=2, annotations={**PROMOTE, **PAUSE}),
        WAIT,
        ("Promoting", "PromotedByHand", 2, NEW),
    ),
    "promoted by hand once": (
        canary(annotations=PROMOTE, handled=("promote",)),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "aborted": (canary(annotations=ABORT), PASS, ("RolledBack", "AbortedByHand", 0, OLD)),
    "aborted beats promoted": (
        canary(annotations={**ABORT, **PROMOTE}),
        PASS,
        ("RolledBack", "AbortedByHand", 0, OLD),
    ),
    "aborted with all requests": (
        canary(ALL, ready=2, traffic=to("new"), annotations=ABORT),
        PASS,
        ("RolledBack", "AbortedByHand", 2, OLD),
    ),
    "slow": (canary(), against(Measure.LATENCY), ("RolledBack", "Slow", 0, OLD)),
    "failing": (canary(), against(Measure.ERRORS), ("RolledBack", "Failing", 0, OLD)),
    "slow while paused": (
        canary(annotations=PAUSE),
        against(Measure.LATENCY),
        ("RolledBack", "Slow", 0, OLD),
    ),
    "slow with all requests": (
        canary(ALL, ready=2, traffic=to("new")),
        against(Measure.LATENCY),
        ("RolledBack", "Slow", 2, OLD),
    ),
    "dead with all requests": (
        canary(ALL, ready=0, traffic=to("new")),
        WAIT,
        ("RolledBack", "Lost", 2, OLD),
    ),
    "crash loop": (canary(new={"restarts": 3}), WAIT, ("RolledBack", "CrashLoop", 0, OLD)),
    "out of memory": (
        canary(new={"restarts": 3, "trouble": Trouble("OutOfMemory", "too much")}),  # type: ignore[arg-type]
        WAIT,
        ("RolledBack", "OutOfMemory", 0, OLD),
    ),
    "few restarts": (canary(new={"restarts": 2}), WAIT, ("Analysing", "Analysing", 0, AT_5)),
    "not ready in time": (
        canary(rollout("Starting", progress_at=ago(600)), ready=0, traffic=to("old")),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 0, OLD),
    ),
    "one more pod got ready just in time": (
        canary(rollout("Starting", progress_at=ago(600)), ready=2, traffic=to("old"), replicas=60, old=60),
        WAIT,
        ("Starting", "Starting", 0, OLD),
    ),
    "the same pod as before is no progress": (
        canary(
            rollout("Starting", progress_at=ago(600), high_water=2),
            ready=2,
            traffic=to("old"),
            replicas=60,
            old=60,
        ),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 0, OLD),
    ),
    "no room": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}),
        WAIT,
        ("Starting", "Unschedulable", 0, OLD),
    ),
    "no room for far too long": (
        canary(
            rollout("Starting", progress_at=ago(9000)),
            ready=0,
            traffic=to("old"),
            new={"trouble": NO_QUOTA},
        ),
        WAIT,
        ("Starting", "QuotaExceeded", 0, OLD),
    ),
    "no room, and it hangs besides": (
        canary(
            rollout("Starting", progress_at=ago(9000)),
            ready=0,
            traffic=to("old"),
            new={"trouble": Trouble(Reason.CRASH_LOOP, "it ended")},
        ),
        WAIT,
        ("RolledBack", "CrashLoop", 0, OLD),
    ),
    "room came late: it has its time to start": (
        canary(
            rollout("Starting", progress_at=ago(9000), no_room_since=ago(8990)), ready=0, traffic=to("old")
        ),
        WAIT,
        ("Starting", "Starting", 0, OLD),
    ),
    "room came, and then it took too long": (
        canary(rollout("Starting", progress_at=ago(600)), ready=0, traffic=to("old")),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 0, OLD),
    ),
    "no room for the next step's pods": (
        canary(
            SECOND.model_copy(update={"progress_at": ago(9000)}),
            ready=1,
            replicas=4,
            new={"trouble": NO_NODE},
        ),
        WAIT,
        ("Analysing", "Unschedulable", 1, AT_5),
    ),
    "no room for a pod that it can do without": (
        canary(rollout(weight=5, step_started_at=ago(60)), new={"trouble": NO_NODE}),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "no room, and it is paused": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}, annotations=PAUSE),
        WAIT,
        ("Paused", "Paused", 0, OLD),
    ),
    "no room, and somebody promotes it": (
        canary(annotations=PROMOTE, new={"trouble": NO_NODE}),
        WAIT,
        ("Promoting", "PromotedByHand", 2, AT_5),
    ),
    "no room, and somebody aborts it": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}, annotations=ABORT),
        WAIT,
        ("RolledBack", "AbortedByHand", 0, OLD),
    ),
    "slow to start, but it has its weight": (
        canary(rollout(weight=5, progress_at=ago(9000), step_started_at=ago(40))),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
}


@pytest.mark.parametrize(("now", "verdict", "expected"), STEPS.values(), ids=STEPS)
def test_canary(now: Situation, verdict: Verdict, expected: tuple[str, str, int, dict[str, int]]) -> None:
    assert told(now, verdict) == expected


@pytest.mark.parametrize(("now", "verdict"), [row[:2] for row in STEPS.values()], ids=STEPS)
def test_the_base_keeps_its_pods_until_the_promotion(now: Situation, verdict: Verdict) -> None:
    step = step_of(now, verdict)
    assert step.rollout is not None
    assert (step.fleet.get("old") == now.pods("old")) is (step.rollout.state != "Promoted")
    assert (step.marking.stable == "new") is (step.rollout.state == "Promoted")
    assert (step.marking.rejection is not None) is (step.rollout.state == "RolledBack")


BASES: dict[str, tuple[Situation, tuple[str | None, str | None]]] = {
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
def test_who_is_who(now: Situation, expected: tuple[str | None, str | None]) -> None:
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
        stored=LOST.model_copy(update={"progress_at": ago(since)}),
    )
    assert roles(now).base == base


RECREATE = {"strategy": "recreate"}
EXCHANGES: dict[str, tuple[Situation, dict[str, int], dict[str, int]]] = {
    "weight goes first": (
        situation({"old": state(2, replicas=2, pods=2)}, to("old"), spec=RECREATE, acknowledged=True),
        {},
        {"old": 2},
    ),
    "no weights are known: that nobody is to serve must be said": (
        situation({"old": state(2, replicas=2, pods=2)}, None, spec=RECREATE),
        {},
        {"old": 2},
    ),
    "then the pods": (
        situation({"old": state(2, replicas=2, pods=2)}, to(), spec=RECREATE, acknowledged=True),
        {},
        {"old": 0},
    ),
    "until the last one has ended": (
        situation({"old": state(0, pods=1)}, to(), spec=RECREATE, acknowledged=True),
        {},
        {"old": 0},
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
def test_recreate(now: Situation, weights: dict[str, int], fleet: dict[str, int]) -> None:
    step = step_of(now)
    assert step.flow.traffic is not None
    assert {backend.revision: backend.weight for backend in step.flow.traffic.backends} == weights
    assert step.fleet == fleet


WAKES: dict[str, tuple[Situation, Verdict, int | None]] = {
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
        canary(ALL.model_copy(update={"step_started_at": ago(30)}), ready=2, traffic=to("new")),
        WAIT,
        None,
    ),
    "nothing, after a rollback": (canary(annotations=ABORT), WAIT, None),
}


@pytest.mark.parametrize(("now", "verdict", "seconds"), WAKES.values(), ids=WAKES)
def test_it_wakes_for_the_next_limit(now: Situation, verdict: Verdict, seconds: int | None) -> None:
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
