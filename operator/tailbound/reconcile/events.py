"""The Events of a change of status: one per new reason of a condition or of the rollout."""

from collections.abc import Sequence
from typing import Final

from tailbound.api.conditions import ConditionType, Reason
from tailbound.api.meta import Condition
from tailbound.api.rejection import Superseded
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.reconcile.model import Event
from tailbound.rollout import messages

# Reconciling and Stalled repeat what the others say.
_WITH_EVENTS: Final = (
    ConditionType.READY,
    ConditionType.SCHEDULED,
    ConditionType.MODEL_VERIFIED,
    ConditionType.TRAFFIC_APPLIED,
    ConditionType.RUNTIME_OUTDATED,
    ConditionType.ACTION_REFUSED,
    ConditionType.CONFLICT,
    ConditionType.JUDGED,
    ConditionType.SIGNATURE_CHANGED,
)
# Reasons of type Normal: success, and the expected steps of a rollout.
_NORMAL: Final = frozenset(
    {
        Reason.SERVING,
        Reason.DIGEST_MATCHES,
        Reason.STARTING,
        Reason.FETCHING,
        Reason.ROLLING_OUT,
        Reason.STOPPED,
        Reason.ANALYSING,
        Reason.PROMOTED,
        Reason.PROMOTED_MANUALLY,
        Reason.AWAITING_PROMOTION,
        Reason.PAUSED,
        Reason.NOT_JUDGED,
    }
)
# Reasons without an Event: with one for each, the others would be hard to find.
_QUIET: Final = frozenset(
    {
        Reason.PENDING,
        Reason.SCHEDULED,
        Reason.ACKNOWLEDGED,
        Reason.UP_TO_DATE,
        Reason.RECONCILED,
        Reason.NOT_STALLED,
        Reason.NO_ACTION_REFUSED,
        Reason.NO_CONFLICT,
        Reason.WAITING_FOR_GATEWAY,
        Reason.SIGNATURE_UNCHANGED,
        Reason.SIGNATURE_UNKNOWN,
        Reason.SIGNATURE_ACCEPTED,
    }
)


def transitions(
    before: Sequence[Condition], after: Sequence[Condition], rollout: RolloutStatus | None = None
) -> tuple[Event, ...]:
    """The Events between two statuses: at most one per reason, however many conditions carry it.

    `rollout` is that of the status before: a condition that repeats its message gets no second Event.
    """
    old = {condition.type: condition.reason for condition in before}
    known = {reason for kind, reason in old.items() if kind in _WITH_EVENTS}
    said = rollout.message if rollout is not None and rollout.from_revision else None
    new = {condition.type: condition for condition in after}
    events: dict[str, Event] = {}
    for kind in _WITH_EVENTS:
        condition = new.get(kind)
        if condition is None or condition.reason in _QUIET:
            continue
        if condition.reason in known or condition.message == said:
            continue
        reason: str = condition.reason
        if (old.get(kind), reason) == (Reason.NOT_READY, Reason.ROLLED_BACK):
            # The rollback had its Event when it happened. The news is that requests are answered again.
            reason = Reason.SERVING
        severity = "Normal" if reason in _NORMAL else "Warning"
        events.setdefault(reason, Event(severity, reason, condition.message))
    return tuple(events.values())


def rollout_transition(
    before: RolloutStatus | None, after: RolloutStatus | None, others: Sequence[Event]
) -> tuple[Event, ...]:
    """The Event of a rollout's step, unless a condition reports it. A first deployment is no rollout.

    A rollback has one Event of type Warning and reason `RolledBack`, whatever its cause. A rollback that a
    user asked for begins like any rollout, and ends with that Event.
    """
    if after is None or not after.from_revision or _place(before) == _place(after):
        return ()
    rolled_back = after.state is RolloutState.ROLLED_BACK
    reason = Reason.ROLLED_BACK if rolled_back else after.reason or after.state
    if reason == Reason.ROLLED_BACK_MANUALLY:
        reason = Reason.ROLLING_OUT
    if reason in _QUIET or reason in {event.reason for event in others}:
        return ()
    wrong = rolled_back or reason not in _NORMAL
    return (Event("Warning" if wrong else "Normal", reason, after.message),)


def given_up(superseded: Superseded | None) -> tuple[Event, ...]:
    """The Event of a rollout that a newer spec ended before its verdict."""
    if superseded is None:
        return ()
    return (Event("Normal", Reason.SUPERSEDED, messages.superseded(superseded)),)


def _place(rollout: RolloutStatus | None) -> tuple[object, ...]:
    if rollout is None:
        return ()
    return (rollout.revision, rollout.state, rollout.reason, rollout.step)
