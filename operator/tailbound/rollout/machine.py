"""One step of a rollout: from what is to weights, pods, marks and words. Pure.

Order everywhere: ready endpoints, then weight, then shrink. The states of a rollout from a base to a
candidate:

| state | weight of the candidate | goes on when | to |
|---|---|---|---|
| Pending | 0 | no other canary is left | Starting |
| Starting | 0 | its first pods are ready, and its requests will be counted | Analysing, or Promoting |
| Analysing | that of the step | the step has passed (`steps.py`) | the next step; behind the last Promoting |
| Promoting | 100, or what its ready pods carry | `scaleDownDelay` is over, no breach suspected | Promoted |
| Paused | as it was | the pause ends, or the action `promote` is there | what it was |
| any of these | what the base cannot carry (`weights.py`) | a rule of `rejections.py` holds | RolledBack |

The base keeps all its pods until Promoted, unless they make room for the candidate's (`in_place.py`): until
then a return takes no start. What ends a rollout at once: a
new spec (a new rollout begins, its candidate Pending until the old one has gone), the base's own spec
(Promoted), `stopped`.
"""

from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import (
    ABORT_ANNOTATION,
    PAUSE_ANNOTATION,
    PROMOTE_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
)
from tailbound.api.rollout import RolloutState, RolloutStatus, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.rollout import deadline, messages, plan, refused_writes, rollback, room, steady_state, steps
from tailbound.rollout.in_place import needed, places
from tailbound.rollout.model import Marking, PodProblem, Rejection, RolloutInput, RolloutStep, TrafficDecision
from tailbound.rollout.recreate import Exchange, exchange
from tailbound.rollout.refusals import refusal
from tailbound.rollout.rejections import rejection_of
from tailbound.rollout.roles import Roles, roles
from tailbound.rollout.sizing import ALL
from tailbound.rollout.superseded import superseded
from tailbound.rollout.weights import direct, flow, weight_of


def begin(now: RolloutInput) -> tuple[Roles, RolloutStatus | None]:
    """Who is who, and the rollout between them: the stored one if it is between the same, else a new one."""
    who = roles(now)
    if who.candidate is None or who.base is None or now.stopped:
        return who, None
    stored = now.stored
    over = {RolloutState.PROMOTED, RolloutState.ROLLED_BACK}
    if (
        stored is not None
        and (stored.revision, stored.from_revision) == (who.candidate, who.base)
        and stored.state not in over
    ):
        return who, stored
    return who, RolloutStatus(
        state=RolloutState.PENDING,
        revision=who.candidate,
        from_revision=who.base,
        started_at=now.now,
    )


def advance(now: RolloutInput, who: Roles, rollout: RolloutStatus | None, verdict: Verdict) -> RolloutStep:
    """The next step; `who` and `rollout` come from `begin`."""
    if now.stopped:
        step = steady_state.stopped(now, who)
    elif who.back is not None:
        step = rollback.returning(now, who.back)
    elif rollout is None or who.base is None or who.candidate is None:
        step = steady_state.serving(now, who)
    else:
        step = _roll(now, who, rollout, verdict)
    return _complete(now, who, step)


def _complete(now: RolloutInput, who: Roles, step: RolloutStep) -> RolloutStep:
    """What holds for every step.

    What has weight keeps its pods, no request waits for ever, and what was given up is remembered.
    """
    fleet, carries, target = dict(step.fleet), dict(step.carries), step.flow.target
    if target is not None and target not in fleet:
        fleet[target] = now.pods(target)
    for backend in step.flow.traffic.backends if step.flow.traffic is not None else ():
        if backend.weight and backend.revision not in fleet:
            fleet[backend.revision] = now.of(backend.revision).replicas
            carries[backend.revision] = backend.weight
    step = _remembered(now, step)
    serves = now.ready(target) > 0 or not any(state.ready for state in now.revisions.values())
    shrink = step.flow.settled and now.desired is not None and (serves or now.stopped or target is None)
    marking = replace(_with_first(now, who, step), superseded=superseded(now))
    marking = replace(marking, under_way=_under_way(now, who, marking))
    moves = _with_time_to_move(now, step)
    refused = refusal(now, step)
    return replace(moves, fleet=fleet, carries=carries, shrink=shrink, marking=marking, refusal=refused)


def _with_first(now: RolloutInput, who: Roles, step: RolloutStep) -> Marking:
    """A base that serves is the stable revision, where none was before: the spec may be newer than it."""
    marking, base = step.marking, who.base
    first = now.stable is None and marking.stable is None and steady_state.has_all(now, step, base)
    return replace(marking, stable=base) if first and now.of(base).restorable else marking


def _remembered(now: RolloutInput, step: RolloutStep) -> RolloutStep:
    """A rejection that no record holds yet stays in the status, and is to be written."""
    rollout, stored, rejection = step.rollout, now.stored, step.marking.rejection
    if stored is not None and stored.unrecorded and rejection is None:
        rejection = now.of(stored.revision).rejection
    if rollout is None or rollout.state is not RolloutState.ROLLED_BACK or rejection is None:
        return step
    of_it = rejection.revision == rollout.revision
    unrecorded = of_it and (now.marks_refused or not now.of(rollout.revision).recorded)
    marking = replace(step.marking, rejection=rejection)
    return replace(step, marking=marking, rollout=rollout.model_copy(update={"unrecorded": unrecorded}))


def _with_time_to_move(now: RolloutInput, step: RolloutStep) -> RolloutStep:
    """With the time since which requests wait for pods that take them, and a look when that was too long."""
    if step.rollout is None:
        return step
    since = now.stored.moving_since if now.stored is not None else None
    since = (since or now.now) if step.flow.waits else None
    rollout = step.rollout.model_copy(update={"moving_since": since})
    limits = [step.wake] if step.wake is not None else []
    limits += [since + now.spec.progress_deadline.timedelta - now.now] if since is not None else []
    return replace(step, rollout=rollout, wake=min(limits, default=None))


def _under_way(now: RolloutInput, who: Roles, marking: Marking) -> tuple[str, ...]:
    """The actions that are being acted on."""
    actions = (
        (ROLLBACK_ANNOTATION, who.back is not None and who.back.annotation is not None),
        (RETRY_ANNOTATION, who.retried),
        (PAUSE_ANNOTATION, who.candidate is not None and now.actions.pauses(who.candidate)),
    )
    return tuple(action for action, holds in actions if holds and action not in marking.handled)


def _roll(now: RolloutInput, who: Roles, rollout: RolloutStatus, verdict: Verdict) -> RolloutStep:
    candidate, actions = rollout.revision, now.actions
    if actions.revision(ABORT_ANNOTATION) == candidate:
        aborted = Rejection(candidate, Reason.ABORTED_MANUALLY, messages.aborted(actions.by), actions.by)
        return _roll_back(now, who, rollout, aborted)
    before, rollout = rollout, steps.planned(now, rollout)
    if rollout.progress_at is not None:
        rollout = steps.pods_counted(now, rollout)
    rejected = rejection_of(now, rollout, verdict)
    if rejected is not None:
        return _roll_back(now, who, rollout, rejected)
    if actions.revision(PROMOTE_ANNOTATION) == candidate and not plan.promoted_manually(rollout):
        rollout = steps.promoting(now, rollout, Reason.PROMOTED_MANUALLY)
    recreates = now.spec.strategy is Strategy.RECREATE and plan.is_last(rollout)
    hindered = steps.hindered(now, rollout)
    rollout = refused_writes.recorded(
        rollout, hindered or (refused_writes.last(rollout) if recreates else None)
    )
    if hindered is not None and (recreates or now.refused is not None):
        step = _hindered(now, rollout, hindered, recreates=recreates)
        return replace(step, marking=_retried(step.marking, who), wake=steps.wake(now, step, verdict))
    step = _recreate(now, rollout) if recreates else _share(now, rollout, counting=verdict.counting)
    step = _with_refusal(steps.judge(now, steps.observed(now, step), verdict), hindered)
    other_step = step.next_step or 0 < before.step_weight != rollout.step_weight
    marking, wake = _retried(step.marking, who), steps.wake(now, step, verdict)
    return replace(step, marking=marking, wake=wake, next_step=other_step)


def _retried(marking: Marking, who: Roles) -> Marking:
    """Other annotations count as acted on once the rollout is over: a lost status may begin it again."""
    if not who.retried or RETRY_ANNOTATION in marking.handled:
        return marking
    return replace(marking, handled=(*marking.handled, RETRY_ANNOTATION))


def _share(now: RolloutInput, rollout: RolloutStatus, *, counting: bool) -> RolloutStep:
    """The candidate's pods and weight beside those of a base that gives up a place only if it is asked to.

    It gets its first requests only once they will be counted, unless it is promoted manually all the same.
    """
    base, candidate = rollout.from_revision, rollout.revision
    without = steady_state.without(now, base)
    if not now.of(candidate).deployed and _others_linger(now, rollout, without.flow):
        waiting = room.pending(now, rollout)
        return RolloutStep(without.flow, waiting, base, candidate, without.fleet, shrink=False)
    rollout = steps.pods_counted(now, rollout)
    _, carries = steps.wanted(now, rollout)
    pods = steps.pods_needed(now, rollout)
    unseen = not counting and rollout.weight == 0 and not plan.promoted_manually(rollout)
    share = 0 if unseen else steps.share(now, rollout, pods)
    rollout = steps.weighted(now, rollout, share, pods)
    where = flow(now, base, candidate, share, (), waits=not rollout.in_place)
    # While neither can serve, all requests may be with a third one.
    rollout = rollout.model_copy(update={"weight": min(rollout.weight, weight_of(where.traffic, candidate))})
    alone = weight_of(where.traffic, candidate) > share
    fleet = places(now, rollout, needed(now, rollout, ALL, ALL) if alone else pods)
    carried = {candidate: ALL if alone else carries}
    return RolloutStep(where, rollout, base, candidate, fleet, shrink=False, carries=carried, poll=now.judged)


def _with_refusal(step: RolloutStep, refused: PodProblem | None) -> RolloutStep:
    """With what the API server refuses, of a candidate that keeps what it has."""
    if step.rollout is None or refused is None:
        return step
    message = f"{step.rollout.message}; {refused.message}"
    return replace(step, rollout=step.rollout.model_copy(update={"message": message}))


def _hindered(
    now: RolloutInput, rollout: RolloutStatus, refused: PodProblem, *, recreates: bool
) -> RolloutStep:
    """The candidate cannot start, so that nothing makes way for it; its deadline runs."""
    base, candidate = rollout.from_revision, rollout.revision
    if recreates:
        where, fleet = flow(now, base, candidate, 0, ()), {base: now.pods(base)}
    else:
        without = steady_state.without(now, base)
        where, fleet = without.flow, dict(without.fleet)
    if now.of(candidate).deployed:
        fleet[candidate] = now.of(candidate).replicas
    reason = plan.unless_manual(rollout, refused.reason)
    held = messages.told(
        steps.pods_counted(now, rollout), RolloutState.STARTING, reason, messages.refused(rollout, refused)
    )
    return RolloutStep(where, held, base, candidate, fleet, shrink=False)


def _others_linger(now: RolloutInput, rollout: RolloutStatus, without: TrafficDecision) -> bool:
    """An earlier canary is there that a gateway may still send requests to.

    One that serves because the base cannot is not waited for: only the candidate can take its place.
    """
    own = {
        rollout.revision,
        rollout.from_revision,
        without.target if not now.ready(rollout.from_revision) else None,
    }
    others = [name for name, state in now.revisions.items() if state.deployed and name not in own]
    weighted = any(weight_of(now.traffic, name) for name in others)
    return bool(others) and (weighted or not without.settled)


def _recreate(now: RolloutInput, rollout: RolloutStatus) -> RolloutStep:
    """The base's pods end before those of the candidate start: there is no device for both."""
    base, candidate = rollout.from_revision, rollout.revision
    begun = not now.of(base).replicas
    if not begun and steps.held(now, rollout):
        where = flow(now, base, candidate, 0, ())
        holding = rollout.model_copy(update={"state": RolloutState.STARTING})
        return RolloutStep(where, holding, base, candidate, {base: now.pods(base)}, shrink=False)
    clearing = exchange(now, candidate, flow(now, base, candidate, 0, ()))
    if clearing is not None:
        return _clearing(now, rollout, clearing)
    rollout = steps.pods_counted(now, refused_writes.recorded(rollout, None)).model_copy(
        update={"weight": ALL}
    )
    fleet = {candidate: now.pods(candidate)} | ({base: 0} if now.of(base).deployed else {})
    where = direct(now, candidate, {candidate: ALL})
    return RolloutStep(where, rollout, base, candidate, fleet, shrink=False, poll=now.judged)


def _clearing(now: RolloutInput, rollout: RolloutStatus, clearing: Exchange) -> RolloutStep:
    """The others make way. The deadline goes on where what is tried was refused before."""
    waiting = messages.told(
        rollout,
        RolloutState.PENDING,
        plan.unless_manual(rollout, Reason.ROLLING_OUT),
        messages.clearing(rollout),
    )
    if rollout.refused is None:
        waiting = waiting.model_copy(update=deadline.OVER)
    base, candidate = rollout.from_revision, rollout.revision
    return RolloutStep(
        clearing.flow, waiting, base, candidate, clearing.fleet, shrink=False, tries=clearing.tries
    )


def _roll_back(now: RolloutInput, who: Roles, rollout: RolloutStatus, rejection: Rejection) -> RolloutStep:
    """The candidate's weight goes to the base, and only a manual retry tries the candidate again."""
    step = steady_state.without(now, who.base, frozenset({rollout.revision}))
    ended = messages.told(rollout, RolloutState.ROLLED_BACK, rejection.reason, rejection.message)
    left = weight_of(step.flow.traffic, rollout.revision)
    ended = ended.model_copy(update={"weight": left, **deadline.OVER})
    marking = replace(step.marking, rejection=rejection, handled=now.actions.asked(rollout.revision))
    return replace(step, rollout=ended, marking=marking, rejection=rejection)
