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
rejected. A rejection counts only while there is a base.
"""

from dataclasses import dataclass

from tailbound.api.conditions import Reason
from tailbound.api.names import RETRY_ANNOTATION, ROLLBACK_ANNOTATION
from tailbound.api.rollout import RolloutState
from tailbound.rollout.model import Rejection, RolloutInput
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
    """Who is who."""

    base: str | None
    candidate: str | None
    back: Return | None = None
    retried: bool = False
    """The candidate was rejected, and a retry is asked for."""


def roles(now: RolloutInput) -> Roles:
    """Who is who in this situation."""
    back = _asked_for(now) or _lost(now)
    if back is not None:
        return Roles(base=back.to, candidate=None, back=back)
    base, desired = _base(now), now.desired
    if desired is None or desired == base:
        return Roles(base, None)
    state = now.of(desired)
    if state.rejection is None or base is None:
        return Roles(base, desired)
    return Roles(base, desired, retried=True) if _retried(now, desired) else Roles(base, None)


def _retried(now: RolloutInput, name: str) -> bool:
    """Whether a retry is asked for that was not acted on."""
    return now.actions.revision(RETRY_ANNOTATION) == name


def _base(now: RolloutInput) -> str | None:
    fit = {name: state for name, state in now.revisions.items() if state.rejection is None}
    if now.stable in fit:
        return stand_in(now) or now.stable
    others = {name: state for name, state in fit.items() if name != now.desired and state.ready}
    present = next((name for name in (_begun_from(now), current(now, None)) if name in others), None)
    if present is not None:
        return present
    if now.traffic is None and others:
        return max(others, key=lambda name: (others[name].number, name))
    promoted = [
        (state.promoted_at, name) for name, state in fit.items() if state.promoted_at and state.restorable
    ]
    return max(promoted)[1] if promoted else None


def _begun_from(now: RolloutInput) -> str | None:
    """The base of the rollout to the desired revision that is under way."""
    stored, over = now.stored, (RolloutState.PROMOTED, RolloutState.ROLLED_BACK)
    under_way = stored is not None and stored.revision == now.desired and stored.state not in over
    return stored.from_revision if stored is not None and under_way else None


def stand_in(now: RolloutInput) -> str | None:
    """The revision that serves because the stable one cannot, while a third one is desired.

    Beside a stable revision that takes nothing back no rollout would ever begin. It stays the same one for
    as long as a rollout from it lasts.
    """
    if now.stable in (None, now.desired) or now.ready(now.stable):
        return None
    stored = now.stored
    able = {
        name: weight_of(now.traffic, name)
        for name, state in now.revisions.items()
        if name not in (now.stable, now.desired) and state.ready and state.rejection is None
    }
    if stored is not None and stored.revision == now.desired and stored.from_revision in able:
        return stored.from_revision
    heaviest = max(able, key=lambda name: (able[name], name), default=None)
    return heaviest if heaviest is not None and able[heaviest] else None


def _asked_for(now: RolloutInput) -> Return | None:
    """The action `rollback-to`. It names a revision that served once, or it is no return."""
    to = now.actions.revision(ROLLBACK_ANNOTATION)
    if to is None or now.stopped or not can_serve(now, to):
        return None
    return Return(
        to,
        Reason.ROLLED_BACK_MANUALLY,
        f"a return to {to} was asked for",
        _meant(now, to),
        now.actions.by,
        ROLLBACK_ANNOTATION,
    )


def _meant(now: RolloutInput, to: str) -> str | None:
    """The revision that this return is to replace.

    | what there is | revision |
    |---|---|
    | the return is under way | the one that was meant when it began, whatever the spec says since |
    | the desired one has pods, or had all requests | that one |
    | another has most of the requests, or is marked stable | that one: the spec is newer than the wish |
    | nothing | none |
    """
    stored, desired = now.stored, now.desired
    if stored is not None and (stored.state, stored.revision, stored.reason) == (
        RolloutState.PROMOTING,
        to,
        Reason.ROLLED_BACK_MANUALLY,
    ):
        return stored.instead_of or None
    made = now.of(desired).deployed or now.of(desired).promoted_at is not None
    choices = (desired if made else None, current(now, None), now.stable)
    return next((name for name in choices if name is not None and name != to), None)


def can_serve(now: RolloutInput, name: str) -> bool:
    """An older revision that requests may return to."""
    state = now.of(name)
    return name != now.desired and state.restorable and state.promoted_at is not None


def _lost(now: RolloutInput) -> Return | None:
    """The promoted revision has had no ready endpoint for longer than its deadline: the one before serves.

    Once that one has the weight, the lost one gets it back only by a `retry`.
    """
    stored, stable = now.stored, now.stable
    if stored is None or stable is None or stable != now.desired or now.stopped:
        return None
    begun = stored.state is RolloutState.PROMOTING and stored.revision != stable
    to = stored.revision if begun else before(now, stored.from_revision)
    if to is None or not can_serve(now, to):
        return None
    gone = f"none of its endpoints has been ready for {now.spec.progress_deadline}"
    back = Return(to, Reason.LOST, gone, instead_of=stable)
    if begun:
        taken_over = stored.reason == Reason.LOST and current(now, None) == to and now.ready(to) > 0
        return back if taken_over or (stored.reason == Reason.LOST and not now.ready(stable)) else None
    overdue = (
        stored.state in (RolloutState.PROMOTED, RolloutState.PROMOTING)
        and stored.progress_at is not None
        and now.now >= stored.progress_at + now.spec.progress_deadline.timedelta
    )
    return back if overdue and not now.ready(stable) else None


def before(now: RolloutInput, before: str) -> str | None:
    """The revision that served before the stable one, or else the one promoted last of all others."""
    if before and can_serve(now, before) and now.of(before).rejection is None:
        return before
    return another(now)


def another(now: RolloutInput, *but: str | None) -> str | None:
    """The revision promoted last of all that requests may return to, these left out."""
    promoted = [
        (state.promoted_at, name)
        for name, state in now.revisions.items()
        if state.promoted_at and state.rejection is None and can_serve(now, name) and name not in but
    ]
    return max(promoted)[1] if promoted else None
