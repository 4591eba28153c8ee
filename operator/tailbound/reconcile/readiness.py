"""Ready: whether requests are answered by the revision of the newest spec.

First rule that fits (`RULES`); "desired" is the revision of the spec as it is:

| rule | what holds | status | reason |
|---|---|---|---|
| `outage` | what has the requests took over once, and has no ready endpoint | False | NotReady |
| `outage` | another one serves, or there is a problem, and no gateway is Ready | False | NoGateway |
| `has_problem` | something must be changed, or a write was refused | False | that of the problem |
| `waits_for_deletion` | children of a deleted service of this name still exist | Unknown | Pending |
| `stopped` | spec.stopped | False | Stopped |
| `not_rendered` | there is no desired revision yet | Unknown | Pending |
| `not_rendered` | the same, and a Job finds the digest of the model | Unknown | Fetching |
| `dies` | desired has all requests, and its pods end for good again and again | False | that of the pods |
| `serves` | desired has all requests, and a ready endpoint; all gateways know both | True | Serving |
| `rejected` | desired was rejected | False | RolledBack |
| `rolls_out` | desired has some of the requests, another revision the rest | Unknown | RollingOut |
| `rolls_out` | desired takes over as its pods get ready | Unknown | RollingOut |
| `stuck` | desired has no request to answer yet, and its pods are stuck | False | that of the pods |
| `waits_for_gateways` | desired has all requests and a ready endpoint | Unknown | WaitingForGateway |
| `waits_for_gateways` | the same, refused or denied, or no gateway is Ready | False | theirs |
| `lost` | desired took over once | False | NotReady |
| `another_serves` | another revision answers | Unknown | RollingOut |
| `downloads` | pods download | Unknown | Fetching |
| `starts` | otherwise | Unknown | Starting |

The first two rows do not apply to a stopped service, nor where strategy `recreate` ends the old pods first,
nor where the desired revision has no problem of its own: later rows describe those cases more exactly.
"""

from collections.abc import Callable
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.rollout import RolloutState
from tailbound.reconcile.condition_verdict import FALSE, TRUE, UNKNOWN, ConditionVerdict
from tailbound.reconcile.facts import Facts
from tailbound.rollout import again


def ready(facts: Facts) -> ConditionVerdict:
    """The condition."""
    return next(verdict for rule in RULES if (verdict := rule(facts)) is not None)


def outage(facts: Facts) -> ConditionVerdict | None:
    """Requests fail, and no other message about the desired revision would mention it."""
    if facts.outage is None:
        return None
    return ConditionVerdict(FALSE, facts.outage, facts.serves_now + about_desired(facts))


def has_problem(facts: Facts) -> ConditionVerdict | None:
    """Something must be changed, or a write was refused."""
    if facts.problem is None:
        return None
    return ConditionVerdict(FALSE, facts.problem.reason, facts.serves_now + facts.problem.message)


def waits_for_deletion(facts: Facts) -> ConditionVerdict | None:
    """An object must be gone before the work can go on."""
    if facts.waiting is None:
        return None
    return ConditionVerdict(UNKNOWN, Reason.PENDING, facts.serves_now + facts.waiting)


def stopped(facts: Facts) -> ConditionVerdict | None:
    """The service is to have no pods."""
    if not facts.stopped:
        return None
    if not facts.pods_left:
        message = "spec.stopped is true: there are no pods"
    elif facts.step.flow.settled or facts.applied is None:
        message = f"spec.stopped is true: the pods are ending{facts.late}"
    else:
        message = (
            f"spec.stopped is true: the pods end when no gateway routes to them: {facts.applied.message}"
        )
    return ConditionVerdict(FALSE, Reason.STOPPED, message)


def not_rendered(facts: Facts) -> ConditionVerdict | None:
    """There is no desired revision yet."""
    if facts.name is not None:
        return None
    reason = Reason.PENDING if facts.desired.unresolved is None else Reason.FETCHING
    return ConditionVerdict(UNKNOWN, reason, facts.serves_now + _awaited(facts))


def dies(facts: Facts) -> ConditionVerdict | None:
    """The revision answers, until its pods end the next time."""
    died = facts.pods.dies
    if not facts.on_target or died is None:
        return None
    why = f"{facts.name} serves at present, and its pods end again and again: {died.message}"
    return ConditionVerdict(FALSE, died.reason, why)


def serves(facts: Facts) -> ConditionVerdict | None:
    """Every gateway sends it all requests, and an endpoint of it is ready."""
    applied = facts.applied
    if not facts.on_target or applied is None or applied.reason is not Reason.ACKNOWLEDGED or applied.behind:
        return None
    return ConditionVerdict(TRUE, Reason.SERVING, f"{facts.name} serves")


def rejected(facts: Facts) -> ConditionVerdict | None:
    """The desired revision was rejected."""
    if facts.step.rejection is None:
        return None
    return ConditionVerdict(FALSE, Reason.ROLLED_BACK, facts.serves_now + about_desired(facts))


def rolls_out(facts: Facts) -> ConditionVerdict | None:
    """The revision shares the requests with another one, or takes over as its pods get ready."""
    rollout = facts.step.rollout
    shared = (_another(facts) and facts.share > 0) or (facts.takes_over and not facts.on_target)
    if rollout is None or not shared:
        return None
    return ConditionVerdict(UNKNOWN, Reason.ROLLING_OUT, rollout.message)


def stuck(facts: Facts) -> ConditionVerdict | None:
    """The revision gets no requests yet, and its pods say why they do not get ready."""
    obstacle, rollout = facts.pods.obstacle, facts.step.rollout
    if obstacle is None or facts.on_target:
        return None
    waits = rollout is not None and rollout.no_capacity_since is not None and rollout.revision == facts.name
    why = rollout.message if rollout is not None and waits else obstacle.message
    silent = f"no endpoint of {facts.name} is ready{facts.fails}: " if facts.fails else ""
    lead = facts.serves_now if _another(facts) else silent
    return ConditionVerdict(FALSE, obstacle.reason, lead + why + _comes_back(facts))


def waits_for_gateways(facts: Facts) -> ConditionVerdict | None:
    """The revision has all requests and a ready endpoint, and not every gateway sends them there."""
    applied = facts.applied
    if not facts.on_target or applied is None:
        return None
    if applied.reason is Reason.ACKNOWLEDGED:
        message = f"gateway pod {applied.behind} does not know yet that a pod of {facts.name} is ready"
        return ConditionVerdict(UNKNOWN, Reason.WAITING_FOR_GATEWAY, message)
    status = UNKNOWN if applied.reason is Reason.WAITING_FOR_GATEWAY else FALSE
    return ConditionVerdict(status, applied.reason, applied.message)


def lost(facts: Facts) -> ConditionVerdict | None:
    """The revision took over once, and none of its endpoints is ready."""
    if not facts.was_stable:
        return None
    here = facts.serves_now if _another(facts) else ""
    why = f": {facts.pods.unready}" if facts.pods.unready else ""
    silent = f"no endpoint of {facts.name} is ready{facts.fails}"
    return ConditionVerdict(FALSE, Reason.NOT_READY, f"{here}{silent}{why}{_comes_back(facts)}")


def another_serves(facts: Facts) -> ConditionVerdict | None:
    """Another revision answers all requests."""
    if not _another(facts):
        return None
    return ConditionVerdict(UNKNOWN, Reason.ROLLING_OUT, facts.serves_now + about_desired(facts))


def downloads(facts: Facts) -> ConditionVerdict | None:
    """Its pods fetch the model."""
    if not facts.pods.fetching:
        return None
    message = f"the pods of {facts.name} are downloading the model{facts.download}"
    return ConditionVerdict(UNKNOWN, Reason.FETCHING, message)


def starts(facts: Facts) -> ConditionVerdict:
    """Nothing is known to be in its way."""
    return ConditionVerdict(UNKNOWN, Reason.STARTING, f"{facts.name} is starting")


RULES: Final[tuple[Callable[[Facts], ConditionVerdict | None], ...]] = (
    outage,
    has_problem,
    waits_for_deletion,
    stopped,
    not_rendered,
    dies,
    serves,
    rejected,
    rolls_out,
    stuck,
    waits_for_gateways,
    lost,
    another_serves,
    downloads,
    starts,
)
"""The rows of the table above, in its order."""


def _another(facts: Facts) -> bool:
    """Another revision than the desired one answers."""
    return facts.serving is not None and facts.serving != facts.name


def _comes_back(facts: Facts) -> str:
    """The end of a message: an older revision is being restored."""
    return f"; {facts.coming_back}" if facts.coming_back is not None else ""


def _awaited(facts: Facts) -> str:
    """What is awaited before there is a desired revision."""
    unresolved, rendered = facts.desired.unresolved, "the pod template of the runtime is being rendered"
    return rendered if unresolved is None else unresolved.message


def about_desired(facts: Facts) -> str:
    """The part of a message about the desired revision, after what serves now. First row that fits.

    | what holds | message |
    |---|---|
    | there is a problem | the problem |
    | an object must be deleted first | which one |
    | there is no desired revision yet | its template is rendered, or a Job finds the digest of its model |
    | it was rejected | why, and what leads to another try |
    | a rollback or a rollout is under way | its own message |
    | otherwise | it is starting |
    """
    rejection, rollout = facts.step.rejection, facts.step.rollout
    under_way = rollout is not None and rollout.state is not RolloutState.PROMOTED
    rules = (
        (facts.problem is not None, facts.problem.message if facts.problem is not None else ""),
        (facts.waiting is not None, facts.waiting or ""),
        (facts.name is None, _awaited(facts)),
        (
            rejection is not None,
            f"{facts.name} was rejected: {rejection.message if rejection else ''}. What to do: "
            f"{again.remedy(facts.step.again_at, facts.commands)}",
        ),
        (under_way, rollout.message if rollout is not None else ""),
    )
    return next((message for holds, message in rules if holds), f"{facts.name} is starting")
