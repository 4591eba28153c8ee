"""The return of a service to a preferred hardware class: what it is decided on, and how it comes about.

The decision is in `rollout/class_return.py`. It leaves the name of an attempt in the status; the next look
makes a revision of it, whose pods begin with the first class, and which the normal rollout judges. Attempts
that were rejected stay on record, so that a lost status forgets none of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.hardware import ReturnPolicy
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.quantities import Duration
from tailbound.api.rollout import Strategy
from tailbound.objects.printable import shortened
from tailbound.objects.times import LONG_AGO, time_in
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.record import Revision, origin_of, spec_origin
from tailbound.revisions.relevant import digest
from tailbound.rollout.class_return import ReturnCase, ReturnDecision, ReturnHold, ReturnStart, decide, lasted
from tailbound.rollout.fallback import Stay

LOOK: Final = timedelta(minutes=1)
"""How often the room is looked at: the status of classes is counted this often."""
_ATTEMPT: Final = re.compile(r"return-r(?P<number>[1-9][0-9]*)-(?P<nth>[0-9]+)")
_LONGEST_QUOTE: Final = 300


@dataclass(frozen=True)
class Attempt:
    """A return, as the origin of its revision says."""

    number: int
    """The number of the revision."""
    nth: int
    """1 for the first return, and one more for each in a row that did not last."""

    def __str__(self) -> str:
        return f"return-r{self.number}-{self.nth}"


def attempt_of(refresh: str | None) -> Attempt | None:
    """The return that a revision with this origin is; None for any other revision."""
    found = _ATTEMPT.fullmatch(refresh or "")
    return Attempt(int(found["number"]), int(found["nth"])) if found is not None else None


def is_return(revision: Revision) -> bool:
    """Whether this revision was made to return to a preferred class."""
    return attempt_of(spec_origin(revision.spec_json).refresh) is not None


def fallen_back(owned: OwnedState) -> Revision | None:
    """The stable revision, if it serves from another class than its first one."""
    revision = owned.revision(owned.stable)
    return None if revision is None or revision.hardware_class == revision.classes[0] else revision


def begun(owned: OwnedState, stored: str | None) -> Attempt | None:
    """The return that the last look decided on, if it is the next revision of this spec.

    `stored`: the revision of the spec, if there is one.
    """
    hardware = owned.service.status.hardware
    attempt = attempt_of(hardware.attempt if hardware is not None else None)
    stable = fallen_back(owned)
    wanted = owned.service.spec.hardware.return_policy is ReturnPolicy.WHEN_ROOM
    if attempt is None or stable is None or stable.name != stored or not wanted:
        return None
    return attempt if attempt.number == owned.next_number and not owned.service.spec.stopped else None


def gives_up_after(owned: OwnedState, name: str) -> Duration | None:
    """The time for which pods of a return wait for nodes; None for any other revision."""
    revision, stable = owned.revision(name), owned.revision(owned.stable)
    if revision is None or stable is None or name == stable.name or not is_return(revision):
        return None
    classes, serving = revision.classes, stable.hardware_class
    preferred = max(classes.index(serving) if serving in classes else 1, 1)
    return Duration(owned.service.spec.hardware.effective_fallback_after().milliseconds * preferred)


def decision(
    owned: OwnedState, *, settled: bool, problem: str, fallback: object, now: datetime
) -> ReturnDecision | None:
    """The decision; None where no return is asked for, or none is needed.

    `settled`: the stable revision is that of the spec, and no rollout is under way. `problem`: why a revision
    cannot be made; empty if it can. `fallback`: what is decided on the class of the stable revision.
    """
    stable = fallen_back(owned)
    if stable is None or owned.service.spec.hardware.return_policy is not ReturnPolicy.WHEN_ROOM:
        return None
    if not settled or owned.service.spec.stopped:
        return None
    deployed = owned.deployments.get(stable.name)
    hardware = owned.service.status.hardware
    last, vain, failure = _history(owned, stable)
    return decide(
        ReturnCase(
            room=_room(owned, stable.classes[: stable.classes.index(stable.hardware_class)]),
            pods=max(deployed.replicas if deployed is not None else 1, 1),
            obstacle=_obstacle(owned, stable, problem, fallback),
            room_since=hardware.room_since if hardware is not None else None,
            last=last,
            vain=vain,
            failure=failure,
            after=owned.service.spec.hardware.effective_return_after().timedelta,
        ),
        now.replace(microsecond=0),
    )


def next_attempt(owned: OwnedState) -> Attempt:
    """The return to begin."""
    stable = fallen_back(owned)
    return Attempt(owned.next_number, _history(owned, stable)[1] + 1 if stable is not None else 1)


def in_words(decided: ReturnDecision) -> str:
    """The decision in words."""
    match decided:
        case ReturnStart(name):
            return f"the service returns to HardwareClass {name} through a rollout"
        case ReturnHold(why, _, None):
            return f"the service does not return to a preferred HardwareClass yet: {why}"
        case ReturnHold(why, _, until):
            assert until is not None
            return f"a return to a preferred HardwareClass begins at {until.isoformat()}: {why}"


def next_look(decided: ReturnDecision | None, now: datetime) -> timedelta | None:
    """The time until the room is to be looked at again; None where it does not matter."""
    if not isinstance(decided, ReturnHold):
        return None
    return min(LOOK, max(decided.until - now, timedelta())) if decided.until is not None else LOOK


def outdated_attempts(owned: OwnedState) -> frozenset[str]:
    """The names of rejected returns except the newest, whose record counts those before it."""
    rejected = [
        name
        for name, marks in owned.marks.items()
        if marks.rejected is not None and _attempt(owned, name) is not None
    ]
    newest = max(rejected, key=lambda name: owned.numbers[name], default=None)
    return frozenset(name for name in rejected if name != newest)


def _obstacle(owned: OwnedState, stable: Revision, problem: str, fallback: object) -> str:
    if owned.service.spec.rollout.strategy is Strategy.RECREATE:
        return f"strategy recreate ends all pods first; {owned.commands.tailbound('refresh')} returns"
    if problem:
        return problem
    if not owned.ready_endpoints.get(stable.name, 0) or not isinstance(fallback, Stay):
        return f"no pod of {stable.name} is ready"
    return ""


def _room(owned: OwnedState, classes: tuple[str, ...]) -> Mapping[str, int | Unknown]:
    return {name: _room_of(owned, name) for name in classes}


def _room_of(owned: OwnedState, name: str) -> int | Unknown:
    stored = owned.observation.hardware_classes.get(name)
    found = parse(HardwareClass, stored) if stored is not None else None
    if found is None or isinstance(found, InvalidObject):
        return 0
    if found.status.room is None:
        return 0 if found.status.waiting else Unknown("its devices are not counted")
    # The pods that wait get what there is, each as much as any other pod of the class.
    return max(found.status.room - (found.status.waiting or 0), 0)


def _attempt(owned: OwnedState, name: str) -> Attempt | None:
    origin = origin_of(owned.stored_revisions[name])
    return attempt_of(origin.refresh) if origin is not None else None


def _history(owned: OwnedState, stable: Revision) -> tuple[datetime, int, str]:
    """When the present class was chosen or the last return ended, how many did not last, and why the last."""
    marks = owned.marks[stable.name]
    moved = _time(marks.fallback.since if marks.fallback is not None else None)
    own = attempt_of(spec_origin(stable.spec_json).refresh)
    after = owned.service.spec.hardware.effective_return_after().timedelta
    vain = 0
    if own is not None and not lasted(after, own.nth - 1, _time(marks.promoted_at), moved):
        vain = own.nth
    plain = digest(owned.service.spec, "")
    failed = [
        (attempt.number, attempt.nth, rejected)
        for name, stored in owned.stored_revisions.items()
        if (rejected := owned.marks[name].rejected) is not None
        and (origin := origin_of(stored)) is not None
        and (attempt := attempt_of(origin.refresh)) is not None
        and owned.numbers[name] > stable.number
        and origin.spec_hash == plain
    ]
    if not failed:
        return moved, vain, ""
    _, nth, newest = max(failed, key=lambda each: each[0])
    why = shortened(newest.message, _LONGEST_QUOTE)
    return max(moved, _time(newest.at)), nth, f"{newest.revision}: {why}"


def _time(text: str | None) -> datetime:
    """What cannot be read was long ago."""
    return time_in(text) or LONG_AGO
