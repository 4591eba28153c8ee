"""What is said about a rollout. No count or time that changes by itself: an idle service writes nothing."""

from tailbound.api.names import REVISION_LABEL
from tailbound.api.quantities import Duration
from tailbound.api.rollout import RolloutSpec, RolloutState, RolloutStatus
from tailbound.judge.analysis import Verdict
from tailbound.judge.evidence import Tally
from tailbound.judge.metrics import MetricFinding
from tailbound.judge.verdict import EValues, Finding, Measure, Outcome, Thresholds
from tailbound.rollout.figures import count, proof
from tailbound.rollout.model import CapacityShortage, PodProblem, Rejection, Superseded

_BAD = {Measure.LATENCY: "slow", Measure.ERRORS: "failed"}


def told(rollout: RolloutStatus, state: RolloutState, reason: str, message: str) -> RolloutStatus:
    """The rollout in this state, and why."""
    return rollout.model_copy(update={"state": state, "reason": reason, "message": message})


def pending(rollout: RolloutStatus) -> str:
    """Another canary is still there."""
    return (
        f"{rollout.revision} starts once no gateway sends requests to the revision that it takes the place of"
    )


def refused(rollout: RolloutStatus, trouble: PodProblem) -> str:
    """The API server does not take its Deployment."""
    return f"{rollout.revision} has no pods: {trouble.message}"


def clearing(rollout: RolloutStatus) -> str:
    """The old pods go first."""
    return f"{rollout.revision} starts once the pods of {rollout.from_revision} have ended"


def starting(rollout: RolloutStatus) -> str:
    """Pods are missing."""
    return f"{rollout.revision} is starting"


def no_room(rollout: RolloutStatus, lack: CapacityShortage) -> str:
    """No node, or no quota, for pods of one of the two; what else helps are words of their own."""
    return f"{rollout.revision} waits for room; {missing(lack)}"


def missing(lack: CapacityShortage) -> str:
    """Pods that find no room, why, and what they need."""
    short = f"{lack.missing} of {lack.pods} pods of {lack.revision} are missing"
    return f"{short}: {lack.message}. Add or free what a pod needs"


def ask_for_fewer() -> str:
    """Places only change hands, and there are not enough of them."""
    return ", or ask for fewer pods in spec.scaling"


def fewer_together(rollout: RolloutStatus, pods: int) -> str:
    """The same, of two that share the places of one."""
    both = f"{rollout.from_revision} and {rollout.revision}"
    return f"{ask_for_fewer()}: {both} are to have {pods} together"


def let_give_up_places(name: str) -> str:
    """Another capacity needs no room beside."""
    return f", or let {name} give up places: spec.rollout.capacity auto"


def only_pod(name: str, deadline: Duration, *, ready: bool) -> str:
    """No capacity helps; what else does."""
    if not ready:
        return (
            f": {name} gives up its only pod once that has not been ready for {deadline}; "
            "spec.rollout.strategy recreate ends it at once"
        )
    return (
        f": {name} does not give up its only pod while that serves; spec.rollout.strategy recreate ends it "
        "before the new one starts, and nothing serves in between"
    )


def in_place(rollout: RolloutStatus) -> str:
    """A pod of the other one gives up its place."""
    return f"{rollout.revision} takes the places of {rollout.from_revision}, one pod after the other"


def applying(rollout: RolloutStatus, weight: int) -> str:
    """A weight is on its way."""
    return f"{rollout.revision} is to get {weight} percent of the requests; the gateways have to apply it"


def analysing(rollout: RolloutStatus, steps: int, target: str | None) -> str:
    """No verdict yet. `target` has what no share is of: the candidate where nothing else can answer."""
    step = f"step {rollout.step + 1} of {steps}"
    if target == rollout.revision and rollout.weight < 100:
        return (
            f"{rollout.revision} gets all requests while no endpoint of {rollout.from_revision} is ready; "
            f"{step} is for {rollout.weight} percent"
        )
    if rollout.step >= steps:
        step = "which spec.rollout.steps does not name any more; it has to pass with them all the same"
    return f"{rollout.revision} gets {rollout.weight} percent of the requests, {step}"


def carries(rollout: RolloutStatus, weight: int) -> str:
    """Pods for more are missing."""
    return (
        f"{rollout.revision} gets {rollout.weight} percent of the requests, and {weight} when more of its "
        f"pods are ready; {rollout.from_revision} has the rest"
    )


def short_of_pods(rollout: RolloutStatus) -> str:
    """It has all requests, and too few pods to let the old ones go."""
    return (
        f"{rollout.revision} gets all requests and has fewer ready pods than it needs for them; those of "
        f"{rollout.from_revision} stay meanwhile"
    )


def passed(rollout: RolloutStatus, weight: int) -> str:
    """The next step begins."""
    return (
        f"{rollout.revision} passed with {rollout.weight} percent of the requests; {weight} percent is next"
    )


def shared(rollout: RolloutStatus, verdict: Verdict) -> str:
    """Both are bad."""
    metrics = [each.metric.name for each in verdict.metrics if each.outcome is Outcome.HOLD]
    breached = f"the bound of metric {metrics[0]}" if metrics else "the SLA"
    return (
        f"{rollout.revision} breaches {breached}, and {rollout.from_revision} is not proven better: a cause "
        "that both may share. The rollout holds until it is over"
    )


def paused(rollout: RolloutStatus) -> str:
    """Manually."""
    return (
        f"the annotation tailbound.dev/pause keeps {rollout.revision} at {rollout.weight} percent of the "
        'requests; kubectl tailbound resume, or tailbound.dev/pause="", lets it go on'
    )


def awaiting(rollout: RolloutStatus) -> str:
    """Manual promotion; also of a preview, which no request has tried."""
    done = "has passed" if rollout.weight or rollout.passed else "is ready without a request of the service"
    return f"{rollout.revision} {done}, and spec.rollout.promotion is manual: promote or abort it"


def no_data(lacks: str) -> str:
    """Counters or values that are missing."""
    return f"there is no verdict while data is missing: {lacks}"


def inconclusive(rollout: RolloutStatus, spec: RolloutSpec, verdict: Verdict) -> str:
    """The step took too long. Requests help only where they are what is missing."""
    silent = [each.metric.name for each in verdict.metrics if not each.judged]
    outcomes = [each.outcome for each in verdict.findings]
    outcomes += [each.outcome for each in verdict.metrics if each.judged]
    waits = Outcome.WAIT in outcomes
    without = f"; metric {' and '.join(silent)} has given no value" if silent else ""
    remedies = [
        *(["see that its query matches a series"] if silent else []),
        *(["send more requests"] if waits else []),
        "promote it",
        "or abort it",
    ]
    return (
        f"{rollout.revision} got {rollout.weight} percent of the requests for {spec.max_step_time} without a "
        f"verdict{without}: {', '.join(remedies)}"
    )


def never_began(rollout: RolloutStatus, limit: Duration) -> str:
    """The weight of a step was asked for in vain."""
    why = "see TrafficApplied for the gateways"
    if rollout.step_held_by:
        why = (
            f"pods of {rollout.from_revision} get ready and unready again and again; last seen not ready: "
            f"{rollout.step_held_by}"
        )
    return (
        f"{rollout.revision} was to get {rollout.step_weight} percent of the requests for {limit}, and the "
        f"step never began: {why}. Mend that, promote {rollout.revision}, or abort it"
    )


def promoting(rollout: RolloutStatus, delay: Duration) -> str:
    """All requests, and a way back."""
    return (
        f"{rollout.revision} gets all requests; the pods of {rollout.from_revision} are kept for {delay} for "
        "an instant return"
    )


def undecided(rollout: RolloutStatus, most: Duration) -> str:
    """It has all requests for long enough, and some of them were bad."""
    return (
        f"{rollout.revision} gets all requests, and some of what it answered was bad: it takes over from "
        f"{rollout.from_revision} once that is found to be no breach, or after {most}"
    )


def unmarked(rollout: RolloutStatus) -> str:
    """It has all requests for long enough, and its record cannot be written."""
    return (
        f"{rollout.revision} has all requests, and takes over from {rollout.from_revision} once that can be "
        "written to their ControllerRevisions: the condition Conflict says what refuses it"
    )


def promoted(rollout: RolloutStatus) -> str:
    """Done."""
    return f"{rollout.revision} has taken over from {rollout.from_revision}"


def first(name: str) -> str:
    """The first one."""
    return f"{name} is starting; it is the first revision and serves as soon as it can"


def superseded(found: Superseded) -> str:
    """Given up without a verdict."""
    return f"{found.revision} was given up before a verdict, as the spec is now that of {found.by}"


def no_newest(name: str, base: str) -> str:
    """It is not known whether this revision is still wanted; the conditions say what is wrong."""
    return f"{name} goes no further, and {base} has the requests, until the newest spec can be acted upon"


def took_over(name: str) -> str:
    """At rest; whether it serves now is not said here, as its pods come and go."""
    return f"{name} has taken over"


def takes_back_requests(name: str, weight: int) -> str:
    """Another revision was given up, and has some of the requests still."""
    if weight == 100:
        return f"{name} is to get all requests; the gateways have to apply it"
    return f"{name} gets {weight} percent of the requests, and the rest as its pods get ready"


def returning(name: str, other: str, why: str, room: str) -> str:
    """An older one comes back, once its pods are ready; what keeps them is a sentence of its own."""
    return f"{name} is to serve again instead of {other}: {why}{room}"


def fails(trouble: PodProblem) -> str:
    """Pods of one that comes back do not start."""
    return f". Its pods do not start: {trouble.message}"


def probe_fails(unready: str) -> str:
    """Pods of one that comes back run and are not ready; `unready` is what one of them lacks."""
    return f". Its pods are not ready: {unready}"


def does_not_come_back(name: str, other: str, deadline: Duration, why: str, *, again: bool) -> str:
    """The revision of the spec took over once, and its pods do not get ready.

    `why` ends a sentence; `again`: new pods in their place may help.
    """
    restart = f"kubectl delete pod -l {REVISION_LABEL}={name} starts its pods again; or " if again else ""
    return (
        f"{name} has had no ready endpoint for {deadline}, and {other} has the requests meanwhile{why}. "
        f"What helps: {restart}change the spec"
    )


def given_up_after(name: str, deadline: Duration) -> str:
    """What happens to a return whose pods do not get ready, and what helps at once."""
    return (
        f". The return is given up if no further pod gets ready within {deadline}; an abort of {name} ends "
        "it now"
    )


def given_up(name: str, ended: Rejection, serving: str | None, other: str | None) -> str:
    """A return is over without success: why, what serves, and what else there is."""
    remains = f"; {serving} stays" if serving is not None else ""
    way_out = f"kubectl tailbound rollback --to {other}" if other is not None else "change the spec"
    return f"the return to {name} was given up: {ended.message}{remains}. Another way out: {way_out}"


def takes_places(other: str) -> str:
    """Pods give up their places to one that comes back."""
    return f". Its pods take the places of those of {other}"


def takes_back(stable: str, other: str) -> str:
    """The return waits for what was under way to be over."""
    return f". First {stable} takes its places back from {other}"


def waits_for_room(trouble: PodProblem, remedy: str) -> str:
    """No pod gives up its place to one that comes back; `remedy` says what helps beside more room."""
    return f". It waits for room: {trouble.message}. Add or free what a pod needs{remedy}"


def aborted(by: str | None) -> str:
    """Manually."""
    return f"it was aborted by {by or 'action'}"


def restarts(count: int, trouble: PodProblem | None) -> str:
    """Crashing."""
    return f"a container was restarted {count} times" + _because(trouble)


def lost() -> str:
    """Dead with all requests."""
    return "it was to take all requests, and none of its endpoints was ready any more"


def overdue(deadline: Duration, trouble: PodProblem | None, unready: str) -> str:
    """Not ready in time; `unready` is what a pod that runs lacks."""
    because = f": {unready}" if trouble is None and unready else _because(trouble)
    return f"no further pod got ready within {deadline}{because}"


def condemned(finding: Finding, counted: Tally) -> str:
    """The evidence against it."""
    objective, proven = finding.objective, _proof("the SLA", finding.numbers, finding.limits)
    bad, judged = count(counted.bad), count(counted.judged)
    return (
        f"{bad} of {judged} requests were {_BAD[objective.measure]}, and the SLA allows "
        f"{100 * objective.allowed:.4g} % ({proven})"
    )


def breached(finding: MetricFinding) -> str:
    """The evidence against it, of a metric of the user's own."""
    metric = finding.metric
    assert finding.mean is not None, "no metric is breached without a sample"
    side = "at most" if metric.bad_end > metric.good_end else "at least"
    return (
        f"metric {metric.name} is {finding.mean:.4g} over {count(finding.judged)} samples, and must be "
        f"{side} {metric.bound:g} ({_proof('the bound', finding.numbers, finding.limits)})"
    )


def _proof(bound: str, numbers: EValues, limits: Thresholds) -> str:
    tests = (
        (f"beyond {bound}", numbers.absolute, limits.absolute),
        (f"beyond {bound} since a later step", numbers.late, limits.late),
        ("worse than stable", numbers.relative, limits.relative),
    )
    proven = [f"{what} {proof(value, limit)}" for what, value, limit in tests if value >= limit]
    return f"evidence: {', '.join(proven)}"


def _because(trouble: PodProblem | None) -> str:
    return f": {trouble.message}" if trouble is not None else ""
