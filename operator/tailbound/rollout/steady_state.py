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
from tailbound.api.names import ABORT_ANNOTATION
from tailbound.api.rollout import RolloutState, RolloutStatus, Strategy
from tailbound.rollout import messages
from tailbound.rollout.model import Marking, Rejection, RolloutInput, RolloutStep
from tailbound.rollout.obstruction import obstruction
from tailbound.rollout.recreate import exchange
from tailbound.rollout.roles import Roles, before, stand_in
from tailbound.rollout.rollback_capacity import Handover, in_turn, with_requests
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct, flow, weight_of

_OVER = frozenset({RolloutState.PROMOTED, RolloutState.ROLLED_BACK})


def without(
    now: RolloutInput, base: str | None, rejected: Collection[str] = (), *, lost: bool = False
) -> RolloutStep:
    """The base has all requests as soon as it can take them; `lost`: what has them now is given up."""
    clearing = None
    if base is not None and now.spec.strategy is Strategy.RECREATE and not now.ready(base):
        clearing = exchange(now, base, flow(now, base, None, 0, rejected))
    if clearing is not None:
        return RolloutStep(
            clearing.flow, None, base, None, clearing.fleet, shrink=False, tries=clearing.tries
        )
    turn = in_turn(now, base, rejected, lost=lost) if base is not None else None
    if turn is not None:
        return exchanging(turn, base)
    where = flow(now, base, None, 0, rejected)
    fleet = {base: now.pods(base)} if base is not None else {}
    step = RolloutStep(where, None, base, None, fleet, shrink=False)
    unmarked = (
        has_all(now, step, base) and base not in (now.stable, stand_in(now)) and now.of(base).restorable
    )
    return replace(step, marking=Marking(base if unmarked else None))


def exchanging(turn: Handover, base: str | None) -> RolloutStep:
    return RolloutStep(turn.flow, None, base, None, turn.fleet, shrink=False, makes_way=turn.makes_way)


def has_all(now: RolloutInput, step: RolloutStep, name: str | None) -> bool:
    """It has all requests, and every gateway sends them to a ready endpoint of it."""
    flow = step.flow
    return flow.settled and flow.whole and name is not None and flow.target == name and now.ready(name) > 0


def stopped(now: RolloutInput, who: Roles) -> RolloutStep:
    """Weight off first, observed, then no pods."""
    where = direct(now, None, {})
    names = [now.desired] if now.desired is not None else sorted(now.revisions)
    fleet = {
        name: 0 if where.settled else now.of(name).replicas
        for name in names
        if name == now.desired or (now.of(name).deployed and where.settled)
    }
    over = now.stored is not None and now.stored.state in _OVER
    base = who.base if who.back is None else now.stable
    return RolloutStep(where, now.stored if over else None, base, who.candidate, fleet, shrink=False)


def serving(now: RolloutInput, who: Roles) -> RolloutStep:
    """No rollout is under way."""
    base, desired = who.base, now.desired
    if base is None:
        return _first(now)
    if desired is None:
        return replace(without(now, base), rollout=_idle(now.stored, base))
    if desired == base:
        return _promoted(now, without(now, base), desired)
    rejection = now.of(desired).rejection
    assert rejection is not None, "neither base nor candidate"
    step = without(now, base, frozenset({desired}))
    over = ended(now, rejection, base)
    left = weight_of(step.flow.traffic, desired)
    return replace(step, rollout=over.model_copy(update={"weight": left}), rejection=rejection)


def _idle(stored: RolloutStatus | None, base: str) -> RolloutStatus | None:
    """The rollout while the newest spec has no revision that can be deployed: it goes no further."""
    if stored is None or stored.state in _OVER:
        return stored
    held = messages.told(stored, stored.state, stored.reason, messages.no_newest(stored.revision, base))
    return held.model_copy(update={"weight": 0})


def _first(now: RolloutInput) -> RolloutStep:
    """There is nothing to return to: it serves as soon as it can, and nothing is judged."""
    name = now.desired
    step = without(now, name)
    if name is None:
        return replace(step, rollout=now.stored)
    done = has_all(now, step, name)
    stored, begun = now.stored, RolloutState.STARTING
    if stored is None or (stored.revision, stored.from_revision, stored.state) != (name, "", begun):
        stored = RolloutStatus(state=begun, revision=name, weight=ALL, started_at=now.now)
        stored = messages.told(stored, begun, Reason.STARTING, messages.first(name))
    if done:
        stored = messages.told(stored, RolloutState.PROMOTED, Reason.PROMOTED, messages.took_over(name))
    stable, candidate = (name, None) if done else (None, name)
    marking = Marking(name if done else None)
    return replace(step, rollout=stored, stable=stable, candidate=candidate, marking=marking, promoted=done)


def _promoted(now: RolloutInput, step: RolloutStep, name: str) -> RolloutStep:
    """The base is wanted: promoted, or on its way back from a revision that was given up."""
    stored = _told_promoted(now, step, name)
    elsewhere = step.flow.target not in (None, name)
    lost = not now.ready(name) and (elsewhere or before(now, stored.from_revision) is not None)
    since = (stored.progress_at or now.now) if lost else None
    end = since + now.spec.progress_deadline.timedelta if since is not None else None
    if elsewhere and end is not None and now.now >= end:
        stored = _told_missing(now, step, stored)
    serves = has_all(now, step, name)
    return replace(
        step,
        rollout=stored.model_copy(update={"progress_at": since}),
        marking=Marking(name, handled=_fulfilled(now, name)) if serves else Marking(),
        promoted=serves,
        wake=end - now.now if end is not None and end > now.now else None,
    )


def _told_promoted(now: RolloutInput, step: RolloutStep, name: str) -> RolloutStatus:
    """
    | has all requests | every gateway applies that | was promoted manually | state |
    |---|---|---|---|
    | no | any | any | Promoting; past its deadline also why (`_told_missing`) |
    | yes | no | no | Promoting |
    | yes | yes | any | Promoted |
    | yes | any | yes | Promoted |
    """
    stored, alone = now.stored, step.flow.whole and step.flow.target == name
    known = stored is not None and stored.revision == name
    if stored is not None and known and stored.state is RolloutState.PROMOTED and alone:
        return stored
    if alone and step.flow.settled:
        ended = RolloutStatus(state=RolloutState.PROMOTED, revision=name, weight=ALL)
        return messages.told(ended, RolloutState.PROMOTED, Reason.PROMOTED, messages.took_over(name))
    if stored is None or not known:
        other = next(iter(with_requests(now, {name})), "")
        stored = RolloutStatus(
            state=RolloutState.PROMOTING, revision=name, from_revision=other, started_at=now.now
        )
    stored = stored.model_copy(update={"weight": weight_of(step.flow.traffic, name)})
    message = messages.takes_back_requests(name, stored.weight)
    keeps = "" if alone else obstruction(now, name, step)
    return messages.told(stored, RolloutState.PROMOTING, Reason.ROLLING_OUT, message + keeps)


def _told_missing(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus) -> RolloutStatus:
    """It has no ready endpoint for longer than its deadline; none that served before could take its place."""
    name, trouble = rollout.revision, now.of(rollout.revision).trouble
    reason = trouble.reason if trouble is not None else Reason.DEADLINE_EXCEEDED
    why, serving = obstruction(now, name, step), step.flow.target or ""
    again = trouble is None or not trouble.lacks_room
    message = messages.does_not_come_back(name, serving, now.spec.progress_deadline, why, again=again)
    return messages.told(rollout, RolloutState.PROMOTING, reason, message)


def _fulfilled(now: RolloutInput, name: str) -> tuple[str, ...]:
    """Actions that ask for what is: an edit that comes later must not find them still to be done."""
    return tuple(action for action in now.actions.asked(name) if action != ABORT_ANNOTATION)


def ended(now: RolloutInput, rejection: Rejection, base: str) -> RolloutStatus:
    """The rollout of a rejected revision, with its evidence where that is stored."""
    stored, name = now.stored, rejection.revision
    if stored is not None and (stored.revision, stored.state) == (name, RolloutState.ROLLED_BACK):
        return stored
    over = RolloutStatus(state=RolloutState.ROLLED_BACK, revision=name, from_revision=base)
    return messages.told(over, RolloutState.ROLLED_BACK, rejection.reason, rejection.message)
