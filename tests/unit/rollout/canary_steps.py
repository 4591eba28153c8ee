"""Rows of a canary on its way: endpoints, weights, verdicts, time and actions."""

from dataclasses import replace

from tailbound.judge.analysis import Verdict
from tailbound.judge.verdict import Outcome

from tests.unit.rollout.canaries import (
    ABORT,
    ALL,
    AT_5,
    AT_50,
    HOLD,
    LAST,
    MANUAL,
    NEW,
    NO_NODE,
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
    canary,
    unread,
    unsampled,
)
from tests.unit.rollout.inputs import ago, rollout, to

STEPS: dict[str, Row] = {
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
        ("Promoting", "PromotedManually", 2, NEW),
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
    "no-verdict-in-time-and-a-metric-without-a-sample": (
        canary(rollout(weight=5, step_started_at=ago(1800)), spec={"onInconclusive": "promote"}),
        unsampled(),
        ("Paused", "NoData", 0, AT_5),
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
            rollout("Paused", reason="AwaitingPromotion", step=2, step_weight=100, passed=50, weight=50),
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
    "asked for more pods with all requests: the old ones are kept until they are ready": (
        canary(OVER, ready=2, traffic=to("new"), replicas=4, old=4),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "the same where there is capacity only without the old ones": (
        canary(OVER, ready=2, traffic=to("new"), replicas=4, old=4, new={"trouble": NO_NODE}),
        WAIT,
        ("Promoted", "Promoted", 2, NEW),
    ),
    "the old ones are kept": (
        canary(ALL, ready=2, traffic=to("new")),
        WAIT,
        ("Promoting", "RollingOut", 2, NEW),
    ),
    "long enough": (
        canary(OVER, ready=2, traffic=to("new")),
        WAIT,
        ("Promoted", "Promoted", 2, NEW),
    ),
    "long enough, but a gateway does not know yet": (
        canary(OVER, ready=2, traffic=to("new"), acknowledged=False),
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
    "promoted manually, pods missing: what the ready ones carry": (
        canary(annotations=PROMOTE),
        WAIT,
        ("Promoting", "PromotedManually", 2, AT_50),
    ),
    "promoted manually": (
        canary(ready=2, annotations=PROMOTE),
        WAIT,
        ("Promoting", "PromotedManually", 2, NEW),
    ),
    "promoted manually beats a pause": (
        canary(ready=2, annotations={**PROMOTE, **PAUSE}),
        WAIT,
        ("Promoting", "PromotedManually", 2, NEW),
    ),
    "promoted manually once": (
        canary(annotations=PROMOTE, handled=("promote",)),
        WAIT,
        ("Analysing", "Analysing", 0, AT_5),
    ),
    "aborted": (canary(annotations=ABORT), PASS, ("RolledBack", "AbortedManually", 0, OLD)),
    "aborted beats promoted": (
        canary(annotations={**ABORT, **PROMOTE}),
        PASS,
        ("RolledBack", "AbortedManually", 0, OLD),
    ),
    "aborted with all requests": (
        canary(ALL, ready=2, traffic=to("new"), annotations=ABORT),
        PASS,
        ("RolledBack", "AbortedManually", 2, OLD),
    ),
}
