"""Weight and pods of base and candidate at the present step of a rollout, before its state is decided. Pure.

| strategy, step | the API server refuses what the candidate needs | traffic and replicas |
|---|---|---|
| recreate, the last one | yes | all stays with the base |
| any other | its record, Service or Deployment | the base alone, and the candidate's pods as they are |
| recreate, the last one | no | the others make way first (`recreate.py`), then the candidate has all |
| any other | no, or only a change | beside each other, or in place (`in_place.py`) |
"""

from dataclasses import dataclass, replace

from tailbound.api.conditions import Reason
from tailbound.api.rollout import RolloutState, Strategy
from tailbound.rollout import capacity_shortage, deadline, messages, plan, steady_state, steps
from tailbound.rollout.in_place import needed, places
from tailbound.rollout.model import RolloutInput, RolloutStep, TrafficDecision
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.recreate import Exchange, exchange
from tailbound.rollout.signature import SignatureAwaited
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct, flow, weight_of


@dataclass(frozen=True)
class Placement:
    """The weights and the pods of a rollout that is under way."""

    step: RolloutStep
    refused: Problem | None = None
    """What the API server refuses of a candidate that keeps what it has."""
    held_up: bool = False
    """The candidate cannot start at all: its state and message are decided."""


def placed(given: RolloutInput, rollout: RolloutProgress, *, counting: bool) -> Placement:
    """Traffic and replicas; `counting`: what the candidate is sent from now on will be counted."""
    recreates = given.spec.strategy is Strategy.RECREATE and plan.is_last(rollout)
    refused = steps.hindered(given, rollout)
    rollout = replace(rollout, refused=refused or (rollout.refused if recreates else None))
    if refused is not None and (recreates or given.refused is not None):
        return Placement(_held_up(given, rollout, refused, recreates=recreates), held_up=True)
    step = _recreate(given, rollout) if recreates else _beside(given, rollout, counting=counting)
    return Placement(step, refused)


def _held_up(
    given: RolloutInput, rollout: RolloutProgress, refused: Problem, *, recreates: bool
) -> RolloutStep:
    """The candidate cannot start, so that nothing makes way for it; its deadline runs."""
    base, candidate = rollout.from_revision, rollout.revision
    if recreates:
        where, fleet = flow(given, base, candidate, 0, ()), {base: given.pods(base)}
    else:
        dropped = steady_state.drop_candidate(given, base)
        where, fleet = dropped.flow, dict(dropped.fleet)
    if given.of(candidate).deployed:
        fleet[candidate] = given.of(candidate).replicas
    reason = plan.unless_manual(rollout, refused.reason)
    message = messages.refused(rollout, refused)
    held = steps.pods_counted(given, rollout).at(RolloutState.STARTING, reason, message)
    return RolloutStep(where, held, base, candidate, fleet, shrink=False)


def _beside(given: RolloutInput, rollout: RolloutProgress, *, counting: bool) -> RolloutStep:
    """The candidate's pods and weight beside those of a base that frees capacity only if it is asked to.

    It gets its first requests only once they will be counted and the signature of its model is known, or will
    not be, unless it is promoted manually all the same.
    """
    base, candidate = rollout.from_revision, rollout.revision
    dropped = steady_state.drop_candidate(given, base)
    if not given.of(candidate).deployed and _others_linger(given, rollout, dropped.flow):
        waiting = capacity_shortage.pending(given, rollout)
        return RolloutStep(dropped.flow, waiting, base, candidate, dropped.fleet, shrink=False)
    rollout = steps.pods_counted(given, rollout)
    _, carries = steps.wanted(given, rollout)
    pods = steps.pods_needed(given, rollout)
    unseen = not counting or isinstance(given.signature, SignatureAwaited)
    waits = unseen and rollout.weight == 0 and not plan.promoted_manually(rollout)
    share = 0 if waits else steps.share(given, rollout, pods)
    rollout = steps.weighted(given, rollout, share, pods)
    where = flow(given, base, candidate, share, (), waits=not rollout.in_place)
    # While neither can serve, all requests may be with a third one.
    rollout = replace(rollout, weight=min(rollout.weight, weight_of(where.traffic, candidate)))
    alone = weight_of(where.traffic, candidate) > share
    fleet = places(given, rollout, needed(given, rollout, ALL, ALL) if alone else pods)
    carried = {candidate: ALL if alone else carries}
    return RolloutStep(where, rollout, base, candidate, fleet, shrink=False, carries=carried, poll=True)


def _others_linger(given: RolloutInput, rollout: RolloutProgress, dropped: TrafficDecision) -> bool:
    """An earlier canary is there that a gateway may still send requests to.

    One that serves because the base cannot is not waited for: only the candidate can take its place.
    """
    own = {
        rollout.revision,
        rollout.from_revision,
        dropped.target if not given.ready(rollout.from_revision) else None,
    }
    others = [name for name, state in given.revisions.items() if state.deployed and name not in own]
    weighted = any(weight_of(given.traffic, name) for name in others)
    return bool(others) and (weighted or not dropped.settled)


def _recreate(given: RolloutInput, rollout: RolloutProgress) -> RolloutStep:
    """The base's pods end before those of the candidate start: there is no device for both.

    They stay until one of them was asked for the signature of its model.
    """
    base, candidate = rollout.from_revision, rollout.revision
    begun = not given.of(base).replicas
    unread = isinstance(given.signature, SignatureAwaited) and given.signature.stable
    if not begun and (unread or steps.held(given, rollout)):
        where = flow(given, base, candidate, 0, ())
        holding = replace(rollout, state=RolloutState.STARTING)
        return RolloutStep(where, holding, base, candidate, {base: given.pods(base)}, shrink=False)
    clearing = exchange(given, candidate, flow(given, base, candidate, 0, ()))
    if clearing is not None:
        return _clearing(given, rollout, clearing)
    rollout = replace(steps.pods_counted(given, replace(rollout, refused=None)), weight=ALL)
    fleet = {candidate: given.pods(candidate)} | ({base: 0} if given.of(base).deployed else {})
    where = direct(given, candidate, {candidate: ALL})
    return RolloutStep(where, rollout, base, candidate, fleet, shrink=False, poll=True)


def _clearing(given: RolloutInput, rollout: RolloutProgress, clearing: Exchange) -> RolloutStep:
    """The others make way. The deadline goes on where what is tried was refused before."""
    reason = plan.unless_manual(rollout, Reason.ROLLING_OUT)
    waiting = rollout.at(RolloutState.PENDING, reason, messages.clearing(rollout))
    if rollout.refused is None:
        waiting = deadline.over(waiting)
    base, candidate = rollout.from_revision, rollout.revision
    return RolloutStep(
        clearing.flow, waiting, base, candidate, clearing.fleet, shrink=False, tries=clearing.tries
    )
