"""One look at a rollout: from what exists to weights, pods, marks and a message. Pure. From top to bottom:

| what is decided | where | result |
|---|---|---|
| which revision is stable, which one is the candidate | `roles.py`, `begin` | `Roles`, `RolloutProgress` |
| the step of the plan, its deadline, a manual promotion | `_prepared` | `RolloutProgress` |
| whether the candidate is rejected | `rejections.py` | `Rejection` |
| traffic, and replicas of both revisions | `placement.py` | `RolloutStep` |
| when the step began | `steps.observed` | its times |
| the next state, its reason and its message | `states.py` | `Transition` |
| what holds for every step | `completion.py` | `RolloutStep` |

Order everywhere: ready endpoints, then weight, then shrink. The states of a rollout from a base to a
candidate:

| state | weight of the candidate | goes on when | to |
|---|---|---|---|
| Pending | 0 | no other canary is left | Starting |
| Starting | 0 | its first pods are ready, and its requests will be counted | Analysing, or Promoting |
| Analysing | that of the step | the step has passed | the next step; behind the last one Promoting |
| Promoting | 100, or what its ready pods carry | `scaleDownDelay` is over, no breach suspected | Promoted |
| Paused | as it was | the pause ends, or the action `promote` is there | what it was |
| any of these | what the base cannot carry (`weights.py`) | a rule of `rejections.py` holds | RolledBack |

The base keeps all its pods until Promoted, unless the candidate's replace them (`in_place.py`): until
then a return takes no start. What ends a rollout at once: a new spec (a new rollout begins, its candidate
Pending until the old one has gone), the base's own spec (Promoted), `stopped`.
"""

from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import ABORT_ANNOTATION, PROMOTE_ANNOTATION, RETRY_ANNOTATION
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import RolloutState
from tailbound.judge.analysis import Verdict
from tailbound.rollout import deadline, messages, placement, plan, rollback, states, steady_state, steps
from tailbound.rollout.completion import completed
from tailbound.rollout.model import Marking, RolloutInput, RolloutStep
from tailbound.rollout.placement import Placement
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.rejections import rejection_of
from tailbound.rollout.roles import Roles, roles
from tailbound.rollout.weights import weight_of


def begin(given: RolloutInput) -> tuple[Roles, RolloutProgress | None]:
    """Who is who, and the rollout between them: the stored one if it is between the same, else a new one."""
    who = roles(given)
    if who.candidate is None or who.base is None or given.stopped:
        return who, None
    stored, between = given.stored, (who.candidate, who.base)
    if stored is not None and (stored.revision, stored.from_revision) == between and not stored.is_over:
        return who, stored
    return who, RolloutProgress(
        state=RolloutState.PENDING,
        revision=who.candidate,
        from_revision=who.base,
        started_at=given.time,
    )


def advance(
    given: RolloutInput, who: Roles, rollout: RolloutProgress | None, verdict: Verdict
) -> RolloutStep:
    """The next step; `who` and `rollout` come from `begin`."""
    if given.stopped:
        step = steady_state.stopped(given, who)
    elif who.back is not None:
        step = rollback.returning(given, who.back)
    elif rollout is None or who.base is None or who.candidate is None:
        step = steady_state.serving(given, who)
    else:
        step = _roll(given, who, rollout, verdict)
    return completed(given, who, step)


def _roll(given: RolloutInput, who: Roles, begun: RolloutProgress, verdict: Verdict) -> RolloutStep:
    """A rollout from a base to a candidate is under way."""
    if given.actions.revision(ABORT_ANNOTATION) == begun.revision:
        return _rolled_back(given, who, begun, _aborted(given, begun))
    rollout = _prepared(given, begun)
    rejection = rejection_of(given, rollout, verdict)
    if rejection is not None:
        return _rolled_back(given, who, rollout, rejection)
    rollout = _promoted_manually(given, rollout)
    placed = placement.placed(given, rollout, counting=verdict.counting)
    step = placed.step if placed.held_up else _entered(given, placed, verdict)
    other_weight = 0 < begun.step_weight != rollout.step_weight and not placed.held_up
    return replace(
        step,
        marking=_retried(step.marking, who),
        wake=steps.wake(given, step, verdict),
        next_step=step.next_step or other_weight,
    )


def _prepared(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout at the step that it is at by now, with its deadline as far as that has run."""
    rollout = steps.planned(given, rollout)
    return steps.pods_counted(given, rollout) if rollout.progress_at is not None else rollout


def _promoted_manually(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout with all requests as its step, if the action `promote` asks for that."""
    asked = given.actions.revision(PROMOTE_ANNOTATION) == rollout.revision
    if not asked or plan.promoted_manually(rollout):
        return rollout
    return steps.promoting(given, rollout, Reason.PROMOTED_MANUALLY)


def _entered(given: RolloutInput, placed: Placement, verdict: Verdict) -> RolloutStep:
    """The step in its next state: one that was passed makes way for the following one."""
    step = placed.step
    assert step.rollout is not None, "a rollout is under way"
    rollout = steps.observed(given, step.rollout, step.flow)
    found = states.transition(states.Look(given, rollout, step.flow, verdict))
    message = f"{found.message}; {placed.refused.message}" if placed.refused is not None else found.message
    rollout = (found.following or rollout).at(found.state, found.reason, message)
    if found.state is RolloutState.PROMOTED:
        return _promoted(given, step, rollout)
    return replace(step, rollout=rollout, next_step=found.following is not None)


def _promoted(given: RolloutInput, step: RolloutStep, rollout: RolloutProgress) -> RolloutStep:
    """The candidate is the stable revision from now on, and alone."""
    name, by = rollout.revision, given.actions.by if plan.promoted_manually(rollout) else None
    return replace(
        step,
        rollout=deadline.over(rollout),
        stable=name,
        candidate=None,
        fleet={name: given.pods(name)},
        marking=Marking(name, by, handled=given.actions.asked(name)),
        poll=False,
    )


def _aborted(given: RolloutInput, rollout: RolloutProgress) -> Rejection:
    """The rejection of a candidate that the action `abort` names."""
    by = given.actions.by
    return Rejection(rollout.revision, Reason.ABORTED_MANUALLY, messages.aborted(by), by)


def _rolled_back(
    given: RolloutInput, who: Roles, rollout: RolloutProgress, rejection: Rejection
) -> RolloutStep:
    """The candidate's weight goes to the base. `again.py` says when the candidate is tried again."""
    step = steady_state.drop_candidate(given, who.base, frozenset({rollout.revision}))
    ended = rollout.at(RolloutState.ROLLED_BACK, rejection.reason, rejection.message)
    ended = replace(deadline.over(ended), weight=weight_of(step.flow.traffic, rollout.revision))
    marking = replace(step.marking, rejection=rejection, handled=given.actions.asked(rollout.revision))
    return replace(step, rollout=ended, marking=marking, rejection=rejection)


def _retried(marking: Marking, who: Roles) -> Marking:
    """Other annotations count as acted on once the rollout is over: a lost status may begin it again."""
    if not who.retried:
        return marking
    handled = marking.handled if RETRY_ANNOTATION in marking.handled else (*marking.handled, RETRY_ANNOTATION)
    return replace(marking, cleared=who.candidate, handled=handled)
