"""A return to an older revision: it is scaled up, gets the weight, and then it is the stable one. Pure.

Without room beside it takes the places of what serves, or of what is dead (`rollback_capacity.py`).

| what holds (first row that fits) | outcome |
|---|---|
| it has all requests, observed | RolledBack: it is stable, and what it takes the place of is rejected |
| the action `abort` names it | given up, AbortedManually |
| a container of it was restarted `restartLimit` times | given up, with what its pods are stuck at |
| its deadline is over (`deadline.py`) | given up, with what its pods are stuck at, or DeadlineExceeded |
| otherwise | Promoting |

A return that somebody asked for has its deadline also while it waits for room: there are other ways out. One
that nobody asked for waits, as no other revision would find room either.

A return that is given up leaves everything as it was before; the spec's revision stays, or goes on. One that
no annotation asked for rejects the older revision, so that the next one before is tried.
"""

from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import ABORT_ANNOTATION
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.rollout import deadline, messages, refused_writes
from tailbound.rollout.model import Marking, Rejection, RolloutInput, RolloutStep
from tailbound.rollout.obstruction import obstruction, refused_to
from tailbound.rollout.roles import Return, another
from tailbound.rollout.rollback_capacity import in_turn, interrupted, with_requests
from tailbound.rollout.steady_state import ended, exchanging, has_all, without
from tailbound.rollout.weights import flow, weight_of


def returning(now: RolloutInput, back: Return) -> RolloutStep:
    """The next step of a return."""
    stable = interrupted(now, back.to)
    if stable is not None:
        step = _taking_back(now, stable, back.to)
    else:
        step = without(now, back.to, lost=back.reason is Reason.LOST)
    if has_all(now, step, back.to):
        return _returned(now, step, back)
    rollout = _counted(now, step, back)
    failure = _failure(now, rollout, back)
    return _given_up(now, back, failure) if failure is not None else _under_way(now, step, rollout, back)


def _returned(now: RolloutInput, step: RolloutStep, back: Return) -> RolloutStep:
    # Why it was rejected before stays: that a return was then asked for proves nothing new.
    rejection = now.of(back.instead_of).rejection or back.rejection
    handled = (back.annotation,) if back.annotation is not None else ()
    marking = Marking(stable=back.to, rejection=rejection, handled=handled)
    if rejection is None:
        return replace(step, rollout=now.stored, marking=marking)
    of_the_spec = rejection if rejection.revision == now.desired else None
    return replace(step, rollout=ended(now, rejection, back.to), marking=marking, rejection=of_the_spec)


def _counted(now: RolloutInput, step: RolloutStep, back: Return) -> RolloutStatus:
    """The stored return, or a new one, with its deadline."""
    before_it, state = now.stable or back.instead_of or "", now.of(back.to)
    begun, stored = (RolloutState.PROMOTING, back.to, before_it, back.reason), now.stored
    if stored is None or (stored.state, stored.revision, stored.from_revision, stored.reason) != begun:
        return RolloutStatus(
            state=RolloutState.PROMOTING,
            revision=back.to,
            from_revision=before_it,
            reason=back.reason,
            instead_of=back.instead_of or "",
            started_at=now.now,
            progress_at=now.now,
            high_water=state.ready,
        )
    refused = refused_to(now, back.to, step)
    undone = refused_writes.last(stored) if refused_writes.outstanding(now, step) else None
    stored = refused_writes.recorded(stored, refused or undone)
    if stored.progress_at is None:
        return stored.model_copy(update=deadline.begins(now.now))
    awaits_place = step.makes_way is not None and state.replicas <= state.ready and refused is None
    lacks_room = back.annotation is None and (state.lacks_room or awaits_place)
    pods = deadline.Pods(state.ready, missing=state.ready < now.pods(back.to), lacks_room=lacks_room)
    return deadline.counted(stored, pods, now.spec.progress_deadline, now.now)


def _failure(now: RolloutInput, rollout: RolloutStatus, back: Return) -> Rejection | None:
    """Why the return is given up, if it is."""
    state, spec, actions = now.of(back.to), now.spec, now.actions
    trouble = state.trouble or refused_writes.last(rollout)
    if actions.revision(ABORT_ANNOTATION) == back.to:
        return Rejection(back.to, Reason.ABORTED_MANUALLY, messages.aborted(actions.by), actions.by)
    if state.restarts >= spec.restart_limit:
        reason = trouble.reason if trouble is not None else Reason.CRASH_LOOP
        return Rejection(back.to, reason, messages.restarts(state.restarts, trouble))
    if deadline.overdue(rollout, spec.progress_deadline, now.now):
        reason = trouble.reason if trouble is not None else Reason.DEADLINE_EXCEEDED
        return Rejection(back.to, reason, messages.overdue(spec.progress_deadline, trouble, state.unready))
    return None


def _given_up(now: RolloutInput, back: Return, failure: Rejection) -> RolloutStep:
    """What serves keeps the requests, or gets them back."""
    step = without(now, now.stable)
    by_itself = back.annotation is None and failure.reason != Reason.ABORTED_MANUALLY
    done = (back.annotation, ABORT_ANNOTATION)
    handled = tuple(action for action in now.actions.asked(back.to) if action in done)
    message = messages.given_up(back.to, failure, now.stable, another(now, back.to, now.stable))
    if now.desired is not None and now.desired == now.stable:
        after = RolloutStatus(
            state=RolloutState.PROMOTED, revision=now.desired, from_revision=back.to, weight=100
        )
    else:
        after = RolloutStatus(
            state=RolloutState.ROLLED_BACK, revision=back.to, from_revision=now.stable or ""
        )
    return replace(
        step,
        rollout=messages.told(after, after.state, failure.reason, message),
        marking=Marking(
            rejection=failure if by_itself else None,
            not_returned=None if by_itself else failure,
            handled=handled,
        ),
    )


def _under_way(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus, back: Return) -> RolloutStep:
    other = back.instead_of or now.stable or ""
    where = obstruction(now, back.to, step)
    if where and back.annotation is not None:
        where = messages.given_up_after(back.to, now.spec.progress_deadline) + where
    message = messages.returning(back.to, other, back.message, where)
    rollout = messages.told(rollout, RolloutState.PROMOTING, back.reason, message)
    weight = weight_of(step.flow.traffic, back.to)
    rollout = rollout.model_copy(update={"weight": weight, "in_place": step.makes_way is not None})
    manual = back.annotation is not None and now.of(back.to).rejection is not None
    end = deadline.ends_at(rollout, now.spec.progress_deadline)
    return replace(
        step,
        rollout=rollout,
        marking=Marking(forgiven=back.to if manual else None),
        stable=now.stable,
        candidate=back.to,
        wake=end - now.now if end is not None else None,
    )


def _taking_back(now: RolloutInput, stable: str, back: str) -> RolloutStep:
    """What is on its way ends: the stable one has the requests until `back` is there, and keeps its pods.

    Where places change hands it gets its own before every other revision.
    """
    others = with_requests(now, {stable, back})
    rejected = {name for name in others if now.of(name).rejection is not None}
    turn = in_turn(now, stable, rejected, lost=False)
    if turn is not None:
        return exchanging(turn, stable)
    where = flow(now, stable, None, 0, rejected)
    fleet = {stable: now.pods(stable), back: now.pods(back)}
    return RolloutStep(where, None, stable, None, fleet, shrink=False)
