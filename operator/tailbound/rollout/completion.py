"""What holds for every step, whatever led to it. Pure.

What has weight keeps its pods, no request waits for ever, and what was given up is remembered.
"""

from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import PAUSE_ANNOTATION, RETRY_ANNOTATION, ROLLBACK_ANNOTATION
from tailbound.api.rejection import Superseded
from tailbound.api.rollout import RolloutState
from tailbound.rollout.model import Marking, RolloutInput, RolloutStep
from tailbound.rollout.refusals import refusal
from tailbound.rollout.roles import Roles
from tailbound.rollout.steady_state import has_all


def completed(given: RolloutInput, who: Roles, step: RolloutStep) -> RolloutStep:
    """The step with its pods, its marks, and what is refused of the actions asked for."""
    step = _with_pods(given, _with_unrecorded_rejection(given, step))
    marking = replace(_with_first(given, who, step), superseded=superseded(given))
    marking = replace(marking, under_way=_under_way(given, who, marking))
    refused = refusal(given, step)
    return replace(_with_time_to_move(given, step), marking=marking, refusal=refused)


def _with_pods(given: RolloutInput, step: RolloutStep) -> RolloutStep:
    """The step with pods of every revision that has weight; others end when gateways do not need them."""
    fleet, carries, target = dict(step.fleet), dict(step.carries), step.flow.target
    if target is not None and target not in fleet:
        fleet[target] = given.pods(target)
    for backend in step.flow.traffic.backends if step.flow.traffic is not None else ():
        if backend.weight and backend.revision not in fleet:
            fleet[backend.revision] = given.of(backend.revision).replicas
            carries[backend.revision] = backend.weight
    serves = given.ready(target) > 0 or not any(state.ready for state in given.revisions.values())
    shrink = step.flow.settled and given.desired is not None and (serves or given.stopped or target is None)
    return replace(step, fleet=fleet, carries=carries, shrink=shrink)


def _with_first(given: RolloutInput, who: Roles, step: RolloutStep) -> Marking:
    """A base that serves is the stable revision, where none was before: the spec may be newer than it."""
    marking, base = step.marking, who.base
    first = given.stable is None and marking.stable is None and has_all(given, step, base)
    return replace(marking, stable=base) if first and given.of(base).restorable else marking


def _with_unrecorded_rejection(given: RolloutInput, step: RolloutStep) -> RolloutStep:
    """A rejection that no record holds yet stays in the status, and is to be written."""
    rollout, stored, rejection = step.rollout, given.stored, step.marking.rejection
    if stored is not None and stored.unrecorded and rejection is None:
        rejection = given.of(stored.revision).rejection
    if rollout is None or rollout.state is not RolloutState.ROLLED_BACK or rejection is None:
        return step
    of_it = rejection.revision == rollout.revision
    unrecorded = of_it and (given.marks_refused or not given.of(rollout.revision).recorded)
    marking = replace(step.marking, rejection=rejection)
    return replace(step, marking=marking, rollout=replace(rollout, unrecorded=unrecorded))


def _with_time_to_move(given: RolloutInput, step: RolloutStep) -> RolloutStep:
    """The step with the time since which requests wait for pods, and a wake-up when that is too long."""
    if step.rollout is None:
        return step
    since = given.stored.moving_since if given.stored is not None else None
    since = (since or given.time) if step.flow.waits else None
    limits = [step.wake] if step.wake is not None else []
    limits += [since + given.spec.progress_deadline.timedelta - given.time] if since is not None else []
    return replace(step, rollout=replace(step.rollout, moving_since=since), wake=min(limits, default=None))


def _under_way(given: RolloutInput, who: Roles, marking: Marking) -> tuple[str, ...]:
    """The actions that are being acted on."""
    actions = (
        (ROLLBACK_ANNOTATION, who.back is not None and who.back.annotation is not None),
        (RETRY_ANNOTATION, who.retried),
        (PAUSE_ANNOTATION, who.candidate is not None and given.actions.pauses(who.candidate)),
    )
    return tuple(action for action, holds in actions if holds and action not in marking.handled)


_RETURNS = frozenset({Reason.LOST, Reason.ROLLED_BACK_MANUALLY})


def superseded(given: RolloutInput) -> Superseded | None:
    """The revision that was on its way, if the spec is another one's now: it was never judged.

    | status.rollout as it is stored | the desired revision | superseded |
    |---|---|---|
    | none, or over | any | none |
    | of an older revision that comes back | any | none |
    | of a revision that was rejected, or is the stable one | any | none: only the status is behind |
    | of any other revision | that one, or none can be made | none |
    | of any other revision | another | that one |
    """
    stored, desired = given.stored, given.desired
    if stored is None or stored.is_over or desired is None or desired == stored.revision:
        return None
    if stored.state is RolloutState.PROMOTING and stored.reason in _RETURNS:
        return None
    if given.of(stored.revision).rejection is not None or stored.revision == given.stable:
        return None
    return Superseded(stored.revision, desired)
