"""The steps of a rollout: how many pods and which weight each needs, and when the next one begins.

A candidate whose pods find no room waits and says so; no deadline runs meanwhile.

What a step with a weight below 100 does, which begins once every gateway was seen to apply that weight (first
row that fits):

| what holds | outcome |
|---|---|
| the annotation `pause` names the candidate | Paused: the weight stays |
| it has not begun `maxStepTime` after its weight was asked for | Paused, or rolled back; it may still begin |
| a gateway's counters, or a metric, are missing for longer than `dataTimeout` | Paused, NoData |
| they are missing | waits, and says what is missing: no data is no verdict |
| `minStepTime` is over; nothing to judge by, or passed for the time that a request may take | next step |
| `maxStepTime` is over, and something is missing, or a metric has had no sample | Paused, NoData |
| `maxStepTime` is over | `onInconclusive`: Paused (a later pass still counts), next step, or rolled back |
| the stable revision is as bad | waits, SharedBreach |
| otherwise | waits |

Behind the last step, `promotion: manual` waits (Paused, AwaitingPromotion) for the action `promote`;
blueGreen and recreate have no step before it.
"""

from dataclasses import replace
from datetime import timedelta

from tailbound.api.conditions import Reason
from tailbound.api.rollout import OnInconclusive, Promotion, RolloutState, RolloutStatus, Strategy
from tailbound.judge.analysis import Verdict
from tailbound.judge.verdict import Outcome
from tailbound.rollout import deadline, messages, plan, room
from tailbound.rollout.demands import taken_back
from tailbound.rollout.in_place import awaits_place, climbing, dead_at, needed, settled_on
from tailbound.rollout.model import Marking, PodProblem, RolloutInput, RolloutStep
from tailbound.rollout.refused_writes import hindrance
from tailbound.rollout.sizing import ALL


def planned(now: RolloutInput, rollout: RolloutStatus) -> RolloutStatus:
    """The rollout at the step that it is at by the plan of the spec as it is, which may have changed."""
    before = rollout.step_weight
    if now.demands is not None:
        rollout = taken_back(rollout, now.demands, followed=now.followed)
    weight = plan.weight(now.spec.weights, rollout, manual=plan.promoted_manually(rollout))
    rollout = rollout.model_copy(
        update={
            **({} if weight == before or not before else plan.UNBEGUN),
            "step_weight": weight,
            "step": plan.number(now.spec.weights, weight),
        }
    )
    begins = before != weight and before and rollout.progress_at is not None
    return rollout.model_copy(update=deadline.begins(now.now)) if begins else rollout


def awaiting(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """Everything is passed, and the candidate has to be promoted manually."""
    manual = now.spec.promotion is Promotion.MANUAL
    return manual and plan.is_last(rollout) and rollout.weight < ALL and not plan.promoted_manually(rollout)


def paused(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """The pause annotation holds the weight as it is. A manual promotion goes before it."""
    return now.actions.pauses(rollout.revision) and not plan.promoted_manually(rollout)


def held(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """The candidate gets no more than it has."""
    return paused(now, rollout) or awaiting(now, rollout)


def promoting(now: RolloutInput, rollout: RolloutStatus, reason: Reason) -> RolloutStatus:
    """The rollout on its last step, which no manual promotion holds up any more."""
    same = plan.is_last(rollout) and rollout.weight == ALL
    return rollout.model_copy(
        update={
            "state": RolloutState.PROMOTING,
            "reason": reason,
            "step": len(now.spec.weights),
            "step_weight": ALL,
            **({} if same else plan.UNBEGUN),
            **deadline.begins(now.now),
        }
    )


def wanted(now: RolloutInput, rollout: RolloutStatus) -> tuple[int, int]:
    """The weight that the candidate should have, and the percentage that its pods should be able to carry.

    A candidate that awaits its promotion keeps the weight with which it has passed; without steps it has all
    its pods, so that the switch takes no start.
    """
    present = rollout.step_weight
    if awaiting(now, rollout):
        keeps = max(rollout.passed, rollout.weight)
        return keeps, keeps or ALL
    if paused(now, rollout) and rollout.step_started_at is None:
        return rollout.weight, present
    return present, present


def share(now: RolloutInput, rollout: RolloutStatus, pods: int) -> int:
    """The weight that the candidate's ready endpoints can carry now.

    | ready endpoints | share |
    |---|---|
    | none | 0 |
    | all that it needs | the weight that it should have |
    | as many as it ever had | what it had, at most that weight |
    | fewer | the same, but no more than those carry; in place of others as much as each pod of both |

    In place of others, and once it is promoted, it has at least what its endpoints carry.
    """
    weight, carries = wanted(now, rollout)
    ready = now.ready(rollout.revision)
    if ready == 0:
        return 0
    if ready >= pods:
        return weight
    most = max(min(rollout.high_water, pods), ready)
    of_both = ALL * ready // (ready + now.ready(rollout.from_revision)) if rollout.in_place else 1
    kept = min(rollout.weight, weight, max(carries * ready // most, of_both, 1))
    return max(kept, climbing(now, rollout, weight), _moving_in(now, rollout, weight, pods))


def _moving_in(now: RolloutInput, rollout: RolloutStatus, weight: int, pods: int) -> int:
    """What a promoted canary's ready endpoints carry: it takes over with those that there are."""
    if rollout.state is not RolloutState.PROMOTING or not now.spec.weights:
        return 0
    return min(weight, ALL * now.ready(rollout.revision) // pods)


def weighted(now: RolloutInput, rollout: RolloutStatus, share: int, pods: int) -> RolloutStatus:
    """With this weight. The time that the old pods are kept begins again when they may be needed again."""
    again = plan.is_last(rollout) and not complete(now, rollout, pods)
    started_at = None if again else rollout.step_started_at
    return rollout.model_copy(update={"weight": share, "step_started_at": started_at})


def complete(now: RolloutInput, rollout: RolloutStatus, pods: int) -> bool:
    """The ready pods carry all requests: all that are needed, or without room for more as many as ever.

    Room for more may only come from the old pods, which stay until this holds.
    """
    ready, trouble = now.ready(rollout.revision), now.of(rollout.revision).trouble
    if now.spec.strategy is Strategy.RECREATE:
        return ready > 0
    full = trouble is not None and trouble.lacks_room
    had_all = rollout.weight == ALL and full and ready >= max(rollout.high_water, 1)
    return ready >= pods or had_all


def pods_counted(now: RolloutInput, rollout: RolloutStatus) -> RolloutStatus:
    """With the time of the last progress, with whether there is room, and for whose pods."""
    if rollout.state is RolloutState.PENDING:
        rollout = rollout.model_copy(update={"state": RolloutState.STARTING})
    if rollout.progress_at is None:
        begun = {"high_water": now.ready(rollout.revision), **deadline.begins(now.now)}
        return settled_on(now, rollout.model_copy(update={"state": RolloutState.STARTING, **begun}))
    rollout = deadline.counted(rollout, _pods(now, rollout), now.spec.progress_deadline, now.now)
    waits = now.spec.strategy is not Strategy.RECREATE and _lacks_room(now, rollout) and short(now, rollout)
    since = (rollout.no_room_since or now.now) if waits else None
    return settled_on(now, rollout.model_copy(update={"no_room_since": since}))


def _pods(now: RolloutInput, rollout: RolloutStatus) -> deadline.Pods:
    """Its pods. A weight that it has already may be carried by fewer than it is to have; they are missing."""
    ready = now.ready(rollout.revision)
    missing = ready < pods_needed(now, rollout)
    return deadline.Pods(ready, missing, lacks_room=_lacks_room(now, rollout))


def _lacks_room(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """What is missing is a place. With `recreate` the old pods left theirs, so that the first one has one."""
    state = now.of(rollout.revision)
    if hindered(now, rollout) is not None:
        return False
    if now.spec.strategy is Strategy.RECREATE:
        return state.lacks_room and state.ready > 0
    return state.lacks_room or awaits_place(now, rollout, pods_needed(now, rollout))


def hindered(now: RolloutInput, rollout: RolloutStatus) -> PodProblem | None:
    """What the API server refuses of what the candidate needs."""
    outgoing = rollout.from_revision if rollout.in_place else None
    return hindrance(now, rollout.revision, outgoing, pods_needed(now, rollout))


def pods_needed(now: RolloutInput, rollout: RolloutStatus) -> int:
    """Pods without which the rollout cannot go on."""
    weight, carries = wanted(now, rollout)
    return needed(now, rollout, weight, carries)


def short(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """Such pods are missing."""
    weight, _ = wanted(now, rollout)
    pods, ready = pods_needed(now, rollout), now.ready(rollout.revision)
    if now.spec.strategy is Strategy.RECREATE:
        return ready == 0
    if rollout.weight == ALL:
        return not complete(now, rollout, pods)
    return ready < pods and (rollout.weight != weight or weight == 0)


def observed(now: RolloutInput, step: RolloutStep) -> RolloutStep:
    """With the times at which the step's weight was first asked for, and first seen to be applied."""
    rollout = step.rollout
    if (
        rollout is None
        or rollout.state is RolloutState.PENDING
        or rollout.step_started_at is not None
        or rollout.weight != rollout.step_weight
        or not now.ready(rollout.revision)
        or (plan.is_last(rollout) and short(now, rollout))
    ):
        return step
    if step.flow.settled:
        begun = {**plan.UNBEGUN, "step_started_at": now.now}
        return replace(step, rollout=rollout.model_copy(update=begun))
    asked = {
        "step_asked_at": rollout.step_asked_at or now.now,
        "step_held_by": ", ".join(now.of(rollout.from_revision).unready_pods)[:1024] or rollout.step_held_by,
    }
    return replace(step, rollout=rollout.model_copy(update=asked))


def never_began(now: RolloutInput, rollout: RolloutStatus) -> bool:
    """The step's weight has been asked for as long as a step may take, and was never seen to be applied."""
    asked = rollout.step_asked_at
    waits = asked is not None and rollout.step_started_at is None and not plan.is_last(rollout)
    return waits and asked is not None and now.now >= asked + now.spec.max_step_time.timedelta


def judge(now: RolloutInput, step: RolloutStep, verdict: Verdict) -> RolloutStep:
    """The state, in messages, and the next step if this one is over."""
    rollout = step.rollout
    if rollout is None or rollout.state is RolloutState.PENDING:
        return step
    if rollout.no_room_since is not None and not paused(now, rollout):
        return replace(step, rollout=room.waiting(now, rollout))
    if held(now, rollout):
        return _held(now, step, rollout)
    if rollout.weight < ALL and _without_data(now, verdict) and not plan.promoted_manually(rollout):
        return _told(step, RolloutState.PAUSED, Reason.NO_DATA, messages.no_data(verdict.unread_why))
    if plan.is_last(rollout):
        return _promoting(now, step, rollout, verdict)
    return _at_a_step(now, step, rollout, verdict)


def _at_a_step(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus, verdict: Verdict) -> RolloutStep:
    if rollout.weight == 0:
        return _told(step, RolloutState.STARTING, Reason.STARTING, messages.starting(rollout))
    if rollout.weight < rollout.step_weight:
        message = messages.carries(rollout, rollout.step_weight)
        return _told(step, RolloutState.ANALYSING, Reason.ROLLING_OUT, message)
    if never_began(now, rollout):
        message = messages.never_began(rollout, now.spec.max_step_time)
        return _told(step, RolloutState.PAUSED, Reason.INCONCLUSIVE, message)
    if rollout.step_started_at is None:
        message = messages.applying(rollout, rollout.step_weight)
        return _told(step, RolloutState.ANALYSING, Reason.ROLLING_OUT, message)
    return _analysing(now, step, rollout, verdict)


def _without_data(now: RolloutInput, verdict: Verdict) -> bool:
    """Counters are missing for too long."""
    timeout = now.spec.analysis.data_timeout.timedelta
    return verdict.unread_since is not None and now.now >= verdict.unread_since + timeout


def _held(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus) -> RolloutStep:
    if paused(now, rollout):
        return _told(step, RolloutState.PAUSED, Reason.PAUSED, messages.paused(rollout))
    if short(now, rollout) and now.spec.strategy is not Strategy.RECREATE:
        return _told(step, RolloutState.STARTING, Reason.STARTING, messages.starting(rollout))
    return _told(step, RolloutState.PAUSED, Reason.AWAITING_PROMOTION, messages.awaiting(rollout))


def _analysing(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus, verdict: Verdict) -> RolloutStep:
    assert rollout.step_started_at is not None
    elapsed, spec = now.now - rollout.step_started_at, now.spec
    if elapsed >= spec.min_step_time.timedelta and verdict.passes(now.now, now.timeout):
        return _next(now, step, rollout)
    if elapsed >= spec.max_step_time.timedelta:
        if verdict.lacks:
            return _told(step, RolloutState.PAUSED, Reason.NO_DATA, messages.no_data(verdict.lacks))
        if spec.on_inconclusive is OnInconclusive.PROMOTE and verdict.outcome is not Outcome.HOLD:
            return _next(now, step, rollout)
        message = messages.inconclusive(rollout, spec, verdict)
        return _told(step, RolloutState.PAUSED, Reason.INCONCLUSIVE, message)
    if verdict.outcome is Outcome.HOLD:
        return _told(step, RolloutState.ANALYSING, Reason.SHARED_BREACH, messages.shared(rollout, verdict))
    message = messages.analysing(rollout, len(spec.weights), step.flow.target)
    if verdict.unread_since is not None:
        message = f"{message}; {messages.no_data(verdict.unread_why)}"
    return _told(step, RolloutState.ANALYSING, Reason.ANALYSING, message)


def _next(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus) -> RolloutStep:
    following = planned(now, rollout.model_copy(update={"passed": rollout.step_weight}))
    state, reason = RolloutState.ANALYSING, Reason.ROLLING_OUT
    message = messages.passed(rollout, following.step_weight)
    if plan.is_last(following):
        if now.spec.promotion is Promotion.MANUAL:
            state, reason, message = (
                RolloutState.PAUSED,
                Reason.AWAITING_PROMOTION,
                messages.awaiting(rollout),
            )
        else:
            state = RolloutState.PROMOTING
    return replace(step, rollout=messages.told(following, state, reason, message), next_step=True)


def _promoting(now: RolloutInput, step: RolloutStep, rollout: RolloutStatus, verdict: Verdict) -> RolloutStep:
    """All requests, with all pods ready; promoted when the old ones have been kept long enough since then."""
    reason = plan.unless_manual(rollout, Reason.ROLLING_OUT)
    if rollout.weight < ALL:
        begun = rollout.state is RolloutState.PROMOTING or plan.promoted_manually(rollout)
        state = RolloutState.PROMOTING if begun else RolloutState.STARTING
        message = messages.carries(rollout, ALL) if begun and rollout.weight else messages.starting(rollout)
        return _told(step, state, reason if begun else Reason.STARTING, message)
    if short(now, rollout):
        recreated = now.spec.strategy is Strategy.RECREATE
        message = room.starting(now, rollout) if recreated else messages.short_of_pods(rollout)
        return _told(step, RolloutState.PROMOTING, reason, message)
    waits = _keeps_old_pods(now, step, rollout, verdict)
    if waits is not None:
        return _told(step, RolloutState.PROMOTING, reason, waits)
    done = messages.told(
        rollout,
        RolloutState.PROMOTED,
        plan.unless_manual(rollout, Reason.PROMOTED),
        messages.promoted(rollout),
    )
    by = now.actions.by if plan.promoted_manually(rollout) else None
    return replace(
        step,
        rollout=done.model_copy(update=deadline.OVER),
        stable=rollout.revision,
        candidate=None,
        fleet={rollout.revision: now.pods(rollout.revision)},
        marking=Marking(rollout.revision, by, handled=now.actions.asked(rollout.revision)),
        promoted=True,
        poll=False,
    )


def _keeps_old_pods(
    now: RolloutInput, step: RolloutStep, rollout: RolloutStatus, verdict: Verdict
) -> str | None:
    """Why a candidate that has all requests has not taken over yet; None if it has.

    It takes several windows to reject what is bad, which may be longer than `scaleDownDelay`.
    """
    since, delay, most = rollout.step_started_at, now.spec.scale_down_delay, now.spec.max_step_time
    if since is None:
        return messages.applying(rollout, ALL)
    early = now.now < since + delay.timedelta or not step.flow.settled
    undecided = now.now < since + most.timedelta and verdict.suspects and not plan.promoted_manually(rollout)
    rules = (
        (early, messages.promoting(rollout, delay)),
        (undecided, messages.undecided(rollout, most)),
        (now.marks_refused, messages.unmarked(rollout)),
    )
    return next((message for holds, message in rules if holds), None)


def _told(step: RolloutStep, state: RolloutState, reason: Reason, message: str) -> RolloutStep:
    assert step.rollout is not None
    return replace(step, rollout=messages.told(step.rollout, state, reason, message))


def wake(now: RolloutInput, step: RolloutStep, verdict: Verdict) -> timedelta | None:
    """When the next time limit passes."""
    rollout, spec = step.rollout, now.spec
    if rollout is None or rollout.state in (RolloutState.PENDING, RolloutState.PROMOTED):
        return None
    limits = []
    overdue_at = deadline.ends_at(rollout, spec.progress_deadline)
    if overdue_at is not None:
        limits.append(overdue_at)
    frees_place = dead_at(now, rollout.from_revision)
    if rollout.no_room_since is not None and frees_place is not None:
        limits.append(frees_place)
    began = rollout.step_started_at
    if began is None and rollout.step_asked_at is not None:
        limits.append(rollout.step_asked_at + spec.max_step_time.timedelta)
    if began is not None and plan.is_last(rollout):
        limits.append(began + spec.scale_down_delay.timedelta)
    elif began is not None:
        limits += [began + spec.min_step_time.timedelta, began + spec.max_step_time.timedelta]
        if verdict.passed_at is not None:
            limits.append(verdict.passed_at + now.timeout)
    if verdict.unread_since is not None:
        limits.append(verdict.unread_since + spec.analysis.data_timeout.timedelta)
    ahead = [limit - now.now for limit in limits if limit > now.now]
    return min(ahead, default=None)
