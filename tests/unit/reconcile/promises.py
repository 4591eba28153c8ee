"""What must hold of every decision, whatever was done to the service before.

Each promise looks at what the operator saw and what it decided, and raises `BrokenPromiseError`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import parse
from tailbound.api.rollout import OnInconclusive, Promotion, Strategy
from tailbound.objects.fields import Object
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.desired import intend
from tailbound.reconcile.model import Apply, Create, Delete, Observation, Plan, Write
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.scaling import sizing_of
from tailbound.rollout.sizing import ALL

REJECTED = "tailbound.dev/rejected-at"
_OVER = ("Promoted", "RolledBack")
_SERVES = re.compile(r"(\S+-r\d+-\w+) (?:still )?serves")


class BrokenPromiseError(AssertionError):
    """A decision that must not be."""


@dataclass
class Past:
    """What was seen of earlier decisions and actions."""

    had_pods: set[str] = field(default_factory=set)
    promoted_manually: set[str] = field(default_factory=set)
    rejected_manually: set[str] = field(default_factory=set)
    """Revisions that an action named, or that were those of the spec when an action asked for another."""
    refused: set[str] = field(default_factory=set)
    """Objects of which a write was refused."""
    templates: dict[str, str] = field(default_factory=dict)
    """Templates of pods by revision, as they were first seen."""
    proofs: dict[str, set[int]] = field(default_factory=dict)
    """Weights at which the candidate passed in the rollout that runs."""
    bounds: frozenset[str] = frozenset()
    """What the candidate was judged by at the last decision."""
    begun: tuple[Any, ...] = ()
    """Candidate, base and begin of the rollout that runs."""


@dataclass(frozen=True)
class Seen:
    """One decision with what it rests on."""

    observation: Observation
    plan: Plan
    past: Past
    now: datetime

    @cached_property
    def owned(self) -> OwnedState:
        """What exists."""
        service = parse(InferenceService, self.observation.service)
        assert isinstance(service, InferenceService), service
        return OwnedState(self.observation, service)

    @property
    def before(self) -> Object:
        """The status as it was stored."""
        return self.observation.service.get("status") or {}

    @property
    def after(self) -> Object:
        """The status as it will be."""
        return self.plan.status if self.plan.status is not None else self.before

    @cached_property
    def desired(self) -> str:
        """The revision of the spec."""
        return intend(self.owned).name

    @property
    def weights(self) -> list[tuple[str, int]]:
        """The share of the requests that each revision is to get."""
        backends = (self.after.get("traffic") or {}).get("backends", ())
        return [(backend["revision"], backend["weight"]) for backend in backends]

    @property
    def rollout(self) -> Object:
        """status.rollout as it will be."""
        return self.after.get("rollout") or {}

    @property
    def target(self) -> str | None:
        """The revision with most of the weight."""
        return max(self.weights, key=lambda each: each[1])[0] if self.weights else None

    def ready(self, name: str | None) -> int:
        """Ready endpoints of a revision."""
        return self.owned.ready_endpoints.get(name or "", 0)

    def needs(self, name: str) -> int:
        """Pods that a revision needs for all requests."""
        return sizing_of(self.owned).pods(name, ALL)

    def carries(self, name: str) -> int:
        """Percent of the requests that its ready pods carry."""
        return min(ALL, ALL * self.ready(name) // self.needs(name))

    def promoted(self, name: str) -> bool:
        """It was promoted once, and not rejected since."""
        marks = self.owned.marks.get(name)
        return marks is not None and marks.promoted_at is not None and marks.rejected is None

    def rejected(self, name: str) -> bool:
        """It is rejected, or is to be with this decision."""
        marks = self.owned.marks.get(name)
        return (marks is not None and marks.rejected is not None) or name in newly_rejected(self)

    @property
    def spec(self) -> Any:
        """The spec, parsed."""
        return self.owned.service.spec

    def condition(self, kind: str) -> Mapping[str, Any]:
        """A condition as it will be."""
        return next((c for c in self.after.get("conditions", ()) if c["type"] == kind), {})


def marked(body: Object, mark: str) -> bool:
    """Whether a ControllerRevision is written with this mark."""
    return body["kind"] == "ControllerRevision" and mark in body["metadata"].get("annotations", {})


def newly_rejected(seen: Seen) -> set[str]:
    """Revisions that this decision rejects."""
    had = {name for name, marks in seen.owned.marks.items() if marks.rejected is not None}
    return {
        write.body["metadata"]["name"]
        for write in seen.plan.writes
        if isinstance(write, Apply | Create) and marked(write.body, REJECTED)
    } - had


def learn(seen: Seen) -> None:
    """What later decisions rest on: under which weights the candidate has passed."""
    past, before, after = seen.past, seen.before.get("rollout") or {}, seen.rollout
    begun = (after.get("revision"), after.get("from"), after.get("startedAt"))
    if past.begun != begun:
        past.begun, past.proofs = begun, {}
    bounds = _bounds(seen)
    more, past.bounds = not bounds <= past.bounds, bounds
    if more:
        past.proofs = {}
    same = not more and begun == (before.get("revision"), before.get("from"), before.get("startedAt"))
    if same and before.get("stepStartedAt") and _passes(seen, before, after):
        past.proofs.setdefault(str(begun[0]), set()).add(before.get("weight", 0))


def _bounds(seen: Seen) -> frozenset[str]:
    """What the spec asks of a candidate."""
    sla, analysis = seen.spec.sla, seen.spec.rollout.analysis
    metrics = (f"{each.name} {each.query} {each.min}" for each in analysis.metrics)
    errors = f"{sla.error_rate} {analysis.min_error_rate}" if sla.error_rate else None
    return frozenset((*(str(each) for each in (sla.latency, errors) if each), *metrics))


def _passes(seen: Seen, before: Object, after: Object) -> bool:
    spec = seen.spec.rollout
    elapsed = seen.now - datetime.fromisoformat(before["stepStartedAt"]) + timedelta(seconds=1)
    judged = seen.spec.sla.latency or seen.spec.sla.error_rate or spec.analysis.metrics
    findings = [each["outcome"] for each in (*after.get("findings", ()), *after.get("metrics", ()))]
    passed = (findings and all(each == "Pass" for each in findings)) if judged else True
    unknown = spec.on_inconclusive is OnInconclusive.PROMOTE and elapsed >= spec.max_step_time.timedelta
    return bool(elapsed >= spec.min_step_time.timedelta and (passed or unknown))


def proven(seen: Seen, name: str) -> int:
    """The greatest weight that the plan as it is allows a candidate after what it has shown."""
    if name in seen.past.promoted_manually:
        return ALL
    plan, shown = seen.spec.rollout.weights, seen.past.proofs.get(name, set())
    missing = [weight for weight in plan if not any(proof >= weight for proof in shown)]
    if missing:
        return int(missing[0])
    if seen.spec.rollout.promotion is Promotion.AUTOMATIC:
        return ALL
    return plan[-1] if plan else 0


# The promises.


def templates_never_change(seen: Seen) -> None:
    """Whatever becomes of a revision, its pods are made from the same template."""
    for name, stored in seen.owned.stored_revisions.items():
        template = stored["data"]["template"]
        if seen.past.templates.setdefault(name, template) != template:
            raise BrokenPromiseError(f"the template of {name} has changed")


def at_most_one_is_stable(seen: Seen) -> None:
    """The mark of the stable revision is on one revision, or on none."""
    marked_stable = [name for name, marks in seen.owned.marks.items() if marks.stable]
    if len(marked_stable) > 1:
        raise BrokenPromiseError(f"several revisions are stable: {marked_stable}")


def weights_are_whole(seen: Seen) -> None:
    """They sum to 100, or nothing serves; and every revision of them exists."""
    names = [name for name, _ in seen.weights]
    if names and sum(weight for _, weight in seen.weights) != ALL:
        raise BrokenPromiseError(f"weights do not sum to 100: {seen.weights}")
    if len(set(names)) != len(names):
        raise BrokenPromiseError(f"a revision is named twice: {seen.weights}")
    created = {write.body["metadata"]["name"] for write in seen.plan.writes if isinstance(write, Create)}
    unknown = {*names} - {*seen.owned.stored_revisions, *seen.owned.deployments, *created}
    if unknown:
        raise BrokenPromiseError(f"weight on {unknown}, which does not exist")


def only_what_ran_or_was_named_is_rejected(seen: Seen) -> None:
    """A rejection says something about a revision, somebody meant it, or a write that it needs is refused."""
    known = seen.past.had_pods | seen.past.rejected_manually | seen.past.refused
    for name in newly_rejected(seen):
        if known.isdisjoint({name, (seen.before.get("rollout") or {}).get("from", name)}):
            raise BrokenPromiseError(f"{name} is rejected and never had a pod")


def ready_tells_the_truth(seen: Seen) -> None:
    """Ready is True only if the revision of the spec has the requests, and a ready pod that gateways know."""
    if seen.condition("Ready").get("status") != "True":
        return
    if not seen.ready(seen.desired) or dict(seen.weights).get(seen.desired) != ALL:
        raise BrokenPromiseError(
            f"Ready is True: {seen.desired} has {seen.ready(seen.desired)} ready, {seen.weights}"
        )
    for pod, report in seen.observation.gateways.items():
        told = None if isinstance(report, Unknown) else report.services[seen.owned.key].applied
        if told is not None and not told.has_ready_pod:
            raise BrokenPromiseError(f"Ready is True: {pod} answers each request of {seen.desired} with 503")


def nothing_unjudged_has_more_than_it_has_shown(seen: Seen) -> None:
    """But what the ready pods of the stable revision cannot carry."""
    stable, rollout = seen.owned.stable, seen.before.get("rollout") or {}
    if stable is None or seen.spec.stopped or seen.spec.rollout.strategy is Strategy.RECREATE:
        return
    for name, weight in seen.weights:
        runs = name == rollout.get("revision") and rollout.get("state") not in _OVER
        had = rollout.get("weight", 0) if runs else 0
        if name == stable or (seen.promoted(name) and name != seen.desired):
            continue
        if rollout.get("state") == "Promoting" and had == ALL:
            continue
        allowed = 0 if seen.rejected(name) else max(proven(seen, name), had)
        if weight > max(allowed, ALL - seen.carries(stable)):
            what = "rejected" if seen.rejected(name) else f"shown {allowed}"
            raise BrokenPromiseError(
                f"{name} ({what}) gets {weight}, while {stable} carries {seen.carries(stable)}"
            )


def rejected_gets_only_what_stable_cannot_carry(seen: Seen) -> None:
    """A revision that was rejected."""
    stable = seen.owned.stable
    if stable is None or seen.spec.stopped or seen.spec.rollout.strategy is Strategy.RECREATE:
        return
    for name, weight in seen.weights:
        if name != stable and seen.rejected(name) and weight > ALL - seen.carries(stable):
            raise BrokenPromiseError(
                f"{name} was rejected and has {weight}, while {stable} carries {seen.carries(stable)}"
            )


def healthy_pods_stay_until_others_carry_their_share(seen: Seen) -> None:
    """What was promoted keeps its ready pods until what serves has as many, or all that it needs."""
    spec, target = seen.spec, seen.target
    if spec.stopped or spec.rollout.strategy is Strategy.RECREATE or target is None:
        return
    if spec.rollout.capacity != "surge":
        return
    for write in seen.plan.writes:
        name, left = _left(write)
        if name is None or name == target or not seen.promoted(name) or left >= seen.ready(name):
            continue
        if seen.ready(target) < min(seen.ready(name), seen.needs(target)):
            raise BrokenPromiseError(
                f"{name} has {seen.ready(name)} ready pods and is to have {left}, while {target} has "
                f"{seen.ready(target)} ready"
            )


def _left(write: Write) -> tuple[str | None, int]:
    if isinstance(write, Delete):
        return (write.name, 0) if write.kind == "Deployment" else (None, 0)
    if isinstance(write, Apply) and write.body["kind"] == "Deployment":
        return write.body["metadata"]["name"], write.body["spec"]["replicas"]
    return None, 0


def promoted_tells_the_truth(seen: Seen) -> None:
    """Promoted is True only if the revision of the spec has all requests."""
    if seen.condition("Promoted").get("status") != "True" or seen.spec.stopped:
        return
    if dict(seen.weights) != {seen.desired: ALL}:
        raise BrokenPromiseError(f"Promoted is True: {seen.desired} is wanted, {seen.weights}")


def nothing_dead_is_said_to_serve(seen: Seen) -> None:
    """A message that says that a revision serves is right."""
    for condition in seen.after.get("conditions", ()):
        for name in _SERVES.findall(condition["message"]):
            if condition["reason"] == "InvalidSpec":
                continue
            if not seen.ready(name) or not dict(seen.weights).get(name):
                raise BrokenPromiseError(f"{condition['type']}: {condition['message']!r}: {seen.weights}")


PROMISES = (
    templates_never_change,
    at_most_one_is_stable,
    weights_are_whole,
    nothing_unjudged_has_more_than_it_has_shown,
    rejected_gets_only_what_stable_cannot_carry,
    healthy_pods_stay_until_others_carry_their_share,
    only_what_ran_or_was_named_is_rejected,
    ready_tells_the_truth,
    promoted_tells_the_truth,
    nothing_dead_is_said_to_serve,
)
