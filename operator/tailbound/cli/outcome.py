"""The end of `kubectl tailbound wait`, and its exit status. Pure.

A status that is older than the marks on the revisions, the annotations or the spec tells nothing yet. First
row that fits:

| what is asked for, and not done yet | status is of now | condition Promoted | status.rollout | exit status |
|---|---|---|---|---|
| anything | stopped, and condition Promoted not True | - | - | 1 |
| rollback-to, of a revision that requests cannot return to | - | - | - | 1 |
| rollback-to, retry or refresh | - | - | - | waits |
| any | no | - | - | waits |
| rollback-to, of a revision whose return was given up | yes | True | Promoted | 1 |
| any | yes | True | - | 0 |
| any | yes | False | - | 2 |
| promote, abort or the end of a pause | yes | other | Paused | waits |
| anything else | yes | other | Paused | 3 |
| any | yes | other | other | waits |
"""

from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.meta import Condition
from tailbound.api.names import (
    ABORT_ANNOTATION,
    PROMOTE_ANNOTATION,
    REFRESH_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
)
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.cli.subject import Subject, gave_up_return
from tailbound.revisions.record import Origin, spec_origin
from tailbound.rollout.actions import Actions, named

PROMOTED: Final = 0
FAILED: Final = 1
ROLLED_BACK: Final = 2
PAUSED: Final = 3


@dataclass(frozen=True)
class WaitOutcome:
    """How waiting ended."""

    code: int
    message: str


def outcome(subject: Subject) -> WaitOutcome | None:
    """How it ended; None while it has not."""
    actions = subject.actions
    rollout, promoted = subject.rollout, subject.service.status.condition(ConditionType.PROMOTED)
    never = _never(subject, promoted) or _impossible(subject, actions.revision(ROLLBACK_ANNOTATION))
    if never is not None:
        return WaitOutcome(FAILED, f"{subject.title}: {never}")
    if (
        rollout is None
        or promoted is None
        or _to_come(subject, actions, rollout)
        or _stale(subject, promoted)
    ):
        return None
    if promoted.status is ConditionStatus.TRUE:
        stopped = f". {subject.serves()}" if subject.service.spec.stopped else ""
        given_up = _given_up(actions, rollout)
        said = rollout.message if given_up else f"promoted: {promoted.message}{stopped}"
        return WaitOutcome(FAILED if given_up else PROMOTED, f"{subject.title} {said}")
    if promoted.status is ConditionStatus.FALSE:
        return WaitOutcome(ROLLED_BACK, f"{subject.title} rolled back: {promoted.message}")
    if rollout.state is RolloutState.PAUSED and not _to_go_on(actions, rollout):
        return WaitOutcome(PAUSED, f"{subject.title} paused: {rollout.message}")
    return None


def awaited(subject: Subject) -> str | None:
    """What is yet to be looked at, to be changed or to be acted on, in words; None if nothing."""
    if subject.unseen is not None or subject.stalled is not None:
        return subject.unseen or subject.stalled
    for annotation, revision in subject.actions.open().items():
        if annotation in (RETRY_ANNOTATION, ROLLBACK_ANNOTATION, PROMOTE_ANNOTATION, ABORT_ANNOTATION):
            return f"{annotation} asks for {revision}, and the operator has not completed this action yet"
    return None


def _never(subject: Subject, promoted: Condition | None) -> str | None:
    """The message that no revision takes over while the service is stopped."""
    done = promoted is not None and promoted.status is ConditionStatus.TRUE
    if done or not subject.service.spec.stopped:
        return None
    return "the service is stopped, and no revision takes over before spec.stopped is false"


def _given_up(actions: Actions, rollout: RolloutStatus) -> bool:
    """The return that is asked for was given up: what served before still does."""
    asked = named(actions.values.get(ROLLBACK_ANNOTATION, ""))
    return rollout.from_revision == asked and gave_up_return(rollout)


def _impossible(subject: Subject, to: str | None) -> str | None:
    """Why a rollback that is asked for will never come."""
    if to is None:
        return None
    entry = subject.entry(to)
    if entry is None:
        return (
            f"{ROLLBACK_ANNOTATION} names {to}, which is not a revision of this service: "
            f"{subject.commands.tailbound('history')} lists them"
        )
    if entry.content is None or entry.marks.promoted_at is None:
        return (
            f"{ROLLBACK_ANNOTATION} names {to}, which has never taken over or is damaged: choose another "
            "revision"
        )
    return None


def _to_come(subject: Subject, actions: Actions, rollout: RolloutStatus) -> bool:
    """The operator has yet to begin or to end what was asked for."""
    rejected = rollout.state is RolloutState.ROLLED_BACK
    retried = rejected and actions.revision(RETRY_ANNOTATION) == rollout.revision
    if retried or actions.revision(ROLLBACK_ANNOTATION) is not None:
        return True
    entry = subject.entry(rollout.revision)
    if entry is None or entry.content is None:
        return False
    asked = subject.service.metadata.annotations.get(REFRESH_ANNOTATION, "")
    origin = spec_origin(entry.content.spec_json)
    return bool(asked) and Origin(origin.spec_hash, asked) not in subject.origins


def _stale(subject: Subject, promoted: Condition) -> bool:
    """The status is of another spec, or older than the marks, which are written before it."""
    rollout = subject.rollout
    if rollout is None or promoted.observed_generation != subject.service.metadata.generation:
        return True
    entry = subject.entry(rollout.revision)
    if entry is None:
        return False
    rejected = entry.marks.rejected is not None
    taken_over = promoted.status is ConditionStatus.TRUE
    return rejected != (promoted.status is ConditionStatus.FALSE) or (taken_over and not entry.marks.stable)


def _to_go_on(actions: Actions, rollout: RolloutStatus) -> bool:
    """The operator has yet to act on what ends the pause."""
    asked = {actions.revision(PROMOTE_ANNOTATION), actions.revision(ABORT_ANNOTATION)}
    resumed = rollout.reason == Reason.PAUSED and not actions.pauses(rollout.revision)
    return resumed or rollout.revision in asked
