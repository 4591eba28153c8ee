"""When a candidate is rejected. The first rule that holds (`RULES`):

| rule | what holds | reason |
|---|---|---|
| `restarted` | a container was restarted `restartLimit` times | that of its pods, or CrashLoop |
| `evicted` | `restartLimit` of its pods were evicted for what they used themselves | Evicted |
| `lost` | it had all requests, observed, or part of them since then, and no endpoint is ready | Lost |
| `other_signature` | its model has other inputs or outputs, and `signature` rejects that | SignatureChanged |
| `without_room` | it returns to a preferred hardware class, and pods found no node for long | Unschedulable |
| `late` | no further pod got ready for `progressDeadline` | that of its pods, or DeadlineExceeded |
| `breaches_objective` | the evidence about an objective says so | Slow or Failing |
| `breaches_metric` | the evidence about a metric says so | MetricBreached |
| `never_began` | the step did not begin in `maxStepTime`, `onInconclusive` is rollback | Inconclusive |
| `inconclusive` | `maxStepTime` is over without a pass, `onInconclusive` is rollback | Inconclusive |

`deadline.py` says when the deadline runs: pods that lack capacity say nothing about the revision.
They hold during pauses and manual waits as well. The action `abort` comes before all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import OnInconclusive, RolloutState, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.judge.verdict import Measure, Outcome
from tailbound.rollout import messages, plan, steps
from tailbound.rollout.deadline import overdue
from tailbound.rollout.model import RevisionState, RolloutInput
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.signature import SignatureComparison, listed
from tailbound.rollout.sizing import ALL

_REASONS: Final = {Measure.LATENCY: Reason.SLOW, Measure.ERRORS: Reason.FAILING}


@dataclass(frozen=True)
class Suspect:
    """A candidate, and what may speak against it."""

    given: RolloutInput
    rollout: RolloutProgress
    verdict: Verdict

    @property
    def name(self) -> str:
        """The candidate."""
        return self.rollout.revision

    @property
    def state(self) -> RevisionState:
        """Its pods."""
        return self.given.of(self.name)

    @property
    def trouble(self) -> Problem | None:
        """What its pods are stuck at, or what of them is refused."""
        return self.state.trouble or steps.hindered(self.given, self.rollout) or self.rollout.refused

    @property
    def rolls_back_inconclusive(self) -> bool:
        """A step without a verdict rejects it."""
        rolls_back = self.given.spec.on_inconclusive is OnInconclusive.ROLLBACK
        return rolls_back and not steps.paused(self.given, self.rollout)


def rejection_of(given: RolloutInput, rollout: RolloutProgress, verdict: Verdict) -> Rejection | None:
    """Why the candidate is rejected, if it is."""
    suspect = Suspect(given, rollout, verdict)
    return next((found for rule in RULES if (found := rule(suspect)) is not None), None)


def restarted(suspect: Suspect) -> Rejection | None:
    """A container was restarted `restartLimit` times."""
    state, trouble = suspect.state, suspect.trouble
    if state.restarts < suspect.given.spec.restart_limit:
        return None
    reason = trouble.reason if trouble is not None else Reason.CRASH_LOOP
    return Rejection(suspect.name, reason, messages.restarts(state.restarts, trouble))


def evicted(suspect: Suspect) -> Rejection | None:
    """`restartLimit` of its pods were evicted within minutes for what they used themselves."""
    state = suspect.state
    if state.over_limit < suspect.given.spec.restart_limit:
        return None
    return Rejection(suspect.name, Reason.EVICTED, messages.evictions(state.over_limit, suspect.trouble))


def lost(suspect: Suspect) -> Rejection | None:
    """The candidate took over requests, and has no ready endpoint any more."""
    given, rollout = suspect.given, suspect.rollout
    all_of_it = rollout.weight == ALL and rollout.step_started_at is not None
    part_of_it = 0 < rollout.weight < ALL and rollout.state is RolloutState.PROMOTING
    served = plan.is_last(rollout) and (all_of_it or part_of_it)
    if not served or suspect.state.ready or given.spec.strategy is Strategy.RECREATE:
        return None
    return Rejection(suspect.name, Reason.LOST, messages.lost())


def other_signature(suspect: Suspect) -> Rejection | None:
    """The inputs or outputs of its model differ from those of stable's as `signature` does not allow it."""
    found, policy = suspect.given.signature, suspect.given.spec.signature
    refused = found.refused(policy) if isinstance(found, SignatureComparison) else ()
    if not refused:
        return None
    retry = suspect.given.commands.tailbound("retry")
    message = messages.other_signature(listed(refused), policy, retry)
    return Rejection(suspect.name, Reason.SIGNATURE_CHANGED, message)


def without_room(suspect: Suspect) -> Rejection | None:
    """Pods of a return to a preferred hardware class have lacked capacity for as long as they may."""
    longest, since = suspect.state.gives_up_after, suspect.rollout.no_capacity_since
    if longest is None or since is None or suspect.given.time < since + longest.timedelta:
        return None
    why = suspect.trouble.message if suspect.trouble is not None else "its pods lack capacity"
    return Rejection(suspect.name, Reason.UNSCHEDULABLE, messages.without_room(longest, why))


def late(suspect: Suspect) -> Rejection | None:
    """No further pod got ready for `progressDeadline`."""
    deadline, state, trouble = suspect.given.spec.progress_deadline, suspect.state, suspect.trouble
    if not overdue(suspect.rollout, deadline, suspect.given.time):
        return None
    why = trouble if trouble is not None and not (trouble.lacks_capacity and state.running) else None
    reason = why.reason if why is not None else Reason.DEADLINE_EXCEEDED
    return Rejection(suspect.name, reason, messages.overdue(deadline, why, state.unready))


def breaches_objective(suspect: Suspect) -> Rejection | None:
    """The candidate is proven to break the SLA, or to be worse than stable."""
    verdict = suspect.verdict
    found = next((each for each in verdict.findings if each.outcome is Outcome.ROLL_BACK), None)
    if found is None:
        return None
    measure = found.objective.measure
    message = messages.breach(found, verdict.counted(measure))
    return Rejection(suspect.name, _REASONS[measure], message)


def breaches_metric(suspect: Suspect) -> Rejection | None:
    """The candidate is proven to break the bound of a metric, or to be worse than stable by it."""
    found = next((each for each in suspect.verdict.metrics if each.outcome is Outcome.ROLL_BACK), None)
    if found is None:
        return None
    return Rejection(suspect.name, Reason.METRIC_BREACHED, messages.breached(found))


def never_began(suspect: Suspect) -> Rejection | None:
    """The step did not begin within `maxStepTime`, and `onInconclusive` is rollback."""
    given, rollout = suspect.given, suspect.rollout
    if not suspect.rolls_back_inconclusive or not steps.never_began(given, rollout):
        return None
    message = messages.never_began(rollout, given.spec.max_step_time)
    return Rejection(suspect.name, Reason.INCONCLUSIVE, message)


def inconclusive(suspect: Suspect) -> Rejection | None:
    """The step has lasted for `maxStepTime` without a pass, and `onInconclusive` is rollback."""
    given, rollout, verdict = suspect.given, suspect.rollout, suspect.verdict
    began, most = rollout.step_started_at, given.spec.max_step_time.timedelta
    over = began is not None and not plan.is_last(rollout) and given.time >= began + most
    passes = verdict.unread_since is None and verdict.passes(given.time, given.timeout)
    if not suspect.rolls_back_inconclusive or not over or passes:
        return None
    return Rejection(suspect.name, Reason.INCONCLUSIVE, messages.inconclusive(rollout, given.spec, verdict))


RULES: Final[tuple[Callable[[Suspect], Rejection | None], ...]] = (
    restarted,
    evicted,
    lost,
    other_signature,
    without_room,
    late,
    breaches_objective,
    breaches_metric,
    never_began,
    inconclusive,
)
"""The rows of the table above, in its order."""
