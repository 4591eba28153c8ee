"""Which step of the plan a rollout is at: found by weights, so that an edit of the plan skips no proof. Pure.

The weight of the present step (first row that fits; "the plan" are the weights of the spec as it is, "passed"
is the most with which the candidate has passed, "has" the weight that it has):

| what holds | weight |
|---|---|
| it is promoted manually, or it has all requests | all |
| the plan asks for a proof with more than passed, and at most what it has | what it has |
| the plan has a weight above passed and above what it has | the least of those |
| it was observed with the weight of a step that has not passed | that one, though the plan does not name it |
| otherwise | all |

So the weight never falls because the plan was changed, and a proof is given with more requests than the plan
asks for rather than with fewer.
"""

from collections.abc import Sequence
from dataclasses import replace

from tailbound.api.conditions import Reason
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.sizing import ALL


def weight(weights: Sequence[int], rollout: RolloutProgress, *, manual: bool) -> int:
    """Percent of the requests at the present step of a plan with these weights."""
    has, passed, present = rollout.weight, rollout.passed, rollout.step_weight
    owed = any(passed < each <= has for each in weights)
    ahead = min((each for each in weights if each > max(passed, has)), default=ALL)
    reached = rollout.step_started_at is not None or has == present
    rules = (
        (manual or has == ALL, ALL),
        (owed, has),
        (ahead < ALL, ahead),
        (passed < present < ALL and reached, present),
    )
    return next((percent for holds, percent in rules if holds), ALL)


def unbegun(rollout: RolloutProgress) -> RolloutProgress:
    """The rollout with its present step still to begin."""
    return replace(rollout, step_started_at=None, step_asked_at=None, step_held_by="")


def number(weights: Sequence[int], percent: int) -> int:
    """The number of the step with this weight, from 0; behind the last one for all requests."""
    return sum(each < percent for each in weights)


def is_last(rollout: RolloutProgress) -> bool:
    """The present step is the one with all requests."""
    return rollout.step_weight == ALL


def promoted_manually(rollout: RolloutProgress) -> bool:
    """The candidate was promoted manually; it is on its last step."""
    return rollout.reason == Reason.PROMOTED_MANUALLY


def unless_manual(rollout: RolloutProgress, reason: Reason) -> Reason:
    """PromotedManually for a candidate that was promoted manually, else `reason`."""
    return Reason.PROMOTED_MANUALLY if promoted_manually(rollout) else reason
