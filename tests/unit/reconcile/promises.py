"""What must hold of every decision, whatever was done to the service before.

Each promise looks at what the operator saw and what it decided, and raises `BrokenPromiseError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import parse
from tailbound.reconcile.desired import intend
from tailbound.reconcile.model import Apply, Create, Object, Observation, Plan
from tailbound.reconcile.scaling import sizing_of
from tailbound.reconcile.world import World
from tailbound.rollout.sizing import ALL

REJECTED = "tailbound.dev/rejected-at"


class BrokenPromiseError(AssertionError):
    """A decision that must not be."""


@dataclass
class Past:
    """What was seen of earlier decisions and hands."""

    had_pods: set[str] = field(default_factory=set)
    promoted_by_hand: set[str] = field(default_factory=set)
    rejected_by_hand: set[str] = field(default_factory=set)
    """Revisions that a hand named, or that were those of the spec when a hand asked for another."""


@dataclass(frozen=True)
class Seen:
    """One decision with what it rests on."""

    observation: Observation
    plan: Plan
    past: Past
    now: datetime

    @cached_property
    def world(self) -> World:
        """What exists."""
        service = parse(InferenceService, self.observation.service)
        assert isinstance(service, InferenceService), service
        return World(self.observation, service)

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
        return intend(self.world).name

    @property
    def weights(self) -> list[tuple[str, int]]:
        """Where requests are to go."""
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
        return self.world.ready_endpoints.get(name or "", 0)

    def needs(self, name: str) -> int:
        """Pods that a revision needs for all requests."""
        return sizing_of(self.world).pods(name, ALL)

    def carries(self, name: str) -> int:
        """Percent of the requests that its ready pods carry."""
        return min(ALL, ALL * self.ready(name) // self.needs(name))

    def promoted(self, name: str) -> bool:
        """It was promoted once, and not rejected since."""
        marks = self.world.marks.get(name)
        return marks is not None and marks.promoted_at is not None and marks.rejected is None

    def rejected(self, name: str) -> bool:
        """It is rejected, or is to be with this decision."""
        marks = self.world.marks.get(name)
        return (marks is not None and marks.rejected is not None) or name in newly_rejected(self)

    @property
    def spec(self) -> Any:
        """The spec, parsed."""
        return self.world.service.spec

    def condition(self, kind: str) -> Mapping[str, Any]:
        """A condition as it will be."""
        return next((c for c in self.after.get("conditions", ()) if c["type"] == kind), {})


def marked(body: Object, mark: str) -> bool:
    """Whether a ControllerRevision is written with this mark."""
    return body["kind"] == "ControllerRevision" and mark in body["metadata"].get("annotations", {})


def newly_rejected(seen: Seen) -> set[str]:
    """Revisions that this decision rejects."""
    had = {name for name, marks in seen.world.marks.items() if marks.rejected is not None}
    return {
        write.body["metadata"]["name"]
        for write in seen.plan.writes
        if isinstance(write, Apply | Create) and marked(write.body, REJECTED)
    } - had


# The promises.


def weights_are_whole(seen: Seen) -> None:
    """They sum to 100, or nothing serves; and every revision of them exists."""
    names = [name for name, _ in seen.weights]
    if names and sum(weight for _, weight in seen.weights) != ALL:
        raise BrokenPromiseError(f"weights do not sum to 100: {seen.weights}")
    if len(set(names)) != len(names):
        raise BrokenPromiseError(f"a revision is named twice: {seen.weights}")
    created = {write.body["metadata"]["name"] for write in seen.plan.writes if isinstance(write, Create)}
    unknown = {*names} - {*seen.world.stored_revisions, *seen.world.deployments, *created}
    if unknown:
        raise BrokenPromiseError(f"weight on {unknown}, which does not exist")


def only_what_ran_or_was_named_is_rejected(seen: Seen) -> None:
    """A rejection says something about a revision, or somebody meant it."""
    for name in newly_rejected(seen):
        if name not in seen.past.had_pods | seen.past.rejected_by_hand:
            raise BrokenPromiseError(f"{name} is rejected and never had a pod")


def ready_tells_the_truth(seen: Seen) -> None:
    """Ready is True only if the revision of the spec has the requests and something of it is ready."""
    if seen.condition("Ready").get("status") != "True":
        return
    if not seen.ready(seen.desired) or dict(seen.weights).get(seen.desired) != ALL:
        raise BrokenPromiseError(
            f"Ready is True: {seen.desired} has {seen.ready(seen.desired)} ready, {seen.weights}"
        )


PROMISES = (
    weights_are_whole,
    only_what_ran_or_was_named_is_rejected,
    ready_tells_the_truth,
)
