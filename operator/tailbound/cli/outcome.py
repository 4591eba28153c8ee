"""When waiting is over, and with which exit status. Pure.

| newest spec observed | condition Promoted | status.rollout | asked for, not yet done | exit status |
|---|---|---|---|---|
| no | - | - | - | waits |
| yes | True | - | - | 0 |
| yes | False | - | no retry | 2 |
| yes | other | Paused | no promote, abort or resume | 3 |
| yes | any other combination | - | - | waits |
"""

from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import ConditionStatus, ConditionType, Reason
from tailbound.api.names import ABORT_ANNOTATION, PROMOTE_ANNOTATION, RETRY_ANNOTATION
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.cli.subject import Subject
from tailbound.rollout.hands import read_hands

PROMOTED: Final = 0
TIMED_OUT: Final = 1
ROLLED_BACK: Final = 2
PAUSED: Final = 3


@dataclass(frozen=True)
class Outcome:
    """How waiting ended."""

    code: int
    message: str


def outcome(subject: Subject) -> Outcome | None:
    """How it ended; None while it has not."""
    service, rollout = subject.service, subject.rollout
    promoted = service.status.condition(ConditionType.PROMOTED)
    if promoted is None or promoted.observed_generation != service.metadata.generation:
        return None
    if promoted.status is ConditionStatus.TRUE:
        return Outcome(PROMOTED, f"{subject.title} promoted: {promoted.message}")
    if promoted.status is ConditionStatus.FALSE:
        retried = rollout is not None and _to_be_retried(subject, rollout.revision)
        return None if retried else Outcome(ROLLED_BACK, f"{subject.title} rolled back: {promoted.message}")
    if rollout is not None and rollout.state is RolloutState.PAUSED and not _to_go_on(subject, rollout):
        return Outcome(PAUSED, f"{subject.title} paused: {rollout.message}")
    return None


def _to_go_on(subject: Subject, rollout: RolloutStatus) -> bool:
    """The operator has yet to act on what ends the pause."""
    hands = read_hands(subject.service.metadata.annotations, rollout.handled)
    asked = {hands.revision(PROMOTE_ANNOTATION), hands.revision(ABORT_ANNOTATION)}
    resumed = rollout.reason == Reason.PAUSED and not hands.pauses(rollout.revision)
    return resumed or rollout.revision in asked


def _to_be_retried(subject: Subject, revision: str) -> bool:
    value = subject.service.metadata.annotations.get(RETRY_ANNOTATION)
    entry = subject.entry(revision)
    if value is None or entry is None or value.partition("/")[0] != revision:
        return False
    return value != entry.marks.retried
