"""The steps of a rollout: how many pods and which weight each needs, when it begins, and when to look again.

A candidate whose pods lack capacity waits and says so; no deadline runs meanwhile. A step with a weight below
100 begins once every gateway was seen to apply that weight. `states.py` says when the next one does.
"""

from dataclasses import replace
from datetime import timedelta

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Promotion, RolloutState, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.rollout import deadline, plan
from tailbound.rollout.demands import taken_back
from tailbound.rollout.in_place import awaits_place, climbing, dead_at, needed, settled_on
from tailbound.rollout.model import RolloutInput, RolloutStep, TrafficDecision
from tailbound.rollout.problem import Problem
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.refused_writes import hindrance
from tailbound.rollout.sizing import ALL


def planned(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout at the step that it is at by the plan of the spec as it is, which may have changed."""
    before = rollout.step_weight
    if given.demands is not None:
        rollout = taken_back(rollout, given.demands, followed=given.followed)
    weight = plan.weight(given.spec.weights, rollout, manual=plan.promoted_manually(rollout))
    rollout = replace(rollout, step_weight=weight, step=plan.number(given.spec.weights, weight))
    if not before or before == weight:
        return rollout
    rollout = plan.unbegun(rollout)
    return rollout if rollout.progress_at is None else deadline.begun(rollout, given.time)


def awaiting(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """Everything is passed, and the candidate has to be promoted manually."""
    manual = given.spec.promotion is Promotion.MANUAL
    return manual and plan.is_last(rollout) and rollout.weight < ALL and not plan.promoted_manually(rollout)


def paused(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """The pause annotation holds the weight as it is. A manual promotion goes before it."""
    return given.actions.pauses(rollout.revision) and not plan.promoted_manually(rollout)


def held(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """The candidate gets no more than it has."""
    return paused(given, rollout) or awaiting(given, rollout)


def promoting(given: RolloutInput, rollout: RolloutProgress, reason: Reason) -> RolloutProgress:
    """The rollout on its last step, which no manual promotion holds up any more."""
    same = plan.is_last(rollout) and rollout.weight == ALL
    rollout = replace(
        rollout if same else plan.unbegun(rollout),
        state=RolloutState.PROMOTING,
        reason=reason,
        step=len(given.spec.weights),
        step_weight=ALL,
    )
    return deadline.begun(rollout, given.time)


def wanted(given: RolloutInput, rollout: RolloutProgress) -> tuple[int, int]:
    """The weight that the candidate should have, and the percentage that its pods should be able to carry.

    A candidate that awaits its promotion keeps the weight with which it has passed; without steps it has all
    its pods, so that the switch takes no start.
    """
    present = rollout.step_weight
    if awaiting(given, rollout):
        keeps = max(rollout.passed, rollout.weight)
        return keeps, keeps or ALL
    if paused(given, rollout) and rollout.step_started_at is None:
        return rollout.weight, present
    return present, present


def share(given: RolloutInput, rollout: RolloutProgress, pods: int) -> int:
    """The weight that the candidate's ready endpoints can carry now.

    | ready endpoints | share |
    |---|---|
    | none | 0 |
    | all that it needs | the weight that it should have |
    | as many as it ever had | what it had, at most that weight |
    | fewer | the same, but no more than those carry; in place of others as much as each pod of both |

    In place of others, and once it is promoted, it has at least what its endpoints carry.
    """
    weight, carries = wanted(given, rollout)
    ready = given.ready(rollout.revision)
    if ready == 0:
        return 0
    if ready >= pods:
        return weight
    most = max(min(rollout.high_water, pods), ready)
    of_both = ALL * ready // (ready + given.ready(rollout.from_revision)) if rollout.in_place else 1
    kept = min(rollout.weight, weight, max(carries * ready // most, of_both, 1))
    return max(kept, climbing(given, rollout, weight), _moving_in(given, rollout, weight, pods))


def _moving_in(given: RolloutInput, rollout: RolloutProgress, weight: int, pods: int) -> int:
    """What a promoted canary's ready endpoints carry: it takes over with those that there are."""
    if rollout.state is not RolloutState.PROMOTING or not given.spec.weights:
        return 0
    return min(weight, ALL * given.ready(rollout.revision) // pods)


def weighted(given: RolloutInput, rollout: RolloutProgress, share: int, pods: int) -> RolloutProgress:
    """The rollout with this weight.

    The time for which old pods are kept begins again if they may be needed.
    """
    again = plan.is_last(rollout) and not complete(given, rollout, pods)
    started_at = None if again else rollout.step_started_at
    return replace(rollout, weight=share, step_started_at=started_at)


def complete(given: RolloutInput, rollout: RolloutProgress, pods: int) -> bool:
    """The ready pods carry all requests: all that are needed, or without capacity for more as many as ever.

    Room for more may only come from the old pods, which stay until this holds.
    """
    ready, trouble = given.ready(rollout.revision), given.of(rollout.revision).trouble
    if given.spec.strategy is Strategy.RECREATE:
        return ready > 0
    full = trouble is not None and trouble.lacks_capacity
    had_all = rollout.weight == ALL and full and ready >= max(rollout.high_water, 1)
    return ready >= pods or had_all


def pods_counted(given: RolloutInput, rollout: RolloutProgress) -> RolloutProgress:
    """The rollout with the time of the last progress, and with the capacity for its pods."""
    if rollout.state is RolloutState.PENDING:
        rollout = replace(rollout, state=RolloutState.STARTING)
    if rollout.progress_at is None:
        begun = replace(rollout, state=RolloutState.STARTING, high_water=given.ready(rollout.revision))
        return settled_on(given, deadline.begun(begun, given.time))
    rollout = deadline.counted(rollout, _pods(given, rollout), given.spec.progress_deadline, given.time)
    waits = (
        given.spec.strategy is not Strategy.RECREATE
        and _lacks_capacity(given, rollout)
        and short(given, rollout)
    )
    since = (rollout.no_capacity_since or given.time) if waits else None
    return settled_on(given, replace(rollout, no_capacity_since=since))


def _pods(given: RolloutInput, rollout: RolloutProgress) -> deadline.DeadlinePods:
    """Its pods. A weight that it has already may be carried by fewer than it is to have; they are missing."""
    ready = given.ready(rollout.revision)
    missing = ready < pods_needed(given, rollout)
    downloads = given.of(rollout.revision).downloads
    return deadline.DeadlinePods(ready, missing, _lacks_capacity(given, rollout), downloads)


def _lacks_capacity(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """Whether capacity is missing. With `recreate` the old pods freed theirs, enough for the first pod."""
    state = given.of(rollout.revision)
    if hindered(given, rollout) is not None:
        return False
    if given.spec.strategy is Strategy.RECREATE:
        return state.lacks_capacity and state.ready > 0
    return state.lacks_capacity or awaits_place(given, rollout, pods_needed(given, rollout))


def hindered(given: RolloutInput, rollout: RolloutProgress) -> Problem | None:
    """What the API server refuses of what the candidate needs."""
    outgoing = rollout.from_revision if rollout.in_place else None
    return hindrance(given, rollout.revision, outgoing, pods_needed(given, rollout))


def pods_needed(given: RolloutInput, rollout: RolloutProgress) -> int:
    """Pods without which the rollout cannot go on."""
    weight, carries = wanted(given, rollout)
    return needed(given, rollout, weight, carries)


def short(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """Whether pods that the step needs are missing."""
    weight, _ = wanted(given, rollout)
    pods, ready = pods_needed(given, rollout), given.ready(rollout.revision)
    if given.spec.strategy is Strategy.RECREATE:
        return ready == 0
    if rollout.weight == ALL:
        return not complete(given, rollout, pods)
    return ready < pods and (rollout.weight != weight or weight == 0)


def observed(given: RolloutInput, rollout: RolloutProgress, traffic: TrafficDecision) -> RolloutProgress:
    """The rollout with the times at which the step's weight was first requested and first applied."""
    if (
        rollout.state is RolloutState.PENDING
        or rollout.step_started_at is not None
        or rollout.weight != rollout.step_weight
        or not given.ready(rollout.revision)
        or (plan.is_last(rollout) and short(given, rollout))
    ):
        return rollout
    if traffic.settled:
        return replace(plan.unbegun(rollout), step_started_at=given.time)
    unready = ", ".join(given.of(rollout.from_revision).unready_pods)[:1024]
    return replace(
        rollout,
        step_asked_at=rollout.step_asked_at or given.time,
        step_held_by=unready or rollout.step_held_by,
    )


def never_began(given: RolloutInput, rollout: RolloutProgress) -> bool:
    """The step's weight has been asked for as long as a step may take, and was never seen to be applied."""
    asked = rollout.step_asked_at
    waits = asked is not None and rollout.step_started_at is None and not plan.is_last(rollout)
    return waits and asked is not None and given.time >= asked + given.spec.max_step_time.timedelta


def wake(given: RolloutInput, step: RolloutStep, verdict: Verdict) -> timedelta | None:
    """When the next time limit passes."""
    rollout, spec = step.rollout, given.spec
    if rollout is None or rollout.state in (RolloutState.PENDING, RolloutState.PROMOTED):
        return None
    limits = []
    overdue_at = deadline.ends_at(rollout, spec.progress_deadline)
    if overdue_at is not None:
        limits.append(overdue_at)
    frees_place = dead_at(given, rollout.from_revision)
    if rollout.no_capacity_since is not None and frees_place is not None:
        limits.append(frees_place)
    gives_up = given.of(rollout.revision).gives_up_after
    if rollout.no_capacity_since is not None and gives_up is not None:
        limits.append(rollout.no_capacity_since + gives_up.timedelta)
    began = rollout.step_started_at
    if began is None and rollout.step_asked_at is not None:
        limits.append(rollout.step_asked_at + spec.max_step_time.timedelta)
    if began is not None and plan.is_last(rollout):
        limits.append(began + spec.scale_down_delay.timedelta)
    elif began is not None:
        limits += [began + spec.min_step_time.timedelta, began + spec.max_step_time.timedelta]
        if verdict.passed_at is not None:
            limits.append(verdict.passed_at + given.timeout)
    if verdict.unread_since is not None:
        limits.append(verdict.unread_since + spec.analysis.data_timeout.timedelta)
    ahead = [limit - given.time for limit in limits if limit > given.time]
    return min(ahead, default=None)
