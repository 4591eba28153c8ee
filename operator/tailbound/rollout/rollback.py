"""A return to an older revision: it is scaled up, gets the weight, and then it is the stable one. Pure.

Without capacity beside it takes the places of what serves, or of what is dead (`rollback_capacity.py`).

| what holds (first row that fits) | outcome |
|---|---|
| it has all requests, observed | RolledBack: it is stable, and what it takes the place of is rejected |
| the action `abort` names it | given up, AbortedManually |
| a container of it was restarted `restartLimit` times | given up, with what its pods are stuck at |
| its deadline is over (`deadline.py`) | given up, with what its pods are stuck at, or DeadlineExceeded |
| otherwise | Promoting |

A rollback that a user asked for has its deadline also while it waits for capacity, as the user can choose
another revision. An automatic rollback waits, as the cluster has no capacity for another revision either.

A return that is given up leaves everything as it was before; the spec's revision stays, or goes on. One that
no annotation asked for rejects the older revision, so that the next one before is tried.
"""

from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.api.names import ABORT_ANNOTATION
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import RolloutState
from tailbound.rollout import deadline, messages, refused_writes
from tailbound.rollout.model import Marking, RolloutInput, RolloutStep
from tailbound.rollout.obstruction import obstruction, refused_to
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.roles import Return, another
from tailbound.rollout.rollback_capacity import in_turn, interrupted, with_requests
from tailbound.rollout.steady_state import drop_candidate, ended, exchanging, has_all
from tailbound.rollout.weights import flow, weight_of


def returning(given: RolloutInput, back: Return) -> RolloutStep:
    """The next step of a return."""
    stable = interrupted(given, back.to)
    if stable is not None:
        step = _taking_back(given, stable, back.to)
    else:
        step = drop_candidate(given, back.to, lost=back.reason is Reason.LOST)
    if has_all(given, step, back.to):
        return _returned(given, step, back)
    rollout = _counted(given, step, back)
    failure = _failure(given, rollout, back)
    return _given_up(given, back, failure) if failure is not None else _under_way(given, step, rollout, back)


def _returned(given: RolloutInput, step: RolloutStep, back: Return) -> RolloutStep:
    # Why it was rejected before stays: that a return was then asked for proves nothing new.
    rejection = given.of(back.instead_of).rejection or back.rejection
    handled = (back.annotation,) if back.annotation is not None else ()
    marking = Marking(stable=back.to, rejection=rejection, handled=handled)
    if rejection is None:
        return replace(step, rollout=given.stored, marking=marking)
    of_the_spec = rejection if rejection.revision == given.desired else None
    return replace(step, rollout=ended(given, rejection, back.to), marking=marking, rejection=of_the_spec)


def _counted(given: RolloutInput, step: RolloutStep, back: Return) -> RolloutProgress:
    """The stored return, or a new one, with its deadline."""
    before_it, state = given.stable or back.instead_of or "", given.of(back.to)
    begun, stored = (RolloutState.PROMOTING, back.to, before_it, back.reason), given.stored
    if stored is None or (stored.state, stored.revision, stored.from_revision, stored.reason) != begun:
        return RolloutProgress(
            state=RolloutState.PROMOTING,
            revision=back.to,
            from_revision=before_it,
            reason=back.reason,
            instead_of=back.instead_of or "",
            started_at=given.time,
            progress_at=given.time,
            high_water=state.ready,
        )
    refused = refused_to(given, back.to, step)
    undone = stored.refused if refused_writes.outstanding(given, step) else None
    stored = replace(stored, refused=refused or undone)
    if stored.progress_at is None:
        return deadline.begun(stored, given.time)
    awaits_place = step.makes_way is not None and state.replicas <= state.ready and refused is None
    lacks_capacity = back.annotation is None and (state.lacks_capacity or awaits_place)
    pods = deadline.DeadlinePods(
        state.ready,
        missing=state.ready < given.pods(back.to),
        lacks_capacity=lacks_capacity,
        downloads=state.downloads and back.annotation is None,
    )
    return deadline.counted(stored, pods, given.spec.progress_deadline, given.time)


def _failure(given: RolloutInput, rollout: RolloutProgress, back: Return) -> Rejection | None:
    """Why the return is given up, if it is."""
    state, spec, actions = given.of(back.to), given.spec, given.actions
    trouble = state.trouble or rollout.refused
    if actions.revision(ABORT_ANNOTATION) == back.to:
        return Rejection(back.to, Reason.ABORTED_MANUALLY, messages.aborted(actions.by), actions.by)
    if state.restarts >= spec.restart_limit:
        reason = trouble.reason if trouble is not None else Reason.CRASH_LOOP
        return Rejection(back.to, reason, messages.restarts(state.restarts, trouble))
    if deadline.overdue(rollout, spec.progress_deadline, given.time):
        reason = trouble.reason if trouble is not None else Reason.DEADLINE_EXCEEDED
        return Rejection(back.to, reason, messages.overdue(spec.progress_deadline, trouble, state.unready))
    return None


def _given_up(given: RolloutInput, back: Return, failure: Rejection) -> RolloutStep:
    """What serves keeps the requests, or gets them back."""
    step = drop_candidate(given, given.stable)
    by_itself = back.annotation is None and failure.reason != Reason.ABORTED_MANUALLY
    done = (back.annotation, ABORT_ANNOTATION)
    handled = tuple(action for action in given.actions.asked(back.to) if action in done)
    other = another(given, back.to, given.stable)
    command = given.commands.tailbound("rollback", "--to", other) if other is not None else None
    message = messages.given_up(back.to, failure, given.stable, command)
    if given.desired is not None and given.desired == given.stable:
        after = RolloutProgress(
            state=RolloutState.PROMOTED, revision=given.desired, from_revision=back.to, weight=100
        )
    else:
        after = RolloutProgress(
            state=RolloutState.ROLLED_BACK, revision=back.to, from_revision=given.stable or ""
        )
    return replace(
        step,
        rollout=after.at(after.state, failure.reason, message),
        marking=Marking(
            rejection=failure if by_itself else None,
            not_returned=None if by_itself else failure,
            handled=handled,
        ),
    )


def _under_way(given: RolloutInput, step: RolloutStep, rollout: RolloutProgress, back: Return) -> RolloutStep:
    other = back.instead_of or given.stable or ""
    where = obstruction(given, back.to, step)
    if where and back.annotation is not None:
        where = messages.given_up_after(back.to, given.spec.progress_deadline) + where
    message = messages.returning(back.to, other, back.message, where)
    rollout = rollout.at(RolloutState.PROMOTING, back.reason, message)
    weight = weight_of(step.flow.traffic, back.to)
    rollout = replace(rollout, weight=weight, in_place=step.makes_way is not None)
    manual = back.annotation is not None and given.of(back.to).rejection is not None
    end = deadline.ends_at(rollout, given.spec.progress_deadline)
    return replace(
        step,
        rollout=rollout,
        marking=Marking(cleared=back.to if manual else None),
        stable=given.stable,
        candidate=back.to,
        wake=end - given.time if end is not None else None,
    )


def _taking_back(given: RolloutInput, stable: str, back: str) -> RolloutStep:
    """What is on its way ends: the stable one has the requests until `back` is there, and keeps its pods.

    Where places change hands it gets its own before every other revision.
    """
    others = with_requests(given, {stable, back})
    rejected = {name for name in others if given.of(name).rejection is not None}
    turn = in_turn(given, stable, rejected, lost=False)
    if turn is not None:
        return exchanging(turn, stable)
    where = flow(given, stable, None, 0, rejected)
    fleet = {stable: given.pods(stable), back: given.pods(back)}
    return RolloutStep(where, None, stable, None, fleet, shrink=False)
