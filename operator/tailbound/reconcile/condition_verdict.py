"""What a rule of the conditions decides."""

from dataclasses import dataclass
from typing import Final

from tailbound.api.conditions import ConditionStatus, Reason

TRUE: Final = ConditionStatus.TRUE
FALSE: Final = ConditionStatus.FALSE
UNKNOWN: Final = ConditionStatus.UNKNOWN


@dataclass(frozen=True)
class ConditionVerdict:
    """The status, reason and message of a condition, without its times."""

    status: ConditionStatus
    reason: Reason
    message: str
