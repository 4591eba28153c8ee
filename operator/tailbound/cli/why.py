"""`kubectl tailbound why`: the decision and the numbers behind it, in words. Pure."""

from math import exp
from typing import Final

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Evidence, Finding, MetricFinding, RolloutState, RolloutStatus
from tailbound.cli.scaling import scaling_lines
from tailbound.cli.subject import Subject, gave_up_return, judged_now
from tailbound.judge.verdict import Outcome
from tailbound.rollout.figures import count, proof

_BAD: Final = {"latency": "slower than the P99 target", "errors": "failures"}
_STATES: Final = {
    RolloutState.PENDING: "has not begun yet",
    RolloutState.STARTING: "is starting",
    RolloutState.ANALYSING: "is being judged",
    RolloutState.PROMOTING: "is taking over",
    RolloutState.PROMOTED: "has taken over",
    RolloutState.ROLLED_BACK: "was rolled back",
    RolloutState.PAUSED: "is paused",
}
_OUTCOMES: Final[dict[str, str]] = {
    Outcome.ROLL_BACK: "this is proof enough to reject it",
    Outcome.HOLD: "stable is no better: a cause that both may share, so that it is not rejected",
}
_UNMATCHED: Final = (
    "The query for bad matches series of {stable} and none of {new}, which counts as no bad events: see that "
    "{new} does not name them in another way"
)


def why(subject: Subject) -> str:
    """What serves, where the last rollout stands, what speaks for and against it, and why so many pods."""
    return "\n".join([*_now(subject), *_rollout(subject), *scaling_lines(subject.service)])


def _now(subject: Subject) -> list[str]:
    doubts = [each for each in (subject.unseen, subject.stalled) if each is not None]
    return [subject.serves(), *(f"But {each}." for each in doubts)]


def _rollout(subject: Subject) -> list[str]:
    rollout = subject.rollout
    if rollout is None:
        return [_no_rollout(subject)]
    return [
        _decision(subject, rollout),
        *(_finding(each, rollout) for each in rollout.findings),
        *(_metric(each, rollout) for each in rollout.metrics),
    ]


def _no_rollout(subject: Subject) -> str:
    if subject.service.spec.stopped:
        return "There is no rollout while it is stopped."
    return "There has not been a rollout yet."


def _decision(subject: Subject, rollout: RolloutStatus) -> str:
    name = rollout.revision
    sentence = f"{name} {_STATES[rollout.state]}"
    if gave_up_return(rollout):
        sentence = f"The return to {rollout.from_revision} was given up"
    sentence += f" ({rollout.reason})" if rollout.reason else ""
    sentence += f": {rollout.message}." if rollout.message else "."
    entry = subject.entry(name)
    by = None
    if entry is not None and rollout.state is RolloutState.ROLLED_BACK and entry.marks.rejected is not None:
        by = entry.marks.rejected.by
    elif entry is not None and rollout.state is RolloutState.PROMOTED:
        by = entry.marks.promoted_by
    return sentence + (f" It was decided by {by}." if by else "")


def _finding(finding: Finding, rollout: RolloutStatus) -> str:
    requests, bad = finding.requests, finding.bad
    share = f" ({bad / requests:.2%})" if requests > 0 else ""
    beyond = max(finding.absolute, finding.late, key=lambda each: each.value - each.threshold)
    lines = [
        f"{finding.measure}: of {count(requests)} requests that were judged, {count(bad)}{share} were "
        f"{_BAD.get(finding.measure, 'bad')}; the SLA allows {finding.allowed:.2%}, and to pass it must be "
        f"proven to stay below {finding.unacceptable:.2%}.",
        f"  {_proof('beyond the SLA', beyond)}",
        f"  {_proof('worse than the stable revision', finding.relative)}",
        f"  {_proof('good enough in this step', finding.passing)}",
        f"  {_says(finding, rollout, 'the SLA', 'more requests decide')}.",
    ]
    return "\n".join(lines)


def _metric(finding: MetricFinding, rollout: RolloutStatus) -> str:
    relative, mean = finding.relative, finding.mean
    known = "no value yet" if mean is None else f"{mean:.4g} over {count(finding.samples)} samples"
    unseen = "its query has to give values: see that it matches a series"
    more = finding.missing or (unseen if mean is None else "more values decide")
    unmatched = finding.unmatched and not finding.missing
    lines = [
        f"{finding.name}: {known}; the bound is {finding.bound:g}.",
        *([f"  {_UNMATCHED.format(new=rollout.revision, stable=rollout.from_revision)}."] * unmatched),
        f"  {_proof('beyond the bound', finding.against)}",
        *((f"  {_proof('worse than the stable revision', relative)}",) if relative is not None else ()),
        f"  {_proof('good enough in this step', finding.passing)}",
        f"  {_says(finding, rollout, 'the bound', more)}.",
    ]
    return "\n".join(lines)


def _proof(what: str, evidence: Evidence) -> str:
    """One line: is it proven, how sure is that, or how much is missing."""
    numbers = f"evidence {proof(evidence.value, evidence.threshold)}"
    if evidence.value >= evidence.threshold:
        return (
            f"{what}: proven, {numbers} (a chance of at most 1 in {exp(evidence.threshold):.0f} to be wrong)"
        )
    return f"{what}: not proven, {numbers}"


def _says(finding: Finding | MetricFinding, rollout: RolloutStatus, bound: str, remedy: str) -> str:
    """What one verdict means. First row that fits:

    | verdict | the rollout | what is said |
    |---|---|---|
    | passed although it breaches | any | that stable is proven to be worse |
    | RollBack, Hold | any | what was proven |
    | Pass | is judged now | that it goes on, at the earliest after the step's least time |
    | Pass | any other | that its last step was passed |
    | Wait, without a sample | starts, is a preview, or takes over | that nothing was judged |
    | Wait | is judged now | that neither is proven yet, and what decides |
    | Wait | waits for its promotion | that it has passed, and nothing speaks against it since |
    | Wait | was promoted manually | that it was, without this proof |
    | Wait | takes over, or has | that nothing was proven against it |
    | Wait | was rolled back | that the cause was another one |
    """
    outcome, reason = finding.outcome, rollout.reason
    passed = outcome == Outcome.PASS
    samples = finding.requests if isinstance(finding, Finding) else finding.samples
    untried = not samples and not judged_now(rollout) and rollout.state is not RolloutState.ROLLED_BACK
    better = f"it breaches {bound}, but is proven better than a stable revision that does too"
    rules = (
        (finding.improves_breach, f"{outcome}: {better}"),
        (outcome in _OUTCOMES, f"{outcome}: {_OUTCOMES.get(outcome, '')}"),
        (
            passed and judged_now(rollout),
            f"{outcome}: proof enough to go on once the step has had its least time",
        ),
        (passed, f"{outcome}: proven in its last step"),
        (untried, "Nothing was judged in this rollout so far"),
        (judged_now(rollout), f"{outcome}: neither is proven yet, and {remedy}"),
        (reason == Reason.AWAITING_PROMOTION, "It has passed its steps; nothing is proven against it since"),
        (reason == Reason.PROMOTED_MANUALLY, "It was promoted manually: this proof was not waited for"),
        (rollout.state is RolloutState.ROLLED_BACK, "Neither was proven: another cause rolled it back"),
    )
    return next((said for holds, said in rules if holds), "Nothing was proven against it with all requests")
