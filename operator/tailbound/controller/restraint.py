"""Writes that do not last: what is refused, or undone by others, is written again at ever longer intervals.

Of one child, by kind and name, where n is how often in a row:

| the last write of it | since then | the next write |
|---|---|---|
| none, or of other content | any | at once |
| refused, before the spec changed | any | at once |
| accepted the n-th time, and the same is to be written again | less than 2^(n-1) s, at most 5 min | waits |
| refused, or failed, the n-th time | less than 2^(n-1) s, at most 1 min | waits, once that is reported |
| either | more | at once |

What is refused is reported at once, and what fails when it has failed LASTING times: the API server may be
away for a moment.

Of the status: the same. It was undone if the stored one is not what the last write left, or if the very same
is to be written again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tailbound.api.conditions import Reason
from tailbound.api.names import FIELD_MANAGER
from tailbound.kube.objects import Key
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject, ManagedFields
from tailbound.reconcile.difference import first_difference
from tailbound.reconcile.model import Delete, RefusedWrite, Write

FIRST_SECONDS: Final = 1.0
LONGEST_UNDONE_SECONDS: Final = 300.0
LONGEST_REFUSED_SECONDS: Final = 60.0
# What lasted for this long was not undone by what undid it before.
LASTED_SECONDS: Final = 2 * LONGEST_UNDONE_SECONDS

LASTING: Final = 3
"""Failures in a row of the same write."""

_SHORT: Final = 40

Target = tuple[str, str]
"""Kind and name of a child."""


@dataclass(frozen=True)
class _Attempt:
    """The last write of one child."""

    content: object
    times: int
    """How often in a row: the same content, or refused."""
    at: float
    generation: int
    refusal: RefusedWrite | None = None
    """Why it was refused, or who undoes it."""

    @property
    def refused(self) -> bool:
        """The API server did not take it."""
        return self.refusal is not None and self.refusal.reason is not Reason.CONTESTED

    @property
    def reported(self) -> bool:
        """It is refused or undone, or has failed often enough."""
        if self.refusal is None:
            return False
        return self.refusal.reason is not Reason.WRITE_FAILED or self.times >= LASTING

    def is_recent(self, now: float) -> bool:
        """Whether what undid it before may undo it again."""
        return 0 <= now - self.at < LASTED_SECONDS

    def left(self, now: float) -> float:
        """Seconds until the next one; 0 as well if the clock was set back."""
        longest = LONGEST_REFUSED_SECONDS if self.refused else LONGEST_UNDONE_SECONDS
        pause = min(FIRST_SECONDS * (1 << min(self.times - 1, 16)), longest)
        return pause - (now - self.at) if 0 <= now - self.at < pause else 0.0


@dataclass(frozen=True)
class _Status:
    """The last write of a status."""

    wanted: Object
    stored: Object
    """What the API server answered."""
    undone: int
    at: float


class Restraint:
    """Remembers the last write of every child and status. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._children: dict[Key, dict[Target, _Attempt]] = {}
        self._statuses: dict[Key, _Status] = {}

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._children.pop(key, None)
        self._statuses.pop(key, None)

    def held(self, key: Key, generation: int, now: float) -> dict[Target, RefusedWrite]:
        """The children that are not to be written now, and why. A new spec is always tried."""
        attempts = self._children.get(key, {})
        return {
            target: each.refusal
            for target, each in attempts.items()
            if each.refusal is not None
            and each.reported
            and each.left(now) > 0
            and (not each.refused or each.generation == generation)
        }

    def wait(self, key: Key, target: Target, write: Write, now: float) -> float:
        """Seconds until this write may be done."""
        last = self._children.get(key, {}).get(target)
        if last is None or last.refused or last.content != _content(write):
            return 0.0
        return last.left(now)

    def written(
        self, key: Key, target: Target, write: Write, generation: int, now: float
    ) -> RefusedWrite | None:
        """The API server took this write; returns who has undone it so far, if it is undone."""
        content, last = _content(write), self._children.get(key, {}).get(target)
        made = _Attempt(content, 1, now, generation)
        if last is not None and not last.refused and last.content == content and last.is_recent(now):
            made = replace(made, times=last.times + 1, refusal=last.refusal)
        self._children.setdefault(key, {})[target] = made
        return made.refusal

    def refused(self, key: Key, refusal: RefusedWrite, generation: int, now: float) -> None:
        """The API server refused a write of this child."""
        target = (refusal.kind, refusal.name)
        last = self._children.get(key, {}).get(target)
        times = last.times + 1 if last is not None and last.refused and last.generation == generation else 1
        self._children.setdefault(key, {})[target] = _Attempt(None, times, now, generation, refusal)

    def failed(self, key: Key, failure: RefusedWrite, generation: int, now: float) -> bool:
        """The API server did not get a write of this child done. True if that has lasted."""
        self.refused(key, failure, generation, now)
        return self._children[key][failure.kind, failure.name].reported

    def contested(self, key: Key, refusal: RefusedWrite) -> None:
        """Another client undoes what is written of this child."""
        attempts, target = self._children[key], (refusal.kind, refusal.name)
        attempts[target] = replace(attempts[target], refusal=refusal)

    def next(self, key: Key, targets: Mapping[Target, RefusedWrite], now: float) -> float | None:
        """Seconds until the first of these children may be written again; None if there is none."""
        attempts = self._children.get(key, {})
        return min((attempts[target].left(now) for target in targets if target in attempts), default=None)

    def status_wait(self, key: Key, stored: Object, wanted: Object, now: float) -> float:
        """Seconds until this status may be written; `stored` is the one that is there."""
        last = self._statuses.get(key)
        if last is None or not _undone(last, stored, wanted):
            return 0.0
        return _Attempt(None, last.undone + 1, last.at, 0).left(now)

    def status_written(self, key: Key, before: Object, wanted: Object, stored: Object, now: float) -> None:
        """Record that `wanted` took the place of `before`, and that the API server answered with `stored`."""
        last = self._statuses.get(key)
        undone = last is not None and _undone(last, before, wanted) and 0 <= now - last.at < LASTED_SECONDS
        self._statuses[key] = _Status(wanted, stored, last.undone + 1 if last and undone else 0, now)


def rivalry(kind: str, name: str, live: Object | None, write: Write) -> RefusedWrite:
    """The message about the client that undid a write, with the field and both its values.

    The newest of the foreign entries of its managedFields names the client. A change by an
    admission webhook has no such entry.
    """
    entries = sorted(_rivals(live), key=lambda entry: entry.time)
    if live is None:
        words = "another client has removed it just after Tailbound had made it: leave it to Tailbound"
    elif not entries:
        words = (
            f"it does not stay as Tailbound has just written it: {_change(write, live)}. What to do: find "
            "the admission webhook or policy that changes it, and have it leave this object alone"
        )
    else:
        remedy = _UNSCALED if entries[-1].subresource == "scale" else "leave it to Tailbound"
        undone = f"{entries[-1].manager} has undone what Tailbound had just written"
        words = f"{undone}: {_change(write, live)}. What to do: {remedy}"
    return RefusedWrite(kind, name, Reason.CONTESTED, f"{kind} {name}: {words}")


_UNSCALED: Final = (
    "remove the HorizontalPodAutoscaler, or what else changes the replicas, and scale the InferenceService "
    "instead (spec.scaling)"
)


def _change(write: Write, live: Object) -> str:
    """The first field that was undone, with both values where they are short."""
    found = None if isinstance(write, Delete) else first_difference(_content(write), live)
    if found is None:
        return "it is there again" if isinstance(write, Delete) else "for now it is as it was written"
    path, wanted, present = found
    short = all(isinstance(each, str | int | None) and len(str(each)) <= _SHORT for each in (wanted, present))
    values = f" is {'not set' if present is None else present} and not {wanted}" if short else " is another"
    return f"{path}{values}"


def _rivals(live: Object | None) -> Iterator[ManagedFields]:
    for entry in KubernetesObject(live or {}).managed_fields:
        if entry.manager != FIELD_MANAGER and entry.subresource != "status":
            yield entry


def _undone(last: _Status, stored: Object, wanted: Object) -> bool:
    return stored != last.stored or wanted == last.wanted


def _content(write: Write) -> dict[str, Any]:
    """What a write says, without the state that it was decided on. Every deletion says the same."""
    if isinstance(write, Delete):
        return {}
    meta = {
        key: value for key, value in write.body["metadata"].items() if key not in ("uid", "resourceVersion")
    }
    return {**write.body, "metadata": meta}
