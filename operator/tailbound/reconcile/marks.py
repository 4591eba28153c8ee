"""The marks of revisions: what is remembered of each on its ControllerRevision, and the writes of it.

Marks leave the other revisions before one becomes the stable one, the rejected one first. Between two of
these writes the operator may die: whatever is marked then leads to the same end.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tailbound.api.names import RETRY_ANNOTATION
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.times import utc_seconds
from tailbound.reconcile import signatures
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.owned_state import owner_reference
from tailbound.reconcile.writes import Change, Ensure, WriteRequest
from tailbound.revisions.marks import Fallback, Marks
from tailbound.revisions.record import Revision, to_object
from tailbound.rollout.actions import named
from tailbound.rollout.fallback import Move


def marks_of_others(decided: Decided) -> Iterator[WriteRequest]:
    """What is remembered of every revision but the one that is the stable one from now on."""
    marking, marks = decided.step.marking, decided.owned.marks
    rejected = marking.rejection.revision if marking.rejection is not None else None
    others = [name for name in marks if name != marking.stable]
    for name in sorted(others, key=lambda name: name != rejected):
        changed = _learned(decided, name, marks[name])
        yield from _change(decided, name, changed.retired() if marking.stable is not None else changed)


def mark_of_older_stable(decided: Decided) -> Iterator[WriteRequest]:
    """The mark of the stable revision, if an older one gets it; the desired one gets it with its record."""
    marking, marks = decided.step.marking, decided.owned.marks
    name = marking.stable
    if name is not None and name != decided.name and name in marks:
        changed = _learned(decided, name, marks[name])
        yield from _change(decided, name, changed.promoted(decided.now, marking.promoted_by))


def record_of_desired(decided: Decided, revision: Revision) -> Iterator[WriteRequest]:
    """The ControllerRevision of the desired revision, made or kept whole."""
    marking, stored = decided.step.marking, decided.owned.marks.get(revision.name)
    changed = _learned(decided, revision.name, stored or Marks())
    if marking.stable == revision.name:
        changed = changed.promoted(decided.now, marking.promoted_by)
    elif marking.stable is not None:
        changed = changed.retired()
    if stored is None or changed == stored:
        yield Ensure(_record(decided, revision, changed))
    elif marking.stable == revision.name:
        yield from _change(decided, revision.name, changed)


def _change(decided: Decided, name: str, changed: Marks) -> Iterator[WriteRequest]:
    """The record of the desired revision is made whole with its children, not here."""
    live = decided.owned.stored_revisions[name]
    adopted = name != decided.name and KubernetesObject(live).controller is None
    revision = decided.owned.revision(name) if changed != decided.owned.marks[name] or adopted else None
    if revision is not None:
        yield Change(_record(decided, revision, changed), live)


def _learned(decided: Decided, name: str, marks: Marks) -> Marks:
    """The marks with what was measured and read, annotations acted on, and what this step decides on it."""
    sizes = decided.owned.observation.sizes
    sized = sizes.revisions.get(name) if sizes is not None else None
    placed = marks.fallback.since if marks.fallback is not None else ""
    if sized is not None and sized.capacity is not None and sized.placed == placed:
        marks = replace(marks, capacity=sized.capacity)
    move = decided.fallbacks.get(name)
    if isinstance(move, Move):
        moved = Fallback(move.to, utc_seconds(decided.now), move.why)
        marks = replace(marks, fallback=moved, capacity=None)
    if marks.signature is None and (read := signatures.answered(decided.owned, name)) is not None:
        marks = replace(marks, signature=read)
    marks, done = _annotations_acted_on(decided, name, marks)
    marking, at = decided.step.marking, utc_seconds(decided.now)
    if RETRY_ANNOTATION in done or name == marking.cleared:
        marks = marks.cleared()
    superseded, rejection = marking.superseded, marking.rejection
    if (vain := marking.not_returned) is not None and vain.revision == name:
        marks = replace(marks, not_returned=replace(vain, at=at))
    known_by = marks.superseded.by if marks.superseded is not None else None
    if superseded is not None and superseded.revision == name and superseded.by != known_by:
        marks = marks.given_up(replace(superseded, at=at))
    if rejection is None or rejection.revision != name:
        return marks
    return marks.with_rejection(replace(rejection, at=at))


def _annotations_acted_on(decided: Decided, name: str, marks: Marks) -> tuple[Marks, dict[str, str]]:
    """The marks with the annotations that name this revision, and those of them that are done with now.

    One is remembered for as long as it is there: who removes it and sets it again asks again.
    """
    marking, annotations = decided.step.marking, decided.owned.service.metadata.annotations
    acted = {
        annotation: value
        for annotation in (*marking.handled, *marking.under_way)
        if named(value := annotations.get(annotation, marks.under_way.get(annotation, ""))) == name
    }
    done = {annotation: value for annotation, value in acted.items() if annotation in marking.handled}
    known = {
        annotation: value
        for annotation, value in {**marks.handled, **done}.items()
        if annotations.get(annotation) == value
    }
    under_way = {annotation: value for annotation, value in acted.items() if annotation in marking.under_way}
    if (known, under_way) != (marks.handled, marks.under_way):
        marks = marks.remembering(known, under_way)
    return marks, done


def _record(decided: Decided, revision: Revision, marks: Marks) -> dict[str, Any]:
    service = decided.owned.service
    return to_object(
        revision,
        marks,
        service=service.metadata.name,
        namespace=service.metadata.namespace,
        owner=owner_reference(service),
    )
