"""`kubectl tailbound why`: the decision and the numbers behind it, in words. Pure."""

from math import exp
from typing import Final

from tailbound.api.conditions import ConditionType, Reason
from tailbound.api.findings import EvidenceStatus, FindingStatus, MetricFindingStatus
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.cli.hardware import hardware_lines
from tailbound.cli.scaling import scaling_lines
from tailbound.cli.subject import Subject, gave_up_return, judged_now
from tailbound.judge.verdict import RELATIVE_RATIO, Outcome
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
    Outcome.ROLL_BACK: "the evidence is sufficient to reject it",
    Outcome.HOLD: "it is not rejected, as it is not proven worse than stable: both may have one cause",
}
_UNMATCHED: Final = (
    "The query for bad matches series of {stable} and none of {new}, which counts as no bad events: check "
    "that {new} uses the same names"
)


def why(subject: Subject) -> str:
    """What serves, where the last rollout stands, what speaks for and against it, and the number of pods."""
    hardware = hardware_lines(subject.service)
    return "\n".join([*_now(subject), *hardware, *_rollout(subject), *scaling_lines(subject.service)])


def _now(subject: Subject) -> list[str]:
    doubts = [each for each in (subject.unseen, subject.stalled or subject.unready) if each is not None]
    return [subject.serves(), *(f"But {each.rstrip('.')}." for each in doubts)]


def _rollout(subject: Subject) -> list[str]:
    rollout = subject.rollout
    if rollout is None:
        return [_no_rollout(subject)]
    return [
        _decision(subject, rollout),
        *_signature(subject, rollout),
        *(_finding(each, rollout) for each in rollout.findings),
        *(_metric(each, rollout) for each in rollout.metrics),
    ]


def _no_rollout(subject: Subject) -> str:
    if subject.service.spec.stopped:
        return "There is no rollout while the service is stopped."
    return "There has not been a rollout yet."


def _decision(subject: Subject, rollout: RolloutStatus) -> str:
    name = rollout.revision
    sentence = f"{name} {_STATES[rollout.state]}"
    if gave_up_return(rollout):
        sentence = f"The rollback to {rollout.from_revision} was abandoned"
    reason = f" ({rollout.reason})" if rollout.reason else ""
    if rollout.message.startswith(sentence):  # it says the same, and more
        sentence = f"{rollout.message}{reason}."
    else:
        sentence += reason + (f": {rollout.message}." if rollout.message else ".")
    entry = subject.entry(name)
    by = None
    if entry is not None and rollout.state is RolloutState.ROLLED_BACK and entry.marks.rejected is not None:
        by = entry.marks.rejected.by
    elif entry is not None and rollout.state is RolloutState.PROMOTED:
        by = entry.marks.promoted_by
    return sentence + (f" It was decided by {by}." if by else "")


def _signature(subject: Subject, rollout: RolloutStatus) -> list[str]:
    """What is known about the inputs and outputs of both models, unless they decided the rollout."""
    found = subject.service.status.condition(ConditionType.SIGNATURE_CHANGED)
    if found is None or not rollout.from_revision or rollout.reason == Reason.SIGNATURE_CHANGED:
        return []
    return [f"signature: {found.message}."]


def _finding(finding: FindingStatus, rollout: RolloutStatus) -> str:
    requests, bad = finding.requests, finding.bad
    share = f" ({bad / requests:.2%})" if requests > 0 else ""
    if finding.assumed:
        return _assumed(finding, rollout, f"{count(bad)}{share}")
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


def _assumed(finding: FindingStatus, rollout: RolloutStatus, bad: str) -> str:
    """The finding on failures where spec.sla.errorRate is absent."""
    says = {
        Outcome.ROLL_BACK: _OUTCOMES[Outcome.ROLL_BACK],
        Outcome.WAIT: f"it fails more often than {rollout.from_revision}, and more requests decide",
    }
    lines = [
        f"{finding.measure}: of {count(finding.requests)} requests that were judged, {bad} were failures; "
        f"without spec.sla.errorRate it is rejected if more than {finding.allowed:.2%} fail, and more than "
        f"{RELATIVE_RATIO:g} times the share of the stable revision.",
        f"  {_proof('worse than the stable revision', finding.relative)}",
        f"  {finding.outcome}: {says.get(Outcome(finding.outcome), 'it fails no more often than that')}."
        if finding.requests
        else "  Nothing was judged in this rollout so far.",
    ]
    return "\n".join(lines)


def _metric(finding: MetricFindingStatus, rollout: RolloutStatus) -> str:
    relative, mean = finding.relative, finding.mean
    known = "no value yet" if mean is None else f"{mean:.4g} over {count(finding.samples)} samples"
    unseen = "its query must return values: check that it matches a series"
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


def _proof(what: str, evidence: EvidenceStatus) -> str:
    """One line: is it proven, how sure is that, or how much is missing."""
    numbers = f"evidence {proof(evidence.value, evidence.threshold)}"
    if evidence.value >= evidence.threshold:
        return (
            f"{what}: proven, {numbers} (a chance of at most 1 in {exp(evidence.threshold):.0f} to be wrong)"
        )
    return f"{what}: not proven, {numbers}"


def _says(
    finding: FindingStatus | MetricFindingStatus, rollout: RolloutStatus, bound: str, remedy: str
) -> str:
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
    samples = finding.requests if isinstance(finding, FindingStatus) else finding.samples
    untried = not samples and not judged_now(rollout) and rollout.state is not RolloutState.ROLLED_BACK
    better = f"it breaches {bound}, but is proven better than the stable revision, which breaches it too"
    rules = (
        (finding.improves_breach, f"{outcome}: {better}"),
        (outcome in _OUTCOMES, f"{outcome}: {_OUTCOMES.get(outcome, '')}"),
        (
            passed and judged_now(rollout),
            f"{outcome}: the evidence is sufficient for the next step, which begins when minStepTime is over",
        ),
        (passed, f"{outcome}: proven in its last step"),
        (untried, "Nothing was judged in this rollout so far"),
        (judged_now(rollout), f"{outcome}: neither is proven yet, and {remedy}"),
        (reason == Reason.AWAITING_PROMOTION, "It has passed its steps; nothing is proven against it since"),
        (reason == Reason.PROMOTED_MANUALLY, "It was promoted manually, without this proof"),
        (
            rollout.state is RolloutState.ROLLED_BACK,
            "Neither was proven: it was rolled back for another cause",
        ),
    )
    return next((said for holds, said in rules if holds), "Nothing was proven against it with all requests")
