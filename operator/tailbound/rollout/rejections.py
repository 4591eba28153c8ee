"""When a candidate is condemned. The first rule that holds:

| what holds | reason |
|---|---|
| a container was restarted `restartLimit` times | what its pods are stuck at, or CrashLoop |
| it had all requests, observed, or part of them since then, and now not one ready endpoint | Lost |
| no further pod got ready for `progressDeadline` | what its pods are stuck at, or DeadlineExceeded |
| the evidence says so | Slow, Failing or MetricBreached |
| `maxStepTime` is over, or the step did not begin in it, and `onInconclusive` is rollback | Inconclusive |

`deadline.py` says when the deadline runs: pods that find no room say nothing about the revision.
They hold during pauses and manual waits as well. The action `abort` comes before all of them.
"""

from collections.abc import Iterator

from tailbound.api.conditions import Reason
from tailbound.api.rollout import OnInconclusive, RolloutState, RolloutStatus, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.judge.verdict import Measure, Outcome
from tailbound.rollout import messages, plan, refused_writes, steps
from tailbound.rollout.deadline import overdue
from tailbound.rollout.model import Rejection, RolloutInput
from tailbound.rollout.sizing import ALL

_WORDS = {Measure.LATENCY: Reason.SLOW, Measure.ERRORS: Reason.FAILING}


def rejection_of(now: RolloutInput, rollout: RolloutStatus, verdict: Verdict) -> Rejection | None:
    """Why the candidate is rejected, if it is."""
    return next(_rules(now, rollout, verdict), None)


def _rules(now: RolloutInput, rollout: RolloutStatus, verdict: Verdict) -> Iterator[Rejection]:
    name, spec = rollout.revision, now.spec
    state = now.of(name)
    trouble = state.trouble or steps.hindered(now, rollout) or refused_writes.last(rollout)
    if state.restarts >= spec.restart_limit:
        reason = trouble.reason if trouble is not None else Reason.CRASH_LOOP
        yield Rejection(name, reason, messages.restarts(state.restarts, trouble))
    all_of_it = rollout.weight == ALL and rollout.step_started_at is not None
    part_of_it = 0 < rollout.weight < ALL and rollout.state is RolloutState.PROMOTING
    if (
        (all_of_it or part_of_it)
        and plan.is_last(rollout)
        and not state.ready
        and spec.strategy is not Strategy.RECREATE
    ):
        yield Rejection(name, Reason.LOST, messages.lost())
    if overdue(rollout, spec.progress_deadline, now.now):
        why = trouble if trouble is not None and not (trouble.lacks_room and state.running) else None
        reason = why.reason if why is not None else Reason.DEADLINE_EXCEEDED
        yield Rejection(name, reason, messages.overdue(spec.progress_deadline, why, state.unready))
    for finding in verdict.findings:
        if finding.outcome is Outcome.ROLL_BACK:
            message = messages.condemned(finding, verdict.counted(finding.objective.measure))
            yield Rejection(name, _WORDS[finding.objective.measure], message)
    for of_metric in verdict.metrics:
        if of_metric.outcome is Outcome.ROLL_BACK:
            yield Rejection(name, Reason.METRIC_BREACHED, messages.breached(of_metric))
    rolls_back = spec.on_inconclusive is OnInconclusive.ROLLBACK and not steps.paused(now, rollout)
    if rolls_back and steps.never_began(now, rollout):
        yield Rejection(name, Reason.INCONCLUSIVE, messages.never_began(rollout, spec.max_step_time))
    if rolls_back and _inconclusive(now, rollout, verdict):
        yield Rejection(name, Reason.INCONCLUSIVE, messages.inconclusive(rollout, spec, verdict))


def _inconclusive(now: RolloutInput, rollout: RolloutStatus, verdict: Verdict) -> bool:
    began = rollout.step_started_at
    return (
        began is not None
        and not plan.is_last(rollout)
        and now.now >= began + now.spec.max_step_time.timedelta
        and (verdict.unread_since is not None or not verdict.passes(now.now, now.timeout))
    )
