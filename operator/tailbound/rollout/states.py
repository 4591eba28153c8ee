"""The next state of a rollout that is under way, its reason and its message: one function for each situation.

The first one that has an answer decides (`RULES`):

| function | situation | states that may follow |
|---|---|---|
| `pending` | it waits for an earlier canary to end | Pending |
| `without_capacity` | its pods lack capacity | what it was, with what would help |
| `paused` | it is held by an annotation, or awaits its promotion | Paused, Starting |
| `without_data` | a gateway's counters, or a metric, are missing for longer than `dataTimeout` | Paused |
| `promoting` | it is to have all requests | Starting, Promoting, Promoted |
| `starting` | it has no request yet | Starting |
| `applying` | the gateways do not apply the weight of its step yet | Analysing, Paused |
| `analysing` | its step has begun | Analysing, Paused, Promoting |

Behind the last step, `promotion: manual` waits (Paused, AwaitingPromotion) for the action `promote`;
blueGreen and recreate have no step before it. `rejections.py` comes before all of these.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.rollout import OnInconclusive, Promotion, RolloutSpec, RolloutState, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.judge.verdict import Outcome
from tailbound.rollout import capacity_shortage, messages, plan, steps
from tailbound.rollout.model import RolloutInput, TrafficDecision
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.sizing import ALL


@dataclass(frozen=True)
class Look:
    """What the next state follows from."""

    given: RolloutInput
    rollout: RolloutProgress
    traffic: TrafficDecision
    verdict: Verdict


@dataclass(frozen=True)
class Transition:
    """The next state, and why."""

    state: RolloutState
    reason: str
    message: str
    following: RolloutProgress | None = None
    """The rollout at its next step, where the present one has passed."""


def transition(look: Look) -> Transition:
    """The next state."""
    return next(found for rule in RULES if (found := rule(look)) is not None)


def pending(look: Look) -> Transition | None:
    """The candidate waits for others to make way: `placement.py` has said why."""
    rollout = look.rollout
    if rollout.state is not RolloutState.PENDING:
        return None
    return Transition(rollout.state, rollout.reason, rollout.message)


def without_capacity(look: Look) -> Transition | None:
    """The candidate waits without a limit: only the cluster, or a pod that ends, can free capacity."""
    given, rollout = look.given, look.rollout
    if rollout.no_capacity_since is None or steps.paused(given, rollout):
        return None
    reason, message = capacity_shortage.shortage(given, rollout)
    begun = rollout.state is RolloutState.PROMOTING or plan.promoted_manually(rollout)
    beside = RolloutState.ANALYSING if rollout.weight else RolloutState.STARTING
    state = RolloutState.PROMOTING if begun else beside
    return Transition(state, plan.unless_manual(rollout, reason), message)


def paused(look: Look) -> Transition | None:
    """The annotation `pause` names the candidate, or everything is passed and it has to be promoted."""
    given, rollout = look.given, look.rollout
    if steps.paused(given, rollout):
        return Transition(RolloutState.PAUSED, Reason.PAUSED, messages.paused(rollout, given.commands))
    if not steps.awaiting(given, rollout):
        return None
    if steps.short(given, rollout) and given.spec.strategy is not Strategy.RECREATE:
        return Transition(RolloutState.STARTING, Reason.STARTING, messages.starting(rollout))
    return Transition(RolloutState.PAUSED, Reason.AWAITING_PROMOTION, messages.awaiting(rollout))


def without_data(look: Look) -> Transition | None:
    """Counters are missing for too long, and it shares the requests with stable: no data is no verdict."""
    given, rollout, verdict = look.given, look.rollout, look.verdict
    timeout = given.spec.analysis.data_timeout.timedelta
    overdue = verdict.unread_since is not None and given.time >= verdict.unread_since + timeout
    if not overdue or rollout.weight == ALL or plan.promoted_manually(rollout):
        return None
    return Transition(RolloutState.PAUSED, Reason.NO_DATA, messages.no_data(verdict.unread_why))


def promoting(look: Look) -> Transition | None:
    """The candidate is to have all requests, and is promoted once the old pods were kept long enough after.

    | has all requests | its pods | the old pods are kept on (`_keeps_old_pods`) | state |
    |---|---|---|---|
    | no, and has not begun to take over | any | any | Starting |
    | no | any | any | Promoting |
    | yes | too few | any | Promoting |
    | yes | enough | yes | Promoting |
    | yes | enough | no | Promoted |
    """
    given, rollout, verdict = look.given, look.rollout, look.verdict
    if not plan.is_last(rollout):
        return None
    reason = plan.unless_manual(rollout, Reason.ROLLING_OUT)
    begun = rollout.state is RolloutState.PROMOTING or plan.promoted_manually(rollout)
    if rollout.weight < ALL and not begun:
        return Transition(RolloutState.STARTING, Reason.STARTING, messages.starting(rollout))
    if rollout.weight < ALL:
        message = messages.carries(rollout, ALL) if rollout.weight else messages.starting(rollout)
        return Transition(RolloutState.PROMOTING, reason, message)
    if steps.short(given, rollout):
        recreated = given.spec.strategy is Strategy.RECREATE
        message = capacity_shortage.starting(given, rollout) if recreated else messages.short_of_pods(rollout)
        return Transition(RolloutState.PROMOTING, reason, message)
    waits = _keeps_old_pods(look)
    if waits is not None:
        return Transition(RolloutState.PROMOTING, reason, waits)
    promoted = plan.unless_manual(rollout, Reason.PROMOTED)
    return Transition(RolloutState.PROMOTED, promoted, messages.promoted(rollout, verdict))


def starting(look: Look) -> Transition | None:
    """Its pods are on their way, and it has no request yet."""
    if look.rollout.weight:
        return None
    return Transition(RolloutState.STARTING, Reason.STARTING, messages.starting(look.rollout))


def applying(look: Look) -> Transition | None:
    """Its step has not begun: first row that fits.

    | what holds | state |
    |---|---|
    | its step has begun | none: it is judged |
    | its pods carry less than the weight of the step | Analysing |
    | the weight was asked for as long as a step may take | Paused; it may still begin |
    | otherwise | Analysing |
    """
    given, rollout = look.given, look.rollout
    if rollout.weight < rollout.step_weight:
        message = messages.carries(rollout, rollout.step_weight)
        return Transition(RolloutState.ANALYSING, Reason.ROLLING_OUT, message)
    if steps.never_began(given, rollout):
        message = messages.never_began(rollout, given.spec.max_step_time)
        return Transition(RolloutState.PAUSED, Reason.INCONCLUSIVE, message)
    if rollout.step_started_at is None:
        message = messages.applying(rollout, rollout.step_weight)
        return Transition(RolloutState.ANALYSING, Reason.ROLLING_OUT, message)
    return None


class StepEnd(StrEnum):
    """How a step with a weight below 100 ends."""

    PASSED = "Passed"
    NO_DATA = "NoData"
    INCONCLUSIVE = "Inconclusive"


def step_end(
    spec: RolloutSpec, elapsed: timedelta, outcome: Outcome | None, *, passes: bool, lacks: bool = False
) -> StepEnd | None:
    """How a step ends that began so long ago; None while it goes on. First row that fits.

    `passes`: there is nothing to judge by, or it has passed for as long as a request may take; `lacks`: data
    is missing, or a metric has had no sample.

    | what holds | end |
    |---|---|
    | `minStepTime` is over, and it passes | passed |
    | `maxStepTime` is not over | none |
    | something is missing | no data |
    | `onInconclusive` is promote, and stable is not as bad | passed |
    | otherwise | inconclusive |
    """
    promote = spec.on_inconclusive is OnInconclusive.PROMOTE and outcome is not Outcome.HOLD
    rules = (
        (elapsed >= spec.min_step_time.timedelta and passes, StepEnd.PASSED),
        (elapsed < spec.max_step_time.timedelta, None),
        (lacks, StepEnd.NO_DATA),
        (promote, StepEnd.PASSED),
    )
    return next((end for holds, end in rules if holds), StepEnd.INCONCLUSIVE)


def analysing(look: Look) -> Transition:
    """Its step has begun, and is judged.

    | step (`step_end`) | verdict | state |
    |---|---|---|
    | passed | any | the next step: Analysing, Promoting, or Paused for a manual promotion |
    | without data, inconclusive | any | Paused; a later pass still counts |
    | goes on | stable is as bad | Analysing, SharedBreach |
    | goes on | any other | Analysing |
    """
    given, rollout, verdict, spec = look.given, look.rollout, look.verdict, look.given.spec
    assert rollout.step_started_at is not None, "its step has begun"
    passes = verdict.passes(given.time, given.timeout)
    elapsed, lacks = given.time - rollout.step_started_at, bool(verdict.lacks)
    end = step_end(spec, elapsed, verdict.outcome, passes=passes, lacks=lacks)
    if end is StepEnd.PASSED:
        return _passed(look)
    if end is StepEnd.NO_DATA:
        return Transition(RolloutState.PAUSED, Reason.NO_DATA, messages.no_data(verdict.lacks))
    if end is StepEnd.INCONCLUSIVE:
        message = messages.inconclusive(rollout, spec, verdict)
        return Transition(RolloutState.PAUSED, Reason.INCONCLUSIVE, message)
    if verdict.outcome is Outcome.HOLD:
        return Transition(RolloutState.ANALYSING, Reason.SHARED_BREACH, messages.shared(rollout, verdict))
    message = messages.analysing(rollout, len(spec.weights), look.traffic.target)
    if verdict.unread_since is not None:
        message = f"{message}; {messages.no_data(verdict.unread_why)}"
    return Transition(RolloutState.ANALYSING, Reason.ANALYSING, message)


RULES: Final[tuple[Callable[[Look], Transition | None], ...]] = (
    pending,
    without_capacity,
    paused,
    without_data,
    promoting,
    starting,
    applying,
    analysing,
)
"""The functions of the table above, in its order."""


def _passed(look: Look) -> Transition:
    """The next step begins, or the promotion, where that needs no action."""
    given, rollout = look.given, look.rollout
    following = steps.planned(given, replace(rollout, passed=rollout.step_weight))
    message = messages.passed(rollout, following.step_weight)
    if not plan.is_last(following):
        return Transition(RolloutState.ANALYSING, Reason.ROLLING_OUT, message, following)
    if given.spec.promotion is Promotion.MANUAL:
        message = messages.awaiting(rollout)
        return Transition(RolloutState.PAUSED, Reason.AWAITING_PROMOTION, message, following)
    return Transition(RolloutState.PROMOTING, Reason.ROLLING_OUT, message, following)


def keeps_old_pods(spec: RolloutSpec, elapsed: timedelta, *, suspects: bool) -> bool:
    """Whether a candidate that has all requests for so long may still return them.

    It takes several windows to reject what is bad, which may be longer than `scaleDownDelay`.
    """
    undecided = suspects and elapsed < spec.max_step_time.timedelta
    return elapsed < spec.scale_down_delay.timedelta or undecided


def _keeps_old_pods(look: Look) -> str | None:
    """Why a candidate that has all requests has not taken over yet; None if it has."""
    given, rollout, spec = look.given, look.rollout, look.given.spec
    if rollout.step_started_at is None:
        return messages.applying(rollout, ALL)
    elapsed = given.time - rollout.step_started_at
    suspects = look.verdict.suspects and not plan.promoted_manually(rollout)
    early = elapsed < spec.scale_down_delay.timedelta or not look.traffic.settled
    rules = (
        (early, messages.promoting(rollout, spec.scale_down_delay)),
        (
            keeps_old_pods(spec, elapsed, suspects=suspects),
            messages.undecided(rollout, spec.max_step_time),
        ),
        (given.marks_refused, messages.unmarked(rollout)),
    )
    return next((message for holds, message in rules if holds), None)
