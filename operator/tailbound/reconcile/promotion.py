"""Promoted: whether the newest spec's revision has taken over for good.

First rule that fits (`RULES`):

| rule | desired revision | status.rollout | status | reason |
|---|---|---|---|---|
| `not_made` | none | any | Unknown | Pending |
| `rejected` | was rejected | any | False | RolledBack |
| `stopped` | is another than the stable one, and spec.stopped is true | any | Unknown | Stopped |
| `taken_over` | is stable with all requests, and takes none back | any | True | Promoted, PromotedManually |
| `without_rollout` | any other | none, or over | Unknown | RollingOut |
| `under_way` | any other | any other | Unknown | that of the rollout, or RollingOut |
"""

from collections.abc import Callable
from typing import Final

from tailbound.api.conditions import Reason, known_reason
from tailbound.api.rollout import RolloutState
from tailbound.reconcile.condition_verdict import FALSE, TRUE, UNKNOWN, ConditionVerdict
from tailbound.reconcile.facts import Facts
from tailbound.rollout import again
from tailbound.rollout.sizing import ALL
from tailbound.rollout.weights import weight_of


def promoted(facts: Facts) -> ConditionVerdict:
    """The condition."""
    return next(verdict for rule in RULES if (verdict := rule(facts)) is not None)


def not_made(facts: Facts) -> ConditionVerdict | None:
    """There is no revision of this spec."""
    if facts.name is not None:
        return None
    return ConditionVerdict(UNKNOWN, Reason.PENDING, f"{_outage(facts)}there is no revision of this spec yet")


def rejected(facts: Facts) -> ConditionVerdict | None:
    """The revision was rejected."""
    rejection = facts.step.rejection
    if rejection is None:
        return None
    what_to_do = f". What to do: {again.remedy(facts.step.again_at, facts.commands)}"
    return ConditionVerdict(FALSE, Reason.ROLLED_BACK, _outage(facts) + rejection.message + what_to_do)


def stopped(facts: Facts) -> ConditionVerdict | None:
    """Nothing takes over while the service is stopped."""
    if not facts.stopped or facts.name == facts.step.stable:
        return None
    waits = f"spec.stopped is true: {facts.name} cannot take over before spec.stopped is false"
    return ConditionVerdict(UNKNOWN, Reason.STOPPED, waits)


def taken_over(facts: Facts) -> ConditionVerdict | None:
    """The revision is stable, with all requests, and does not take them back from another one."""
    name, step, rollout = facts.name, facts.step, facts.step.rollout
    moves = rollout is not None and (rollout.revision, rollout.state) == (name, RolloutState.PROMOTING)
    has_all = facts.stopped or weight_of(step.flow.traffic, name) == ALL
    if name != step.stable or not has_all or moves:
        return None
    manual = rollout is not None and rollout.reason == Reason.PROMOTED_MANUALLY
    reason = Reason.PROMOTED_MANUALLY if manual else Reason.PROMOTED
    return ConditionVerdict(TRUE, reason, f"{_outage(facts)}{name} has taken over")


def without_rollout(facts: Facts) -> ConditionVerdict | None:
    """No rollout says how far it is."""
    if facts.step.rollout is not None and not facts.step.rollout.is_over:
        return None
    message = f"{_outage(facts)}{facts.name} does not get all requests yet"
    return ConditionVerdict(UNKNOWN, Reason.ROLLING_OUT, message)


def under_way(facts: Facts) -> ConditionVerdict | None:
    """The rollout goes on. Another version of the operator may have stored an unknown reason."""
    rollout = facts.step.rollout
    if rollout is None:
        return None
    reason = known_reason(rollout.reason) or Reason.ROLLING_OUT
    return ConditionVerdict(UNKNOWN, reason, _outage(facts) + rollout.message)


RULES: Final[tuple[Callable[[Facts], ConditionVerdict | None], ...]] = (
    not_made,
    rejected,
    stopped,
    taken_over,
    without_rollout,
    under_way,
)
"""The rows of the table above, in its order."""


def _outage(facts: Facts) -> str:
    """The beginning of a message that requests fail; empty while they are answered."""
    return facts.serves_now if facts.down is not None else ""
