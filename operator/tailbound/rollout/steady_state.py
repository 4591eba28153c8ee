"""Steps without a rollout: one revision serves, comes back, or nothing is to serve.

| what holds | status.rollout |
|---|---|
| spec.stopped | the last one, if it is over |
| an older revision comes back | `rollback.py` |
| the desired revision is the first | Starting; Promoted once it has all requests, observed |
| the desired revision is the base | Promoting until it has all requests; Promoted |
| the desired revision was rejected | RolledBack |
| there is no desired revision | as it was, without weight; it says what it waits for |
"""

from collections.abc import Collection
from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import ABORT_ANNOTATION, REVISION_LABEL
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import RolloutState, Strategy
from tailbound.rollout import again, messages
from tailbound.rollout.model import Marking, RolloutInput, RolloutStep
from tailbound.rollout.obstruction import obstruction
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.recreate import exchange
from tailbound.rollout.roles import Roles, before, stand_in
from tailbound.rollout.rollback_capacity import Handover, in_turn, with_requests
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct, flow, weight_of


def drop_candidate(
    given: RolloutInput, base: str | None, rejected: Collection[str] = (), *, lost: bool = False
) -> RolloutStep:
    """The base has all requests as soon as it can take them; `lost`: what has them now is given up."""
    clearing = None
    if base is not None and given.spec.strategy is Strategy.RECREATE and not given.ready(base):
        clearing = exchange(given, base, flow(given, base, None, 0, rejected))
    if clearing is not None:
        return RolloutStep(
            clearing.flow, None, base, None, clearing.fleet, shrink=False, tries=clearing.tries
        )
    turn = in_turn(given, base, rejected, lost=lost) if base is not None else None
    if turn is not None:
        return exchanging(turn, base)
    where = flow(given, base, None, 0, rejected)
    fleet = {base: given.pods(base)} if base is not None else {}
    step = RolloutStep(where, None, base, None, fleet, shrink=False)
    unmarked = (
        has_all(given, step, base)
        and base not in (given.stable, stand_in(given))
        and given.of(base).restorable
    )
    return replace(step, marking=Marking(base if unmarked else None))


def exchanging(turn: Handover, base: str | None) -> RolloutStep:
    return RolloutStep(turn.flow, None, base, None, turn.fleet, shrink=False, makes_way=turn.makes_way)


def has_all(given: RolloutInput, step: RolloutStep, name: str | None) -> bool:
    """Whether the revision has all requests, and every gateway sends them to a ready endpoint of it."""
    flow = step.flow
    return flow.settled and flow.whole and name is not None and flow.target == name and given.ready(name) > 0


def stopped(given: RolloutInput, who: Roles) -> RolloutStep:
    """Weight off first, observed, then no pods."""
    where = direct(given, None, {})
    names = [given.desired] if given.desired is not None else sorted(given.revisions)
    fleet = {
        name: 0 if where.settled else given.of(name).replicas
        for name in names
        if name == given.desired or (given.of(name).deployed and where.settled)
    }
    over = given.stored is not None and given.stored.is_over
    base = who.base if who.back is None else given.stable
    return RolloutStep(where, given.stored if over else None, base, who.candidate, fleet, shrink=False)


def serving(given: RolloutInput, who: Roles) -> RolloutStep:
    """No rollout is under way."""
    base, desired = who.base, given.desired
    if base is None:
        return _first(given)
    if desired is None:
        return replace(drop_candidate(given, base), rollout=_idle(given.stored, base))
    if desired == base:
        return _promoted(given, drop_candidate(given, base), desired)
    rejection = given.of(desired).rejection
    assert rejection is not None, "neither base nor candidate"
    step = drop_candidate(given, base, frozenset({desired}))
    over = ended(given, rejection, base)
    left = weight_of(step.flow.traffic, desired)
    at = again.due_at(given, desired)
    return replace(
        step,
        rollout=replace(over, weight=left),
        rejection=rejection,
        again_at=at,
        wake=at - given.time if at is not None else None,
    )


def _idle(stored: RolloutProgress | None, base: str) -> RolloutProgress | None:
    """The rollout while the newest spec has no revision that can be deployed: it goes no further."""
    if stored is None or stored.is_over:
        return stored
    held = stored.at(stored.state, stored.reason, messages.no_newest(stored.revision, base))
    return replace(held, weight=0)


def _first(given: RolloutInput) -> RolloutStep:
    """There is nothing to return to: it serves as soon as it can, and nothing is judged."""
    name = given.desired
    step = drop_candidate(given, name)
    if name is None:
        return replace(step, rollout=given.stored)
    done = has_all(given, step, name)
    stored, begun = given.stored, RolloutState.STARTING
    if stored is None or (stored.revision, stored.from_revision, stored.state) != (name, "", begun):
        stored = RolloutProgress(state=begun, revision=name, weight=ALL, started_at=given.time)
        stored = stored.at(begun, Reason.STARTING, messages.first(name))
    if done:
        stored = stored.at(RolloutState.PROMOTED, Reason.PROMOTED, messages.took_over(name))
    stable, candidate = (name, None) if done else (None, name)
    marking = Marking(name if done else None)
    return replace(step, rollout=stored, stable=stable, candidate=candidate, marking=marking)


def _promoted(given: RolloutInput, step: RolloutStep, name: str) -> RolloutStep:
    """The base is wanted: promoted, or on its way back from a revision that was given up."""
    stored = _serving_or_on_its_way(given, step, name)
    elsewhere = step.flow.target not in (None, name)
    lost = not given.ready(name) and (elsewhere or before(given, stored.from_revision) is not None)
    since = (stored.progress_at or given.time) if lost else None
    end = since + given.spec.progress_deadline.timedelta if since is not None else None
    if elsewhere and end is not None and given.time >= end:
        stored = _without_endpoints(given, step, stored)
    serves = has_all(given, step, name)
    return replace(
        step,
        rollout=replace(stored, progress_at=since),
        marking=Marking(name, handled=_fulfilled(given, name)) if serves else Marking(),
        wake=end - given.time if end is not None and end > given.time else None,
    )


def _serving_or_on_its_way(given: RolloutInput, step: RolloutStep, name: str) -> RolloutProgress:
    """
    | has all requests | every gateway applies that | was promoted manually | state |
    |---|---|---|---|
    | no | any | any | Promoting; past its deadline also why (`_without_endpoints`) |
    | yes | no | no | Promoting |
    | yes | yes | any | Promoted |
    | yes | any | yes | Promoted |
    """
    stored, alone = given.stored, step.flow.whole and step.flow.target == name
    known = stored is not None and stored.revision == name
    if stored is not None and known and stored.state is RolloutState.PROMOTED and alone:
        return stored
    if alone and step.flow.settled:
        ended = RolloutProgress(state=RolloutState.PROMOTED, revision=name, weight=ALL)
        return ended.at(RolloutState.PROMOTED, Reason.PROMOTED, messages.took_over(name))
    if stored is None or not known:
        other = next(iter(with_requests(given, {name})), "")
        stored = RolloutProgress(
            state=RolloutState.PROMOTING, revision=name, from_revision=other, started_at=given.time
        )
    stored = replace(stored, weight=weight_of(step.flow.traffic, name))
    message = messages.takes_back_requests(name, stored.weight)
    keeps = "" if alone else obstruction(given, name, step)
    return stored.at(RolloutState.PROMOTING, Reason.ROLLING_OUT, message + keeps)


def _without_endpoints(given: RolloutInput, step: RolloutStep, rollout: RolloutProgress) -> RolloutProgress:
    """No endpoint is ready for longer than the deadline, and no earlier revision could take over."""
    name, trouble = rollout.revision, given.of(rollout.revision).trouble
    reason = trouble.reason if trouble is not None else Reason.DEADLINE_EXCEEDED
    why, serving = obstruction(given, name, step), step.flow.target or ""
    again = trouble is None or not trouble.lacks_capacity
    ends = given.commands.kubectl("delete pod -l", f"{REVISION_LABEL}={name}") if again else None
    message = messages.does_not_come_back(name, serving, given.spec.progress_deadline, why, ends)
    return rollout.at(RolloutState.PROMOTING, reason, message)


def _fulfilled(given: RolloutInput, name: str) -> tuple[str, ...]:
    """Actions that ask for what is: an edit that comes later must not find them still to be done."""
    return tuple(action for action in given.actions.asked(name) if action != ABORT_ANNOTATION)


def ended(given: RolloutInput, rejection: Rejection, base: str) -> RolloutProgress:
    """The rollout of a rejected revision, with its evidence where that is stored."""
    stored, name = given.stored, rejection.revision
    if stored is not None and (stored.revision, stored.state) == (name, RolloutState.ROLLED_BACK):
        return stored
    over = RolloutProgress(state=RolloutState.ROLLED_BACK, revision=name, from_revision=base)
    return over.at(RolloutState.ROLLED_BACK, rejection.reason, rejection.message)
