"""Rows of a canary in trouble: slow, failing, dead, late or without capacity."""

from dataclasses import replace
from typing import Any

from tailbound.api.conditions import Reason
from tailbound.judge.verdict import Measure
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.problem import Problem

from tests.unit.rollout.canaries import (
    ABORT,
    ALL,
    AT_5,
    AT_50,
    LAST,
    NEW,
    NO_NODE,
    NO_QUOTA,
    OLD,
    OVER,
    PASS,
    PAUSE,
    PROMOTE,
    SECOND,
    SECOND_OBSERVED,
    STARTED,
    WAIT,
    Row,
    against,
    canary,
)
from tests.unit.rollout.inputs import ago, rollout, to

FALLEN = replace(LAST, high_water=2)
SECOND_FULL = replace(SECOND_OBSERVED, high_water=2)
TROUBLE: dict[str, Row] = {
    "slow": (canary(), against(Measure.LATENCY), ("RolledBack", "Slow", 0, OLD)),
    "failing": (canary(), against(Measure.ERRORS), ("RolledBack", "Failing", 0, OLD)),
    "slow-while-paused": (
        canary(annotations=PAUSE),
        against(Measure.LATENCY),
        ("RolledBack", "Slow", 0, OLD),
    ),
    "slow-with-all-requests": (
        canary(ALL, ready=2, traffic=to("new")),
        against(Measure.LATENCY),
        ("RolledBack", "Slow", 2, OLD),
    ),
    "dead-with-all-requests": (
        canary(ALL, ready=0, traffic=to("new")),
        WAIT,
        ("RolledBack", "Lost", 2, OLD),
    ),
    "some-dead-with-all-requests-the-old-ones-take-back-what-is-not-carried": (
        canary(OVER, ready=1, traffic=to("new")),
        WAIT,
        ("Promoting", "RollingOut", 2, AT_50),
    ),
    "and-are-back": (
        canary(FALLEN, ready=2, traffic=to(old=50, new=50)),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "and-do-not-come-back": (
        canary(replace(FALLEN, progress_at=ago(600)), traffic=to(old=50, new=50)),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 2, OLD),
    ),
    "and-then-the-others-die": (
        canary(FALLEN, ready=0, traffic=to(old=50, new=50)),
        WAIT,
        ("RolledBack", "Lost", 2, OLD),
    ),
    "asked-for-more-pods-with-all-requests-and-they-do-not-come": (
        canary(
            replace(OVER, step_started_at=None, progress_at=ago(600)),
            ready=2,
            traffic=to("new"),
            replicas=4,
            old=4,
        ),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 2, OLD),
    ),
    "some-dead-at-a-step-what-the-others-carry": (
        canary(SECOND_FULL, ready=1, replicas=4, old=4, traffic=to(old=50, new=50)),
        PASS,
        ("Analysing", "RollingOut", 1, {"old": 75, "new": 25}),
    ),
    "some-dead-at-a-step-and-they-do-not-come-back": (
        canary(
            replace(SECOND_FULL, weight=25, progress_at=ago(600)),
            ready=1,
            replicas=4,
            old=4,
            traffic=to(old=75, new=25),
        ),
        PASS,
        ("RolledBack", "DeadlineExceeded", 1, OLD),
    ),
    "crash-loop": (canary(new={"restarts": 3}), WAIT, ("RolledBack", "CrashLoop", 0, OLD)),
    "out-of-memory": (
        canary(new={"restarts": 3, "trouble": Problem(Reason.OUT_OF_MEMORY, "too much")}),
        WAIT,
        ("RolledBack", "OutOfMemory", 0, OLD),
    ),
    "few-restarts": (canary(new={"restarts": 2}), WAIT, ("Analysing", "Analysing", 0, AT_5)),
    "no-capacity": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}),
        WAIT,
        ("Starting", "Unschedulable", 0, OLD),
    ),
    "a-pod-is-missing-for-too-long-at-a-weight-that-it-has": (
        canary(
            replace(SECOND_OBSERVED, progress_at=ago(600)),
            traffic=to(old=50, new=50),
            replicas=4,
            old=4,
        ),
        WAIT,
        ("RolledBack", "DeadlineExceeded", 1, OLD),
    ),
    "no-capacity-for-the-next-step-s-pods": (
        canary(
            replace(SECOND, progress_at=ago(9000)),
            ready=1,
            replicas=4,
            new={"trouble": NO_NODE},
        ),
        WAIT,
        ("Analysing", "Unschedulable", 1, AT_5),
    ),
    "no-capacity-for-a-pod-that-it-can-do-without": (
        canary(rollout(weight=5, step_started_at=ago(60)), new={"trouble": NO_NODE}),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "no-capacity-and-it-is-paused": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}, annotations=PAUSE),
        WAIT,
        ("Paused", "Paused", 0, OLD),
    ),
    "no-capacity-and-somebody-promotes-it": (
        canary(annotations=PROMOTE, new={"trouble": NO_NODE}),
        WAIT,
        ("Promoting", "PromotedManually", 2, AT_50),
    ),
    "no-capacity-and-somebody-aborts-it": (
        canary(STARTED, ready=0, traffic=to("old"), new={"trouble": NO_NODE}, annotations=ABORT),
        WAIT,
        ("RolledBack", "AbortedManually", 0, OLD),
    ),
    "slow-to-start-but-it-has-its-weight": (
        canary(rollout(weight=5, progress_at=ago(9000), step_started_at=ago(40))),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
}


def starting(
    seconds: float,
    *,
    ready: int = 0,
    of: int = 2,
    running: int = 0,
    trouble: Problem | None = None,
    **stored: Any,
) -> RolloutInput:
    """A canary without requests, whose newest ready pod, or whose start, is so many seconds ago."""
    return canary(
        rollout("Starting", progress_at=ago(seconds), **stored),
        ready=ready,
        traffic=to("old"),
        replicas=of,
        old=of,
        new={"trouble": trouble, "running": running},
    )


CRASHED = Problem(Reason.CRASH_LOOP, "it ended")
LATE_CAPACITY: dict[str, Any] = {"still_since": ago(8990), "no_capacity_since": ago(8990), "high_water": 0}
STARTS: dict[str, tuple[RolloutInput, str, str]] = {
    "not-ready-in-time": (starting(600), "RolledBack", "DeadlineExceeded"),
    "one-more-pod-just-in-time": (starting(600, ready=2, of=60), "Starting", "Starting"),
    "same-pod-is-no-progress": (
        starting(600, ready=2, of=60, high_water=2),
        "RolledBack",
        "DeadlineExceeded",
    ),
    "no-capacity-for-far-too-long": (starting(9000, trouble=NO_QUOTA), "Starting", "QuotaExceeded"),
    "no-capacity-for-one-and-another-hangs": (
        starting(600, trouble=NO_NODE, running=1),
        "RolledBack",
        "DeadlineExceeded",
    ),
    "no-capacity-and-it-crashes": (starting(9000, trouble=CRASHED), "RolledBack", "CrashLoop"),
    "capacity-came-late": (starting(9000, **LATE_CAPACITY), "Starting", "Starting"),
}
TROUBLE |= {name: (now, WAIT, (state, reason, 0, OLD)) for name, (now, state, reason) in STARTS.items()}
