"""Situations of a canary from `old` to `new`, two pods each, and the verdicts on it."""

from dataclasses import replace
from typing import Any

from tailbound.api.conditions import Reason
from tailbound.judge.analysis import Verdict
from tailbound.judge.evidence import Tally
from tailbound.judge.metrics import MetricFinding
from tailbound.judge.verdict import (
    EValues,
    Finding,
    Measure,
    Outcome,
    Thresholds,
    error_objective,
    latency_objective,
)
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress

from tests.unit.judge.metric_answers import metric
from tests.unit.rollout.inputs import ago, rollout, situation, state, step_of, to

CANARY = {"strategy": "canary", "steps": [{"weight": 5}, {"weight": 50}]}
SPLIT = to(old=95, new=5)
WAIT, HOLD = Verdict(Outcome.WAIT), Verdict(Outcome.HOLD)
PASS = Verdict(Outcome.PASS, passed_at=ago(5))
LIMITS = Thresholds(absolute=5, late=6, relative=5, passing=3)


def against(measure: Measure) -> Verdict:
    """The evidence condemns it by this measure."""
    objective = latency_objective(0.99) if measure is Measure.LATENCY else error_objective(0.01)
    numbers = EValues(absolute=7.0, late=0.0, relative=8.0, improves=0.0, passing=0.0, enough=True)
    finding = Finding(objective, Outcome.ROLL_BACK, numbers, LIMITS)
    return Verdict(Outcome.ROLL_BACK, (finding,), {measure: Tally(100, 20)})


def unread(seconds: float) -> Verdict:
    """It has passed, but a gateway is unread since so many seconds."""
    return Verdict(Outcome.PASS, unread_since=ago(seconds), unread_why="g is unread", passed_at=ago(90))


def unsampled() -> Verdict:
    """Nothing speaks against it, but one metric has not had a sample."""
    numbers = EValues(absolute=0.0, late=0.0, relative=0.0, improves=0.0, passing=0.0, enough=False)
    finding = MetricFinding(metric(), Outcome.WAIT, 0, 0, numbers, LIMITS)
    return Verdict(Outcome.WAIT, metrics=(finding,))


def canary(
    stored: RolloutProgress | None = None,
    *,
    ready: int = 1,
    old: int = 2,
    traffic: Any = SPLIT,
    spec: dict[str, Any] | None = None,
    new: dict[str, Any] | None = None,
    **fields: Any,
) -> RolloutInput:
    """At the first step of a canary, long observed."""
    at_step = rollout(weight=5, step_started_at=ago(60))
    return situation(
        {"old": state(old, promoted_at="2026"), "new": state(ready, number=2, **(new or {}))},
        traffic,
        spec={**CANARY, **(spec or {})},
        stored=stored or at_step,
        **{"acknowledged": True, **fields},
    )


def told(now: RolloutInput, verdict: Verdict = WAIT) -> tuple[str, str, int, dict[str, int]]:
    """State, reason, step and weights after one step."""
    step = step_of(now, verdict)
    assert step.rollout is not None
    assert step.flow.traffic is not None
    weights = {backend.revision: backend.weight for backend in step.flow.traffic.backends}
    return step.rollout.state, step.rollout.reason, step.rollout.step, weights


AT_5, AT_50, OLD, NEW = {"old": 95, "new": 5}, {"old": 50, "new": 50}, {"old": 100}, {"new": 100}
NO_NODE = Problem(Reason.UNSCHEDULABLE, "pod p has no node")
NO_QUOTA = Problem(Reason.QUOTA_EXCEEDED, "exceeded quota")
STARTED = rollout("Starting", weight=0)
SECOND = rollout(step=1, step_weight=50, passed=5, weight=5, progress_at=ago(10))
SECOND_OBSERVED = rollout(step=1, step_weight=50, passed=5, weight=50, step_started_at=ago(60))
LAST = rollout("Promoting", step=2, step_weight=100, passed=50, weight=50, progress_at=ago(10))
ALL = rollout("Promoting", step=2, step_weight=100, passed=50, weight=100, step_started_at=ago(10))
OVER = replace(ALL, step_started_at=ago(30), high_water=2)
MANUAL = {"promotion": "manual"}
PAUSE, PROMOTE, ABORT = {"pause": "new"}, {"promote": "new"}, {"abort": "new"}

Row = tuple[RolloutInput, Verdict, tuple[str, str, int, dict[str, int]]]
"""What is, the verdict, and what `told` tells after one step."""
