"""Derives the writes that bring the objects to their desired state, and the obstacles to them.

| a labelled object of that kind and name | write | in the way |
|---|---|---|
| none | Create | - |
| ours, equal | none | - |
| ours, different | Apply | - |
| ours, being deleted | none | waiting until it is gone |
| of a deleted namesake | none | waiting for garbage collection |
| of another owner | none | NameConflict |
| none, the API server refused it | none | what it said |
| ours, the API server refuses the change, or another client undoes it | none | - |

Once something is in the way nothing new is brought up; what is ours is still kept as it should be. A child
that is not vital is in the way of nothing: a budget, or what an older revision lacks. What is refused or
undone, and in the way of nothing, is reported all the same (`conflict`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from tailbound.api.conditions import Reason
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile import ending, model_caches
from tailbound.reconcile.difference import differs
from tailbound.reconcile.model import Apply, Create, Delete, DryRun, RefusedWrite, Write
from tailbound.reconcile.owned_state import OwnedState, Ownership, ownership, terminating
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class ObstacleProbe:
    """Find out what is in the way of an object of ours of this name; nothing is written."""

    kind: str
    name: str


@dataclass(frozen=True)
class Ensure:
    """An object as it should be."""

    body: Mapping[str, Any]
    come_what_may: bool = False
    """What serves is made whole though the rest is stuck."""
    vital: bool = True
    """The rest cannot go on without it."""


@dataclass(frozen=True)
class Ask:
    """A change of an object of ours that is still to come, to be asked about in a dry run."""

    body: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A change of an object of ours that a comparison cannot see, because it takes something away."""

    body: Mapping[str, Any]
    live: Object


@dataclass(frozen=True)
class Remove:
    """Objects of ours that nothing needs."""

    api_version: str
    kind: str
    members: tuple[Object, ...]


WriteRequest: TypeAlias = ObstacleProbe | Ensure | Ask | Change | Remove
"""What a pass asks for; which write it comes to depends on what exists and on what is in the way."""


@dataclass(frozen=True)
class Resolved:
    """The writes that requests come to, in their order, and what is in the way."""

    writes: tuple[Write, ...]
    problem: Problem | None
    """The first thing that a person has to change, or that the API server refused."""
    waiting: str | None
    """The first thing that must be gone before the work can go on."""
    conflict: Problem | None
    """The first child that is refused, undone or not ours to write, and in the way of nothing else."""
    reported: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of every refused object that is in the way."""

    @property
    def blocked(self) -> bool:
        """Something is in the way."""
        return self.problem is not None or self.waiting is not None


def resolve(
    owned: OwnedState, requests: Iterable[WriteRequest], now: datetime, probed: Resolved | None = None
) -> Resolved:
    """Requests to writes, in order: what is in the way of one keeps later ones from bringing up anything.

    `probed`: what was found in the way before, by probes of the same state.
    """
    writer = _Writer(owned, now)
    if probed is not None:
        writer.problem, writer.waiting = probed.problem, probed.waiting
        writer.reported.update(probed.reported)
    for request in requests:
        match request:
            case ObstacleProbe():
                writer.probe(request.kind, request.name, vital=True)
            case Ensure():
                writer.ensure(request)
            case Ask():
                writer.ask(request)
            case Change():
                writer.change(request)
            case Remove():
                writer.remove(request)
    return Resolved(
        tuple(writer.writes), writer.problem, writer.waiting, writer.conflict, frozenset(writer.reported)
    )


def refuses(owned: OwnedState, kind: str, name: str) -> bool:
    """The API server has just refused to write this object."""
    return any((each.kind, each.name) == (kind, name) for each in owned.observation.refused_writes)


@dataclass
class _Writer:
    """The state of one resolution; it does not leave `resolve`."""

    owned: OwnedState
    now: datetime
    writes: list[Write] = field(default_factory=list)
    problem: Problem | None = None
    waiting: str | None = None
    reported: set[tuple[str, str]] = field(default_factory=set)
    _beside: list[Problem] = field(default_factory=list)
    _ensured: set[tuple[str, str]] = field(default_factory=set)
    """Kind and name of what is written. Of what two revisions share, the next decision writes what the second
    one wants: now it would be refused, as the first write is to change the version."""
    _refused: dict[tuple[str, str], RefusedWrite] = field(init=False)

    def __post_init__(self) -> None:
        self._refused = {
            (refused.kind, refused.name): refused for refused in self.owned.observation.refused_writes
        }

    @property
    def conflict(self) -> Problem | None:
        refused = sorted(item for item in self._refused.items() if item[0] not in self.reported)
        return next(iter([*self._beside, *(refusal_of(each) for _, each in refused)]), None)

    def probe(self, kind: str, name: str, *, vital: bool) -> bool:
        """Note what is in the way; True if nothing is."""
        live = self.owned.find(kind, name)
        refused = self._refused.get((kind, name))
        if refused is not None:
            if live is None and vital:
                self._note(refusal_of(refused))
                self.reported.add((kind, name))
            return False
        if live is None:
            return True
        whose = self.owned.whose(kind, live)
        if whose is Ownership.FOREIGN and vital:
            self._note(_conflict(kind, live))
        elif whose is Ownership.FOREIGN:
            self._beside.append(_conflict(kind, live))
        elif whose is Ownership.OURS and not terminating(live):
            return True
        elif vital:
            self.waiting = self.waiting or self._waits_for(kind, name, whose)
        return False

    def ensure(self, request: Ensure) -> None:
        body = request.body
        kind, name = body["kind"], body["metadata"]["name"]
        if not self.probe(kind, name, vital=request.vital):
            return
        live = self.owned.find(kind, name)
        allowed = live is not None or request.come_what_may or (self.problem is None and self.waiting is None)
        if not allowed or (kind, name) in self._ensured or (live is not None and not differs(body, live)):
            return
        self._ensured.add((kind, name))
        self.writes.append(Create(body) if live is None else Apply(_guarded(body, live)))

    def ask(self, request: Ask) -> None:
        body = request.body
        live = self.owned.find(body["kind"], body["metadata"]["name"])
        if live is not None and ownership(live, self.owned.service) is Ownership.OURS and differs(body, live):
            self.writes.append(DryRun(_guarded(body, live)))

    def change(self, request: Change) -> None:
        body = request.body
        if (body["kind"], body["metadata"]["name"]) not in self._refused:
            self.writes.append(Apply(_guarded(body, request.live)))

    def remove(self, request: Remove) -> None:
        """All but those that the API server just refused to delete."""
        for live in request.members:
            view = KubernetesObject(live)
            if view.terminating or (request.kind, view.name) in self._refused:
                continue
            self.writes.append(
                Delete(
                    api_version=request.api_version,
                    kind=request.kind,
                    namespace=view.namespace,
                    name=view.name,
                    uid=view.uid,
                    resource_version=view.resource_version,
                )
            )

    def _note(self, problem: Problem) -> None:
        self.problem = self.problem or problem

    def _waits_for(self, kind: str, name: str, whose: Ownership) -> str:
        if whose is Ownership.PREVIOUS:
            return (
                f"{kind} {name} of a deleted InferenceService of this name is still there; waiting for "
                "garbage collection to remove it"
            )
        late = ending.remedies(self.owned.pods, self.now) if kind == "Deployment" else ""
        if kind == model_caches.KIND:
            late = f", which is when the last pod that mounts it has ended: {model_caches.NEW_VOLUME}"
        return f"{kind} {name} is being deleted; waiting until it is gone{late}"


def _guarded(body: Mapping[str, Any], live: Object) -> dict[str, Any]:
    """The body, bound to the very object and version it was decided on."""
    view = KubernetesObject(live)
    guard = {"uid": view.uid, "resourceVersion": view.resource_version}
    return {**body, "metadata": {**body["metadata"], **guard}}


def refusal_of(refused: RefusedWrite) -> Problem:
    """What the API server said, with the object's name."""
    about = "" if refused.name in refused.message else f"{refused.kind} {refused.name}: "
    return Problem(refused.reason, f"{about}{refused.message}")


def _conflict(kind: str, live: Object) -> Problem:
    owner, name = KubernetesObject(live).controller, KubernetesObject(live).name
    whose = f"{owner.kind} {owner.name}" if owner is not None else "no controller"
    return Problem(
        Reason.NAME_CONFLICT,
        f"{kind} {name} exists and belongs to {whose}, and is left alone; delete or rename it, "
        "or give this InferenceService another name",
    )
