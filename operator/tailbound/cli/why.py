"""`kubectl tailbound why`: the decision and the numbers behind it, in words. Pure."""

from math import exp
from typing import Final

from tailbound.api.rollout import Evidence, Finding, MetricFinding, RolloutState, RolloutStatus
from tailbound.cli.scaling import scaling_lines
from tailbound.cli.subject import Subject

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
_OUTCOMES: Final = {
    "RollBack": "this is proof enough to reject it",
    "Hold": "stable is no better: a cause that both share, so that nobody is blamed",
    "Pass": "this is proof enough to go on",
    "Wait": "neither is proven yet, and more requests are needed",
}


def why(subject: Subject) -> str:
    """Where the last rollout stands, what speaks for and against it, and why there are so many pods."""
    return "\n".join([*_rollout(subject), *scaling_lines(subject.service)])


def _rollout(subject: Subject) -> list[str]:
    rollout = subject.rollout
    if rollout is None:
        return [f"{subject.title} has not had a rollout yet."]
    return [
        _decision(subject, rollout),
        *(_finding(each) for each in rollout.findings),
        *(_metric(each) for each in rollout.metrics),
    ]


def _decision(subject: Subject, rollout: RolloutStatus) -> str:
    name = rollout.revision
    sentence = f"{name} {_STATES[rollout.state]}"
    sentence += f" ({rollout.reason})" if rollout.reason else ""
    sentence += f": {rollout.message}." if rollout.message else "."
    entry = subject.entry(name)
    by = None
    if entry is not None and rollout.state is RolloutState.ROLLED_BACK and entry.marks.rejected is not None:
        by = entry.marks.rejected.by
    elif entry is not None and rollout.state is RolloutState.PROMOTED:
        by = entry.marks.promoted_by
    sentence += f" It was decided by {by}." if by else ""
    stable = subject.service.status.stable
    if rollout.state is RolloutState.ROLLED_BACK and stable is not None:
        sentence += f" {stable.revision} serves."
    return sentence


def _finding(finding: Finding) -> str:
    requests, bad = finding.requests, finding.bad
    share = f" ({bad / requests:.2%})" if requests > 0 else ""
    beyond = max(finding.absolute, finding.late, key=lambda each: each.value - each.threshold)
    lines = [
        f"{finding.measure}: of {requests:.6g} requests that were judged, {bad:.6g}{share} were "
        f"{_BAD.get(finding.measure, 'bad')}; the SLA allows {finding.allowed:.2%}, and to pass it must be "
        f"proven to stay below {finding.unacceptable:.2%}.",
        f"  {_proof('beyond the SLA', beyond)}",
        f"  {_proof('worse than the stable revision', finding.relative)}",
        f"  {_proof('good enough in this step', finding.passing)}",
        f"  {finding.outcome}: {_outcome(finding, 'the SLA')}.",
    ]
    return "\n".join(lines)


def _metric(finding: MetricFinding) -> str:
    relative = finding.relative
    lines = [
        f"{finding.name}: {finding.mean:.4g} over {finding.samples:.6g} samples; the bound is "
        f"{finding.bound:g}.",
        f"  {_proof('beyond the bound', finding.against)}",
        *((f"  {_proof('worse than the stable revision', relative)}",) if relative is not None else ()),
        f"  {_proof('good enough in this step', finding.passing)}",
        f"  {finding.outcome}: {_outcome(finding, 'the bound')}.",
    ]
    return "\n".join(lines)


def _proof(what: str, evidence: Evidence) -> str:
    """One line: is it proven, how sure is that, or how much is missing."""
    numbers = f"evidence {evidence.value:.1f} of {evidence.threshold:.1f}"
    if evidence.value >= evidence.threshold:
        return (
            f"{what}: proven, {numbers} (a chance of at most 1 in {exp(evidence.threshold):.0f} to be wrong)"
        )
    return f"{what}: not proven, {numbers}"


def _outcome(finding: Finding | MetricFinding, bound: str) -> str:
    if finding.improves_breach:
        return f"it breaches {bound}, but is proven better than a stable revision that does too"
    return _OUTCOMES.get(finding.outcome, "see the rollout")
