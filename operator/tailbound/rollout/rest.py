"""Steps without a rollout: one revision serves, comes back, or nothing is to serve.

| what holds | status.rollout |
|---|---|
| spec.stopped | the last one, if it is over |
| an older revision comes back (its places: `returns.py`) | Promoting the older one; then RolledBack |
| the desired revision is the first | Starting; Promoted once it has all requests, observed |
| the desired revision is the base | Promoted |
| the desired revision was rejected | RolledBack |
| there is no desired revision | as it was, without weight |
"""

from collections.abc import Collection
from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import ABORT_ANNOTATION
from tailbound.api.rollout import Capacity, RolloutState, RolloutStatus, Strategy
from tailbound.rollout import words
from tailbound.rollout.places import lack_of_room
from tailbound.rollout.recreate import exchange
from tailbound.rollout.returns import Turn, in_turn, interrupted, with_requests
from tailbound.rollout.roles import Return, Roles, before
from tailbound.rollout.situation import Marking, Rejection, Situation, Step
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import direct, flow, weight_of

_OVER = frozenset({RolloutState.PROMOTED, RolloutState.ROLLED_BACK})


def without(now: Situation, base: str | None, rejected: Collection[str] = (), *, lost: bool = False) -> Step:
    """The base has all requests as soon as it can take them; `lost`: what has them now is given up."""
    clearing = None
    if base is not None and now.spec.strategy is Strategy.RECREATE and not now.ready(base):
        clearing = exchange(now, base)
    if clearing is not None:
        return Step(clearing[0], None, base, None, clearing[1], shrink=False)
    turn = in_turn(now, base, rejected, lost=lost) if base is not None else None
    if turn is not None:
        return _exchanging(turn, base)
    where = flow(now, base, None, 0, rejected)
    fleet = {base: now.pods(base)} if base is not None else {}
    step = Step(where, None, base, None, fleet, shrink=False)
    unmarked = _serves(now, step, base) and now.stable != base and now.of(base).restorable
    return replace(step, marking=Marking(base if unmarked else None))


def _exchanging(turn: Turn, base: str | None) -> Step:
    return Step(turn.flow, None, base, None, turn.fleet, shrink=False, makes_way=turn.makes_way)


def _serves(now: Situation, step: Step, name: str | None) -> bool:
    """It has all requests, and every gateway sends them to a ready endpoint of it."""
    return step.flow.settled and name is not None and step.flow.target == name and now.ready(name) > 0


def stopped(now: Situation, who: Roles) -> Step:
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
    return Step(where, now.stored if over else None, base, who.candidate, fleet, shrink=False)


def serving(now: Situation, who: Roles) -> Step:
    """No rollout is under way."""
    base, desired = who.base, now.desired
    if base is None:
        return _first(now)
    if desired is None:
        stored = now.stored
        idle = stored.model_copy(update={"weight": 0}) if stored and stored.state not in _OVER else stored
        return replace(without(now, base), rollout=idle)
    if desired == base:
        return _promoted(now, without(now, base), desired)
    rejection = now.of(desired).rejection
    assert rejection is not None, "neither base nor candidate"
    step = without(now, base, frozenset({desired}))
    return replace(step, rollout=_ended(now, rejection, base), rejection=rejection)


def _first(now: Situation) -> Step:
    """There is nothing to return to: it serves as soon as it can, and nothing is judged."""
    name = now.desired
    step = without(now, name)
    if name is None:
        return replace(step, rollout=now.stored)
    done = _serves(now, step, name)
    stored, begun = now.stored, RolloutState.STARTING
    if stored is None or (stored.revision, stored.from_revision, stored.state) != (name, "", begun):
        stored = RolloutStatus(state=begun, revision=name, weight=ALL, started_at=now.now)
        stored = words.told(stored, begun, Reason.STARTING, words.first(name))
    if done:
        stored = words.told(stored, RolloutState.PROMOTED, Reason.PROMOTED, words.took_over(name))
    stable, candidate = (name, None) if done else (None, name)
    marking = Marking(name if done else None)
    return replace(step, rollout=stored, stable=stable, candidate=candidate, marking=marking, promoted=done)


def _promoted(now: Situation, step: Step, name: str) -> Step:
    stored = now.stored
    if stored is None or (stored.revision, stored.state) != (name, RolloutState.PROMOTED):
        stored = RolloutStatus(state=RolloutState.PROMOTED, revision=name, weight=ALL)
        stored = words.told(stored, RolloutState.PROMOTED, Reason.PROMOTED, words.took_over(name))
    lost = not now.ready(name) and before(now, stored.from_revision) is not None
    since = (stored.progress_at or now.now) if lost else None
    deadline = now.spec.progress_deadline.timedelta
    wake = since + deadline - now.now if since is not None else None
    serves = _serves(now, step, name)
    return replace(
        step,
        rollout=stored.model_copy(update={"progress_at": since}),
        marking=Marking(name, handled=_fulfilled(now, name)) if serves else Marking(),
        promoted=serves,
        wake=wake,
    )


def _fulfilled(now: Situation, name: str) -> tuple[str, ...]:
    """Hands that ask for what is: an edit that comes later must not find them still to be done."""
    return tuple(hand for hand in now.hands.asked(name) if hand != ABORT_ANNOTATION)


def _ended(now: Situation, rejection: Rejection, base: str) -> RolloutStatus:
    """The rollout of a rejected revision, with its evidence where that is stored."""
    stored, name = now.stored, rejection.revision
    if stored is not None and (stored.revision, stored.state) == (name, RolloutState.ROLLED_BACK):
        return stored
    ended = RolloutStatus(state=RolloutState.ROLLED_BACK, revision=name, from_revision=base)
    return words.told(ended, RolloutState.ROLLED_BACK, rejection.reason, rejection.message)


def returning(now: Situation, back: Return) -> Step:
    """An older revision is scaled up, gets the weight, and then it is the stable one.

    Without room beside it takes the places of what serves, or of what is dead.
    """
    rejection, stable = back.rejection, interrupted(now, back.to)
    if stable is not None:
        step = _taking_back(now, stable, back.to)
    else:
        step = without(now, back.to, lost=rejection.reason == Reason.LOST)
    if _serves(now, step, back.to):
        # Why it was rejected before stays: that somebody then asked for a return proves nothing new.
        rejection = now.of(rejection.revision).rejection or rejection
        ended = _ended(now, rejection, back.to)
        handled = (back.annotation,) if back.annotation is not None else ()
        return replace(
            step,
            rollout=ended,
            marking=Marking(stable=back.to, rejection=rejection, handled=handled),
            rejection=rejection,
        )
    stored, before_it = now.stored, now.stable or rejection.revision
    begun = (RolloutState.PROMOTING, back.to, before_it, rejection.reason)
    if stored is None or (stored.state, stored.revision, stored.from_revision, stored.reason) != begun:
        stored = RolloutStatus(
            state=RolloutState.PROMOTING, revision=back.to, from_revision=before_it, started_at=now.now
        )
    message = words.returning(back.to, rejection, _room(now, back.to, step))
    returns = words.told(stored, RolloutState.PROMOTING, rejection.reason, message)
    weight = weight_of(step.flow.traffic, back.to)
    returns = returns.model_copy(update={"weight": weight, "in_place": step.makes_way is not None})
    return replace(step, rollout=returns, marking=Marking(), stable=now.stable, candidate=back.to)


def _taking_back(now: Situation, stable: str, back: str) -> Step:
    """What is on its way ends: the stable one has the requests until `back` is there, and keeps its pods.

    Where places change hands it gets its own before anybody else. Beside what has most of the requests it
    takes them as soon as it has as many pods ready.
    """
    others = with_requests(now, {stable, back})
    rejected = {name for name in others if now.of(name).rejection is not None}
    turn = in_turn(now, stable, rejected, lost=False)
    if turn is not None:
        return _exchanging(turn, stable)
    enough = min(now.pods(stable), *(now.ready(name) for name in others))
    where = flow(now, stable, None, 0, rejected, enough=enough)
    fleet = {stable: now.pods(stable), back: now.pods(back)}
    return Step(where, None, stable, None, fleet, shrink=False)


def _room(now: Situation, name: str, step: Step) -> str:
    """Where a revision that comes back finds room, and what to do where it finds none."""
    trouble = now.of(name).trouble
    if step.makes_way is not None:
        return _place(now, name, step, step.makes_way)
    if trouble is None or not trouble.lacks_room:
        return ""
    return words.waits_for_room(trouble, _remedy(now, name, step.flow.target))


def _remedy(now: Situation, name: str, serving: str | None) -> str:
    """What helps a revision that comes back beside more room; `serving` has the requests meanwhile."""
    if serving is None or serving == name:
        return ""
    if now.spec.capacity is Capacity.SURGE and now.pods(serving) > 1:
        return words.let_give_up_places(serving)
    return words.only_pod(serving, now.spec.progress_deadline, ready=now.ready(serving) > 0)


def _place(now: Situation, name: str, step: Step, other: str) -> str:
    """Whose places it takes, and who has to have them before; what is missing where there are too few."""
    first = now.stable if name not in step.fleet else None
    told = words.takes_places(other) if first is None else words.takes_back(first, other)
    lack = lack_of_room(now, first or name, other)
    return told if lack is None else f"{told}; {words.missing(lack)}{words.ask_for_fewer()}"
