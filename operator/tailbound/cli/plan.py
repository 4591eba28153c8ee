"""`kubectl tailbound plan`: what applying a file would do, and how long it would take, in words. Pure.

| the revision that the spec would ask for | what is said | exit status |
|---|---|---|
| is of a service that is being deleted | that, and what its end waits for | 2 |
| cannot be made | the problem | 2 |
| needs the digest of the model first | that a Job finds it | 0 |
| was rejected | it is not tried again by itself | 2 |
| the one that it asks for now | no new revision | 0 |
| the stable one | a rollout under way ends at once | 0 |
| the first one of a new service | it serves as soon as it can | 0 |
| any other | how it takes over, from which one, and when | 0 |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tailbound.api.inferenceservice import InferenceServiceSpec
from tailbound.api.rollout import Promotion, RolloutSpec, Strategy
from tailbound.cli.history import diff
from tailbound.cli.proposal import Proposal
from tailbound.cli.subject import Entry, deletion
from tailbound.cli.table import indented, table
from tailbound.judge.analysis import Terms
from tailbound.judge.verdict import Measure, Outcome
from tailbound.objects.kubectl import Commands
from tailbound.reconcile.judging import relative, unjudged
from tailbound.reconcile.rollouts import terms_of
from tailbound.revisions.marks import Marks
from tailbound.revisions.record import Revision
from tailbound.revisions.relevant import beside
from tailbound.rollout.fitting import LONGEST_KEPT, MOST, Grounds, fits, fitting, last_step
from tailbound.rollout.forecast import Forecast, Traffic, forecast

WORKS: Final = 0
WORKS_NOT: Final = 2
"""Exit statuses. 1 is that of a command that failed, which says nothing of the spec."""
_SEED: Final = 1
_BAD_SHARES: Final = (0.02, 0.05, 0.10)
_LATE_SHARE: Final = 0.05
_BAD: Final = {Measure.LATENCY: "slow", Measure.ERRORS: "failed"}
_NONE: Final = "-"
_UNRESOLVED: Final = (
    "a Job would first read the model to find its digest, as spec.model.sha256 is missing; then there would "
    "be a new revision, and its rollout"
)


@dataclass(frozen=True)
class Requests:
    """What the expected times rest on."""

    traffic: Traffic | None
    """The traffic of the service; None if it is not known."""
    source: str
    """Where it is from; or why it is not known, and what to do."""


def assumed(per_second: float, terms: Terms) -> Requests:
    """Traffic of the given rate, with half the fraction of bad requests that the SLA allows."""
    half = {each.measure: each.allowed / 2 for each in terms.objectives if each.stated}
    traffic = Traffic(per_second, half.get(Measure.LATENCY, 0.0), half.get(Measure.ERRORS, 0.0))
    return Requests(traffic, "as given, half as bad as the SLA allows")


def exit_status(proposal: Proposal) -> int:
    """Whether the spec would work once it is applied: what a pipeline asks before it applies it."""
    if _ending(proposal) is not None:
        return WORKS_NOT
    desired = proposal.desired
    waits = desired.unresolved is not None and desired.problem is None
    known = desired.revision is not None or waits
    return WORKS if known and desired.problem is None and proposal.rejected is None else WORKS_NOT


def plan(proposal: Proposal, requests: Requests) -> str:
    """What would happen."""
    metadata, ending = proposal.wanted.metadata, _ending(proposal)
    if ending is not None:
        return f"{metadata.namespace}/{metadata.name} would not be changed\n{indented(ending)}"
    parts = [f"{metadata.namespace}/{metadata.name} {_verb(proposal)}", indented(_revision(proposal))]
    fields = _quiet_changes(proposal)
    if fields:
        parts += ["", "  without a new revision:", indented(indented("\n".join(fields)))]
    if rolls(proposal):
        parts += ["", indented(_difference(proposal)), "", indented(_expected(proposal, requests))]
    return "\n".join(parts)


def _ending(proposal: Proposal) -> str | None:
    return deletion(proposal.live) if proposal.live is not None else None


def _verb(proposal: Proposal) -> str:
    if proposal.live is None:
        return "would be created"
    same = proposal.live.spec == proposal.wanted.spec and proposal.current == _name(proposal)
    return "would stay as it is" if same else "would be changed"


def _name(proposal: Proposal) -> str | None:
    return proposal.desired.revision.name if proposal.desired.revision is not None else None


def rolls(proposal: Proposal) -> bool:
    """One revision would take over from another."""
    name, stable = _name(proposal), proposal.stable
    waits = proposal.rejected is not None or proposal.wanted.spec.stopped or _ending(proposal) is not None
    if name is None or stable is None or waits:
        return False
    return name not in {proposal.current, stable.name}


def _revision(proposal: Proposal) -> str:
    problem, name, stable = proposal.desired.problem, _name(proposal), proposal.stable
    if problem is not None or name is None:
        unresolved = proposal.desired.unresolved
        unknown = "the result is not known" if unresolved is None else _UNRESOLVED
        return f"it would not work: {problem.reason}: {problem.message}" if problem else unknown
    metadata = proposal.wanted.metadata
    retry = Commands(metadata.namespace, metadata.name).tailbound("retry")
    made = f"new revision {name}" if proposal.desired.is_new else f"revision {name}, which is stored already,"
    texts = (
        (
            proposal.rejected is not None,
            f"{name} was rejected ({proposal.rejected}) and waits for {retry}",
        ),
        (name == proposal.current, f"no new revision: {name} stays"),
        (
            stable is not None and name == stable.name,
            f"{name} serves already: a rollout that is under way ends at once",
        ),
        (
            stable is None,
            f"{made} serves as soon as a pod is ready, and is not judged: there is no older revision to "
            "roll back to",
        ),
    )
    text = next((each for holds, each in texts if holds), None)
    before = stable.name if stable is not None else _NONE
    return text or f"{made} takes over from {before}: {_how(proposal.wanted.spec.rollout)}"


def _how(spec: RolloutSpec) -> str:
    ways = {
        Strategy.CANARY: f"canary, {', '.join(f'{weight} %' for weight in spec.weights)}, then all requests",
        Strategy.BLUE_GREEN: "blueGreen, all requests at once",
        Strategy.RECREATE: "recreate, the old pods end before the new ones start",
    }
    manual = "; it has to be promoted manually" if spec.promotion is Promotion.MANUAL else ""
    return f"{ways[spec.strategy]}{manual}; the old pods are kept for {spec.scale_down_delay}"


def _quiet_changes(proposal: Proposal) -> list[str]:
    """Fields that change and make no revision, with both values."""
    if proposal.live is None:
        return []
    return list(_changes("spec", beside(proposal.live.spec), beside(proposal.wanted.spec)))


def _changes(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _changes(f"{path}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield f"{path}: {_NONE if before is None else before} -> {_NONE if after is None else after}"


def _difference(proposal: Proposal) -> str:
    assert proposal.stable is not None and proposal.desired.revision is not None, "asked for a rollout"
    text = diff(_entry(proposal.stable), _entry(proposal.desired.revision))
    return text or "the pods would not change"


def _entry(revision: Revision) -> Entry:
    return Entry(revision.name, revision.number, Marks(), revision)


def _expected(proposal: Proposal, requests: Requests) -> str:
    spec = proposal.wanted.spec
    terms = terms_of(spec)
    metrics = _bounds(spec)
    left_out = [f"note: {each}" for each in (unjudged(spec.sla) or relative(spec.sla),) if each]
    promised = any(each.stated for each in terms.objectives)
    if not promised and not metrics:
        took = "expected time: no proof is required, and each step takes minStepTime, or timeout if longer"
        return "\n".join([took, *left_out])
    if not promised:
        return "\n".join(["expected time: not known, because it depends on the metrics", *metrics, *left_out])
    usual = requests.traffic
    if usual is None:
        return f"expected time: not known, {requests.source}"
    known = f"{usual.slow:.2%} slow, {usual.failed:.2%} failed"
    parts = [f"expected, at {usual.per_second:.3g} requests/s ({requests.source}; {known}):"]
    grounds = Grounds(terms, spec.effective_timeout().timedelta, usual, _SEED)
    found = grounds.forecast(spec.rollout)
    parts.append(indented(_passing(spec, found)))
    parts += _proposed(spec.rollout, grounds, found)
    measure = terms.objectives[0].measure
    parts.append(f"and if more of its requests are {_BAD[measure]}:")
    parts.append(indented(_rejecting(spec, terms, usual, measure)))
    parts += _last_step(spec.rollout, grounds, measure)
    parts += ["the metrics are not part of this forecast, and may take longer:"] if metrics else []
    return "\n".join([*parts, *metrics, *left_out])


def _bounds(spec: InferenceServiceSpec) -> list[str]:
    """What a new revision has to keep besides the SLA."""
    rows = [["METRIC", "AT LEAST", "AT MOST"]]
    for each in spec.rollout.analysis.metrics:
        bound = f"{each.bound:.4g}"
        rows.append([each.name, *((bound, _NONE) if each.min is not None else (_NONE, bound))])
    return [indented(table(rows))] if len(rows) > 1 else []


def _proposed(spec: RolloutSpec, grounds: Grounds, found: Forecast) -> list[str]:
    """Steps and times for this traffic, where those of the spec do not fit."""
    if fits(found) or found.share(Outcome.HOLD) or not spec.weights:
        return []
    fit = fitting(spec, grounds)
    if fit is None:
        return [
            "no steps fit this traffic: within a week, even half of the requests are too few for a verdict;",
            "write promotion: manual, and promote the revision yourself",
        ]
    steps = ", ".join(f"{{weight: {each.weight}}}" for each in fit.spec.steps)
    took = _time(fit.forecast.seconds(Outcome.PASS, MOST))
    return [
        "these steps do not fit this traffic: a good revision would not pass in time; these steps fit:",
        indented(f"steps: [{steps}]\nmaxStepTime: {fit.spec.max_step_time}"),
        f"with them 9 of 10 of the good ones are promoted within {took}",
    ]


def _last_step(spec: RolloutSpec, grounds: Grounds, measure: Measure) -> list[str]:
    """What is asked with all requests: no proof, but that nothing is proven while the old pods are kept."""
    last = last_step(spec, grounds, _worse(grounds.usual, measure, _LATE_SHARE))
    parts = [
        "with all requests no further proof is needed: what is bad only then is found while the old",
        f"pods are kept, or not at all: with scaleDownDelay {spec.scale_down_delay}, {last.found:.0%} of",
        f"those that are {_LATE_SHARE:.0%} {_BAD[measure]} then",
    ]
    if last.found >= MOST:
        return parts
    remedy = (
        f"no time up to {LONGEST_KEPT} finds" if last.delay is None else f"scaleDownDelay: {last.delay} finds"
    )
    return [*parts, f"{remedy} 9 of 10 of them"]


def _worse(usual: Traffic, measure: Measure, share: float) -> Traffic:
    return replace(usual, slow=share) if measure is Measure.LATENCY else replace(usual, failed=share)


def _passing(spec: InferenceServiceSpec, found: Forecast) -> str:
    rows = [["IF IT IS AS GOOD AS THE STABLE ONE", "MEDIAN", "9 OF 10 WITHIN"]]
    for number, weight in enumerate(spec.rollout.weights):
        times = [_time(found.step(number, quantile)) for quantile in (0.5, 0.9)]
        rows.append([f"{weight} % passed after", *times])
    rows.append([_share(found, Outcome.PASS, "promoted"), *_times(found, Outcome.PASS)])
    for outcome, text in ((Outcome.HOLD, "holds: both breach the SLA"), (Outcome.WAIT, "no verdict")):
        if found.share(outcome):
            rows.append([_share(found, outcome, text), *_times(found, outcome)])
    return table(rows)


def _rejecting(spec: InferenceServiceSpec, terms: Terms, usual: Traffic, measure: Measure) -> str:
    rows = [[_BAD[measure].upper(), "ROLLED BACK", "MEDIAN", "9 OF 10 WITHIN"]]
    for share in _BAD_SHARES:
        bad = _worse(usual, measure, share)
        found = forecast(spec.rollout, terms, spec.effective_timeout().timedelta, bad, usual, _SEED)
        chance = f"{found.share(Outcome.ROLL_BACK):.0%}"
        rows.append([f"{share:.0%}", chance, *_times(found, Outcome.ROLL_BACK)])
    return table(rows)


def _share(found: Forecast, outcome: Outcome, text: str) -> str:
    share = found.share(outcome)
    return text if share == 1 else f"{text} ({share:.0%})"


def _times(found: Forecast, outcome: Outcome) -> list[str]:
    return [_time(found.seconds(outcome, quantile)) for quantile in (0.5, 0.9)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return _NONE
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
