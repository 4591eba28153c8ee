"""From the objects as they should be to the writes that make them so, and to what is in the way.

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
from typing import Any

from tailbound.api.conditions import Reason
from tailbound.reconcile import ending
from tailbound.reconcile.difference import differs
from tailbound.reconcile.model import Apply, Create, Delete, DryRun, Object, RefusedWrite, Write
from tailbound.reconcile.owned_state import OwnedState, Ownership, controller_of, ownership, terminating
from tailbound.reconcile.selection import Problem


@dataclass
class Writer:
    """Collects the writes of one plan, in order."""

    world: OwnedState
    now: datetime
    writes: list[Write] = field(default_factory=list)
    problem: Problem | None = None
    """The first thing that has to be changed by hand, or that the API server refused."""
    waiting: str | None = None
    """The first thing that must be gone before the work can go on."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    _beside: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._refused = {
            (refused.kind, refused.name): refused for refused in self.world.observation.obstacles
        }

    @property
    def blocked(self) -> bool:
        """Something is in the way."""
        return self.problem is not None or self.waiting is not None

    @property
    def conflict(self) -> Problem | None:
        """The first child that is refused, undone or not ours to write, and in the way of nothing else."""
        refused = sorted(item for item in self._refused.items() if item[0] not in self._told)
        return next(iter([*self._beside, *(refusal_of(obstacle) for _, obstacle in refused)]), None)

    def refuses(self, kind: str, name: str) -> bool:
        """The API server has just refused to write this object."""
        return (kind, name) in self._refused

    def probe(self, kind: str, name: str, *, vital: bool = True) -> bool:
        """Note what is in the way of an object of ours of this name; True if nothing is.

        The rest can go on without one that is not vital.
        """
        live = self.world.find(kind, name)
        refused = self._refused.get((kind, name))
        if refused is not None:
            if live is None and vital:
                self._note(refusal_of(refused))
                self._told.add((kind, name))
        elif live is None:
            return True
        else:
            whose = ownership(live, self.world.service)
            if whose is Ownership.FOREIGN and vital:
                self._note(_conflict(kind, live))
            elif whose is Ownership.FOREIGN:
                self._beside.append(_conflict(kind, live))
            elif not vital and (whose is Ownership.PREVIOUS or terminating(live)):
                return False
            elif whose is Ownership.PREVIOUS:
                self._wait(
                    f"{kind} {name} of a deleted InferenceService of this name is still there; waiting for "
                    "garbage collection to remove it"
                )
            elif terminating(live):
                late = ending.told(self.world.observation.pods, self.now) if kind == "Deployment" else ""
                self._wait(f"{kind} {name} is being deleted; waiting until it is gone{late}")
            else:
                return True
        return False

    def ensure(self, body: Mapping[str, Any], *, come_what_may: bool = False, vital: bool = True) -> None:
        """The object as it should be. `come_what_may`: what serves is made whole though the rest is stuck."""
        kind, name = body["kind"], body["metadata"]["name"]
        if not self.probe(kind, name, vital=vital):
            return
        live = self.world.find(kind, name)
        if live is None:
            if come_what_may or not self.blocked:
                self.writes.append(Create(body))
        elif differs(body, live):
            self.writes.append(Apply(_guarded(body, live)))

    def dry_run(self, body: Mapping[str, Any]) -> None:
        """Ask about a change of an object of ours that is still to come."""
        live = self.world.find(body["kind"], body["metadata"]["name"])
        if live is not None and ownership(live, self.world.service) is Ownership.OURS and differs(body, live):
            self.writes.append(DryRun(_guarded(body, live)))

    def apply(self, body: Mapping[str, Any], live: Object) -> None:
        """A change of an object of ours that a comparison cannot see, because it takes something away."""
        if (body["kind"], body["metadata"]["name"]) not in self._refused:
            self.writes.append(Apply(_guarded(body, live)))

    def delete(self, members: Iterable[Object], api_version: str, kind: str) -> None:
        """Objects of ours that nothing needs, save those that the API server just refused to delete."""
        for live in members:
            metadata = live["metadata"]
            if terminating(live) or (kind, metadata["name"]) in self._refused:
                continue
            self.writes.append(
                Delete(
                    api_version=api_version,
                    kind=kind,
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                )
            )

    def _note(self, problem: Problem) -> None:
        self.problem = self.problem or problem

    def _wait(self, message: str) -> None:
        self.waiting = self.waiting or message


def _guarded(body: Mapping[str, Any], live: Object) -> dict[str, Any]:
    """The body, bound to the very object and version it was decided on."""
    metadata = live["metadata"]
    guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {**body, "metadata": {**body["metadata"], **guard}}


def refusal_of(refused: RefusedWrite) -> Problem:
    """What the API server said, with the object's name."""
    about = "" if refused.name in refused.message else f"{refused.kind} {refused.name}: "
    return Problem(refused.reason, f"{about}{refused.message}")


def _conflict(kind: str, live: Object) -> Problem:
    owner = controller_of(live)
    whose = f"{owner.get('kind')} {owner.get('name')}" if owner is not None else "no controller"
    name = live["metadata"]["name"]
    return Problem(
        Reason.NAME_CONFLICT,
        f"{kind} {name} exists and belongs to {whose}, and is left alone; delete or rename it, "
        "or give this InferenceService another name",
    )
