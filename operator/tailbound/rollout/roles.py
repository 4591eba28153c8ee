"""Which revision requests return to, and which one is on its way.

The base (first row that fits):

| what there is | base |
|---|---|
| a return to an older revision is asked for, or the promoted one is lost | that one |
| a revision marked stable, and not rejected | that one, but for the next row |
| it has no ready endpoint, a third one serves that is not rejected, and neither is desired | the third one |
| a rollout to the desired one is under way, and what it began from has ready endpoints | that one |
| another than the desired one has the weight, and ready endpoints | that one |
| no weights are known, and another than the desired one has ready endpoints | the newest of them |
| revisions that were promoted once, and not rejected since | the one promoted last |
| nothing | none: the desired revision is the first |

The candidate is the desired revision, unless it is the base, is to make way for an older one, or was
rejected and is not to be tried again yet (`again.py`). A rejection counts only while there is a base.
"""

from dataclasses import dataclass

from tailbound.api.conditions import Reason
from tailbound.api.names import RETRY_ANNOTATION, ROLLBACK_ANNOTATION
from tailbound.api.rejection import Rejection
from tailbound.api.rollout import RolloutState
from tailbound.rollout import again
from tailbound.rollout.model import RolloutInput
from tailbound.rollout.weights import current, weight_of


@dataclass(frozen=True)
class Return:
    """An older revision becomes the stable one again: scaled up first, then weight, then the rest goes."""

    to: str
    reason: Reason
    message: str
    instead_of: str | None
    """The revision that is rejected once the older one has taken over; None if none of it was ever made."""
    by: str | None = None
    """The user who asked for it, where that is known."""
    annotation: str | None = None
    """The action that asked for it."""

    @property
    def rejection(self) -> Rejection | None:
        """The rejection of the revision that it takes the place of."""
        other = self.instead_of
        return Rejection(other, self.reason, self.message, self.by) if other is not None else None


@dataclass(frozen=True)
class Roles:
    """The revisions of a rollout, by their part in it."""

    base: str | None
    candidate: str | None
    back: Return | None = None
    retried: bool = False
    """The candidate was rejected, and is tried again: a user asks for it, or its cause may have ended."""


def roles(given: RolloutInput) -> Roles:
    """The base, the candidate and the return of this situation."""
    back = _asked_for(given) or _lost(given)
    if back is not None:
        return Roles(base=back.to, candidate=None, back=back)
    base, desired = _base(given), given.desired
    if desired is None or desired == base:
        return Roles(base, None)
    state = given.of(desired)
    if state.rejection is None or base is None:
        return Roles(base, desired)
    again_now = _retried(given, desired) or again.due(given, desired)
    return Roles(base, desired, retried=True) if again_now else Roles(base, None)


def _retried(given: RolloutInput, name: str) -> bool:
    """Whether a retry is asked for that was not acted on."""
    return given.actions.revision(RETRY_ANNOTATION) == name


def _base(given: RolloutInput) -> str | None:
    fit = {name: state for name, state in given.revisions.items() if state.rejection is None}
    if given.stable in fit:
        return stand_in(given) or given.stable
    others = {name: state for name, state in fit.items() if name != given.desired and state.ready}
    present = next((name for name in (_begun_from(given), current(given, None)) if name in others), None)
    if present is not None:
        return present
    if given.traffic is None and others:
        return max(others, key=lambda name: (others[name].number, name))
    promoted = [
        (state.promoted_at, name) for name, state in fit.items() if state.promoted_at and state.restorable
    ]
    return max(promoted)[1] if promoted else None


def _begun_from(given: RolloutInput) -> str | None:
    """The base of the rollout to the desired revision that is under way."""
    stored = given.stored
    under_way = stored is not None and stored.revision == given.desired and not stored.is_over
    return stored.from_revision if stored is not None and under_way else None


def stand_in(given: RolloutInput) -> str | None:
    """The revision that serves because the stable one cannot, while a third one is desired.

    Beside a stable revision that takes nothing back no rollout would ever begin. It stays the same one for
    as long as a rollout from it lasts.
    """
    if given.stable in (None, given.desired) or given.ready(given.stable):
        return None
    stored = given.stored
    able = {
        name: weight_of(given.traffic, name)
        for name, state in given.revisions.items()
        if name not in (given.stable, given.desired) and state.ready and state.rejection is None
    }
    if stored is not None and stored.revision == given.desired and stored.from_revision in able:
        return stored.from_revision
    heaviest = max(able, key=lambda name: (able[name], name), default=None)
    return heaviest if heaviest is not None and able[heaviest] else None


def _asked_for(given: RolloutInput) -> Return | None:
    """The return that the action `rollback-to` asks for; None if its revision never served."""
    to = given.actions.revision(ROLLBACK_ANNOTATION)
    if to is None or given.stopped or not can_serve(given, to):
        return None
    return Return(
        to,
        Reason.ROLLED_BACK_MANUALLY,
        f"a rollback to {to} was requested",
        _to_replace(given, to),
        given.actions.by,
        ROLLBACK_ANNOTATION,
    )


def _to_replace(given: RolloutInput, to: str) -> str | None:
    """The revision that this return is to replace.

    | what there is | revision |
    |---|---|
    | the return is under way | the one that was found when it began, whatever the spec says since |
    | the desired one has pods, or had all requests | that one |
    | another has most of the requests, or is marked stable | that one: the spec is newer than the request |
    | nothing | none |
    """
    stored, desired = given.stored, given.desired
    if stored is not None and (stored.state, stored.revision, stored.reason) == (
        RolloutState.PROMOTING,
        to,
        Reason.ROLLED_BACK_MANUALLY,
    ):
        return stored.instead_of or None
    made = given.of(desired).deployed or given.of(desired).promoted_at is not None
    choices = (desired if made else None, current(given, None), given.stable)
    return next((name for name in choices if name is not None and name != to), None)


def can_serve(given: RolloutInput, name: str) -> bool:
    """An older revision that requests may return to."""
    state = given.of(name)
    return name != given.desired and state.restorable and state.promoted_at is not None


def _lost(given: RolloutInput) -> Return | None:
    """The promoted revision has had no ready endpoint for longer than its deadline: the one before serves.

    Once that one has the weight, the lost one gets it back only by a `retry`.
    """
    stored, stable = given.stored, given.stable
    if stored is None or stable is None or stable != given.desired or given.stopped:
        return None
    begun = stored.state is RolloutState.PROMOTING and stored.revision != stable
    to = stored.revision if begun else before(given, stored.from_revision)
    if to is None or not can_serve(given, to):
        return None
    gone = f"none of its endpoints has been ready for {given.spec.progress_deadline}"
    back = Return(to, Reason.LOST, gone, instead_of=stable)
    if begun:
        taken_over = stored.reason == Reason.LOST and current(given, None) == to and given.ready(to) > 0
        return back if taken_over or (stored.reason == Reason.LOST and not given.ready(stable)) else None
    overdue = (
        stored.state in (RolloutState.PROMOTED, RolloutState.PROMOTING)
        and stored.progress_at is not None
        and given.time >= stored.progress_at + given.spec.progress_deadline.timedelta
    )
    return back if overdue and not given.ready(stable) else None


def before(given: RolloutInput, from_revision: str) -> str | None:
    """The revision that served before the stable one, or else the one promoted last of all others."""
    if from_revision and can_serve(given, from_revision) and given.of(from_revision).rejection is None:
        return from_revision
    return another(given)


def another(given: RolloutInput, *but: str | None) -> str | None:
    """The revision promoted last of all that requests may return to, except those in `but`."""
    promoted = [
        (state.promoted_at, name)
        for name, state in given.revisions.items()
        if state.promoted_at and state.rejection is None and can_serve(given, name) and name not in but
    ]
    return max(promoted)[1] if promoted else None
