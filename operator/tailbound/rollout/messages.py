"""Messages about a rollout, for status.rollout, conditions, Events and the CLI.

They hold no count or time that changes by itself, so that nothing is written for an idle service.
"""

from tailbound.api.quantities import Duration
from tailbound.api.rejection import Rejection, Superseded
from tailbound.api.rollout import RolloutSpec, SignaturePolicy
from tailbound.judge.analysis import Verdict
from tailbound.judge.evidence import Tally
from tailbound.judge.metrics import MetricFinding
from tailbound.judge.verdict import EValues, Finding, Measure, Outcome, Thresholds
from tailbound.objects.kubectl import Commands
from tailbound.rollout.figures import count, proof
from tailbound.rollout.problem import CapacityShortage, Problem
from tailbound.rollout.progress import RolloutProgress

_BAD = {Measure.LATENCY: "slow", Measure.ERRORS: "failed"}


def pending(rollout: RolloutProgress) -> str:
    """The message of a candidate that waits until an earlier canary has ended."""
    return f"{rollout.revision} starts when no gateway sends requests to the earlier canary any more"


def refused(rollout: RolloutProgress, trouble: Problem) -> str:
    """The message of a revision whose Deployment is refused by the API server."""
    return f"{rollout.revision} has no pods: {trouble.message}"


def clearing(rollout: RolloutProgress) -> str:
    """The message while strategy `recreate` waits for the old pods to end."""
    return f"{rollout.revision} starts when all pods of {rollout.from_revision} have ended"


def starting(rollout: RolloutProgress) -> str:
    """The message while pods are missing that are expected soon."""
    return f"{rollout.revision} is starting"


def no_capacity(rollout: RolloutProgress, lack: CapacityShortage) -> str:
    """The message of a revision whose pods find no node or exceed a quota; a remedy may be appended."""
    return f"{rollout.revision} waits for capacity; {missing(lack)}"


def missing(lack: CapacityShortage) -> str:
    """The number of pods without capacity, the cause, and what they need."""
    short = f"{lack.missing} of {lack.pods} pods of {lack.revision} are missing"
    return f"{short}: {lack.message}. Add or free the resources that a pod needs"


def ask_for_fewer() -> str:
    """The end of a message about pods that are replaced in place and exceed the present capacity."""
    return ", or ask for fewer pods in spec.scaling"


def fewer_together(rollout: RolloutProgress, pods: int) -> str:
    """What to do where the pods of two revisions share the capacity of one."""
    both = f"{rollout.from_revision} and {rollout.revision}"
    return f"{ask_for_fewer()}: {both} must have {pods} pods together"


def allow_in_place(name: str) -> str:
    """The end of a message where another spec.rollout.capacity needs no further capacity."""
    return f", or let the pods of {name} be replaced in place: set spec.rollout.capacity to auto"


def only_pod(name: str, deadline: Duration, *, ready: bool) -> str:
    """The end of a message where no spec.rollout.capacity helps, because the old revision has one pod."""
    if not ready:
        return (
            f". The only pod of {name} is replaced in place only after it has not been ready for {deadline}; "
            "with spec.rollout.strategy recreate it ends at once"
        )
    return (
        f". The only pod of {name} is not replaced in place while it serves; with spec.rollout.strategy "
        "recreate it ends before the new pod starts, and no pod serves in between"
    )


def in_place(rollout: RolloutProgress) -> str:
    """The message while pods are replaced in place."""
    new, old = rollout.revision, rollout.from_revision
    return f"the pods of {new} replace those of {old} in place, one after the other"


def applying(rollout: RolloutProgress, weight: int) -> str:
    """The message while gateways still have to apply a weight."""
    return (
        f"{rollout.revision} gets {weight} percent of the requests when every Ready gateway has applied the "
        "new weights"
    )


def analysing(rollout: RolloutProgress, steps: int, target: str | None) -> str:
    """The message of a step without a verdict yet. `target` is the revision that gets the other requests.

    It is the candidate where no endpoint of the old revision is ready.
    """
    step = f"step {rollout.step + 1} of {steps}"
    if target == rollout.revision and rollout.weight < 100:
        return (
            f"{rollout.revision} gets all requests while no endpoint of {rollout.from_revision} is ready; "
            f"{step} is for {rollout.weight} percent"
        )
    if rollout.step >= steps:
        step = "a weight that spec.rollout.steps does not contain any more; it must still pass this step"
    return f"{rollout.revision} gets {rollout.weight} percent of the requests, {step}"


def carries(rollout: RolloutProgress, weight: int) -> str:
    """The message of a candidate that needs more ready pods for the weight of its step."""
    return (
        f"{rollout.revision} gets {rollout.weight} percent of the requests, and {weight} percent when more "
        f"of its pods are ready; {rollout.from_revision} gets the others"
    )


def short_of_pods(rollout: RolloutProgress) -> str:
    """The message of a candidate with all requests that needs more ready pods before the old ones end."""
    return (
        f"{rollout.revision} gets all requests, but has fewer ready pods than they need; the pods of "
        f"{rollout.from_revision} are kept until enough are ready"
    )


def passed(rollout: RolloutProgress, weight: int) -> str:
    """The message of a passed step, when the next one begins."""
    return (
        f"{rollout.revision} passed with {rollout.weight} percent of the requests; the next step is {weight} "
        "percent"
    )


def shared(rollout: RolloutProgress, verdict: Verdict) -> str:
    """The message where both revisions breach a target."""
    metrics = [each.metric.name for each in verdict.metrics if each.outcome is Outcome.HOLD]
    breached = f"the bound of metric {metrics[0]}" if metrics else "the SLA"
    return (
        f"{rollout.revision} breaches {breached}, but is not proven worse than {rollout.from_revision}: both "
        "may suffer from the same cause. The rollout holds until the breach is over"
    )


def paused(rollout: RolloutProgress, commands: Commands) -> str:
    """The message of a rollout that is paused by annotation."""
    return (
        f"the annotation tailbound.dev/pause keeps {rollout.revision} at {rollout.weight} percent of the "
        f'requests; to continue, run {commands.tailbound("resume")}, or set tailbound.dev/pause=""'
    )


def awaiting(rollout: RolloutProgress) -> str:
    """The message of a rollout, or of a preview without requests, that waits for its manual promotion."""
    done = (
        "has passed" if rollout.weight or rollout.passed else "is ready, untested by requests of the service"
    )
    return f"{rollout.revision} {done}, and spec.rollout.promotion is manual: promote or abort it"


def no_data(lacks: str) -> str:
    """The message while counters or values are missing."""
    return f"there is no verdict while data is missing: {lacks}"


def inconclusive(rollout: RolloutProgress, spec: RolloutSpec, verdict: Verdict) -> str:
    """The message of a step without a verdict after `maxStepTime`, with what would lead to one."""
    silent = [each.metric.name for each in verdict.metrics if not each.judged]
    outcomes = [each.outcome for each in verdict.findings]
    outcomes += [each.outcome for each in verdict.metrics if each.judged]
    waits = Outcome.WAIT in outcomes
    without = f"; metric {' and '.join(silent)} has given no value" if silent else ""
    remedies = [
        *(["check that its query matches a series"] if silent else []),
        *(["send more requests"] if waits else []),
        "promote it",
        "or abort it",
    ]
    return (
        f"{rollout.revision} got {rollout.weight} percent of the requests for {spec.max_step_time} without a "
        f"verdict{without}: {', '.join(remedies)}"
    )


def never_began(rollout: RolloutProgress, limit: Duration) -> str:
    """The message of a step whose weight was not applied in time."""
    why = "the condition TrafficApplied says what the gateways lack"
    if rollout.step_held_by:
        why = (
            f"pods of {rollout.from_revision} become ready and not ready again and again; last seen not "
            f"ready: {rollout.step_held_by}"
        )
    return (
        f"{rollout.revision} has not got {rollout.step_weight} percent of the requests within {limit}, so "
        f"that the step has not begun: {why}. Fix that, promote {rollout.revision}, or abort it"
    )


def promoting(rollout: RolloutProgress, delay: Duration) -> str:
    """The message of a candidate with all requests while the old pods are kept."""
    return (
        f"{rollout.revision} gets all requests; the pods of {rollout.from_revision} are kept for {delay}, so "
        "that a rollback is instant"
    )


def undecided(rollout: RolloutProgress, most: Duration) -> str:
    """The message of a candidate whose requests were partly bad when `scaleDownDelay` was over."""
    return (
        f"{rollout.revision} gets all requests, and some of its responses were bad: it takes over from "
        f"{rollout.from_revision} when the evidence shows no breach, or after {most}"
    )


def unmarked(rollout: RolloutProgress) -> str:
    """The message of a candidate whose promotion cannot be stored."""
    return (
        f"{rollout.revision} gets all requests, and takes over from {rollout.from_revision} when that can be "
        "written to their ControllerRevisions: the condition Conflict says what refuses it"
    )


def promoted(rollout: RolloutProgress, verdict: Verdict) -> str:
    """The message of a promotion, which says so if no request was judged before it."""
    counts = (verdict.tallies or {}).values()
    blind = verdict.outcome is not None and not any(each.judged for each in counts)
    unjudged = "; none of its requests was judged before" if blind else ""
    return f"{rollout.revision} has taken over from {rollout.from_revision}{unjudged}"


def first(name: str) -> str:
    """The message of the first revision of a service."""
    return f"{name} is starting; it is the first revision and gets requests as soon as a pod is ready"


def superseded(found: Superseded) -> str:
    """The message of a rollout that a newer spec ended before a verdict."""
    return (
        f"the rollout of {found.revision} ended before a verdict, because the spec is now that of {found.by}"
    )


def no_newest(name: str, base: str) -> str:
    """The message of a rollout that is held while the newest spec has a problem."""
    return (
        f"the rollout of {name} is held, and {base} gets the requests, until the problem with the newest "
        "spec is solved"
    )


def took_over(name: str) -> str:
    """The message of a stable revision, whether or not its pods are ready at this moment."""
    return f"{name} has taken over"


def takes_back_requests(name: str, weight: int) -> str:
    """The message of a stable revision that gets back its requests from one that was given up."""
    if weight == 100:
        return f"{name} gets all requests when every Ready gateway has applied the new weights"
    return f"{name} gets {weight} percent of the requests, and the others as its pods become ready"


def returning(name: str, other: str, why: str, obstruction: str) -> str:
    """The message of a rollback whose pods are not ready yet; `obstruction` is appended to it."""
    return f"{other} is being rolled back to {name}: {why}{obstruction}"


def fails(name: str, trouble: Problem) -> str:
    """The end of a message: pods of the revision that requests return to do not start."""
    return f". The pods of {name} do not start: {trouble.message}"


def probe_fails(name: str, unready: str) -> str:
    """The end of a message: such pods run without being ready; `unready` says which probe fails."""
    return f". The pods of {name} are not ready: {unready}"


def does_not_come_back(name: str, other: str, deadline: Duration, why: str, restart: str | None) -> str:
    """The message of a promoted revision of the newest spec whose pods do not become ready.

    `why` ends a sentence; `restart` is the command that ends its pods, where new ones may help.
    """
    restart = f"restart its pods ({restart}), or change" if restart is not None else "change"
    return (
        f"{name} has had no ready endpoint for {deadline}, and {other} gets the requests meanwhile{why}. "
        f"What to do: {restart} the spec"
    )


def given_up_after(name: str, deadline: Duration) -> str:
    """The end of a message: when a rollback ends without success, and how to end it now."""
    return (
        f". The rollback is abandoned if no further pod gets ready within {deadline}; to end it now, abort "
        f"{name}"
    )


def given_up(name: str, ended: Rejection, serving: str | None, rollback: str | None) -> str:
    """The message of an abandoned rollback: its cause, the revision that serves, and another remedy.

    rollback: the command for a rollback to another revision, where there is one.
    """
    remains = f"; {serving} keeps the requests" if serving is not None else ""
    remedy = rollback if rollback is not None else "change the spec"
    return f"the rollback to {name} was abandoned: {ended.message}{remains}. What to do: {remedy}"


def takes_places(name: str, other: str) -> str:
    """The end of a message: pods of the revision that requests return to replace others in place."""
    return f". The pods of {name} replace those of {other} in place"


def takes_back(stable: str, other: str) -> str:
    """The end of a message: a rollback waits until the stable revision has its pods again."""
    return f". First, the pods of {stable} replace those of {other} in place"


def waits_for_capacity(name: str, trouble: Problem, remedy: str) -> str:
    """The end of a message: pods lack capacity, and none is replaced in place for them."""
    return (
        f". {name} waits for capacity: {trouble.message}. Add or free the resources that a pod needs{remedy}"
    )


def aborted(by: str | None) -> str:
    """The cause of a rejection by the annotation `abort`; `by` is the user, where known."""
    return f"it was aborted by {by}" if by else "it was aborted by annotation"


def restarts(count: int, trouble: Problem | None) -> str:
    """The cause of a rejection after too many restarts of a container."""
    return f"one of its containers restarted {count} times" + _because(trouble)


def evictions(count: int, trouble: Problem | None) -> str:
    """The cause of a rejection after too many evictions."""
    return f"{count} of its pods were evicted within minutes for what they used" + _because(trouble)


def lost() -> str:
    """The cause of a rejection without a ready endpoint after the promotion had begun."""
    return "none of its endpoints was ready any more when it was to get all requests"


def other_signature(differences: str, policy: SignaturePolicy, retry: str) -> str:
    """The cause of a rejection for the inputs and outputs of the model."""
    return (
        f"{differences}: clients of the stable revision would notice it, and spec.rollout.signature is "
        f"{policy}; to let it serve, set signature to any and run {retry}"
    )


def overdue(deadline: Duration, trouble: Problem | None, unready: str) -> str:
    """The cause of a rejection after `progressDeadline`; `unready` is what a running pod lacks."""
    because = f": {unready}" if trouble is None and unready else _because(trouble)
    return f"no further pod got ready within {deadline}{because}"


def breach(finding: Finding, counted: Tally) -> str:
    """The cause of a rejection by the SLA: counts, the allowed fraction and the evidence."""
    objective = finding.objective
    proven = _proof("the SLA" if objective.stated else "that rate", finding.numbers, finding.limits)
    bad, judged = count(counted.bad), count(counted.judged)
    found = f"{bad} of {judged} requests were {_BAD[objective.measure]}"
    if not objective.stated:
        return (
            f"{found}: more than {100 * objective.allowed:.4g} % of them, and a greater share than of the "
            f"stable revision ({proven}); spec.sla.errorRate can state what is allowed"
        )
    return f"{found}, and the SLA allows {100 * objective.allowed:.4g} % ({proven})"


def breached(finding: MetricFinding) -> str:
    """The cause of a rejection by one of analysis.metrics: its mean, its bound and the evidence."""
    metric = finding.metric
    assert finding.mean is not None, "no metric is breached without a sample"
    side = "at most" if metric.bad_end > metric.good_end else "at least"
    return (
        f"metric {metric.name} is {finding.mean:.4g} over {count(finding.judged)} samples, and must be "
        f"{side} {metric.bound:g} ({_proof('the bound', finding.numbers, finding.limits)})"
    )


def _proof(bound: str, numbers: EValues, limits: Thresholds) -> str:
    tests = (
        (f"breaches {bound}", numbers.absolute, limits.absolute),
        (f"breaches {bound} since a later step", numbers.late, limits.late),
        ("is worse than stable", numbers.relative, limits.relative),
    )
    proven = [f"it {what}: {proof(value, limit)} needed" for what, value, limit in tests if value >= limit]
    return f"evidence that {', that '.join(proven)}"


def _because(trouble: Problem | None) -> str:
    return f": {trouble.message}" if trouble is not None else ""


def without_room(longest: Duration, why: str) -> str:
    """A return to a preferred hardware class found no nodes."""
    return f"the preferred hardware class had no room for {longest}: {why}"
