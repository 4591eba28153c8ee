"""The marks of a revision: what is known about it beyond its content, kept in annotations of its record.

Annotations outlive the status of the service, which a backup or a client can lose. What cannot be read counts
as absent.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from tailbound.api.names import (
    CAPACITY_ANNOTATION,
    FALLBACK_ANNOTATION,
    FORMERLY_REJECTED_ANNOTATION,
    HANDLED_ANNOTATIONS,
    PROMOTED_AT_ANNOTATION,
    PROMOTED_BY_ANNOTATION,
    REJECTED_AT_ANNOTATION,
    REJECTED_BY_ANNOTATION,
    REJECTED_MESSAGE_ANNOTATION,
    REJECTED_REASON_ANNOTATION,
    RETURN_GIVEN_UP_ANNOTATION,
    SIGNATURE_ANNOTATION,
    STABLE_ANNOTATION,
    SUPERSEDED_AT_ANNOTATION,
    SUPERSEDED_BY_ANNOTATION,
    UNDER_WAY_ANNOTATIONS,
)
from tailbound.api.rejection import Rejection, Superseded
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.signature import ModelSignature, stored_signature
from tailbound.objects.times import utc_seconds

_MOST_FORMER: Final = 5
_REJECTION_FIELDS: Final = ("at", "by", "message", "reason")


@dataclass(frozen=True)
class Fallback:
    """The class that the pods of a revision are for instead of its first one."""

    hardware_class: str
    since: str
    """RFC 3339."""
    why: str


@dataclass(frozen=True)
class Marks:
    """What is known about a revision beyond its content; annotations, so that it outlives the status."""

    stable: bool = False
    promoted_at: str | None = None
    promoted_by: str | None = None
    """The user who asked for it; None after a verdict."""
    rejected: Rejection | None = None
    former: tuple[Rejection, ...] = ()
    """Rejections after which it was tried again, the newest last."""
    superseded: Superseded | None = None
    """Why the revision was given up, until that is decided on."""
    not_returned: Rejection | None = None
    """Why the last return to it was given up, until it serves again."""
    handled: Mapping[str, str] = field(default_factory=dict)
    """By annotation of the service, the last value that named this revision and was acted on."""
    under_way: Mapping[str, str] = field(default_factory=dict)
    """By annotation of the service, the value that names this revision and is being acted on."""
    capacity: str | None = None
    """How fast a pod of it was found to be, as the autoscaler wrote it."""
    fallback: Fallback | None = None
    """The class that its pods are for; None for its first one."""
    signature: ModelSignature | None = None
    """The inputs and outputs of its model, once a pod was asked for them."""

    def promoted(self, now: datetime, by: str | None = None) -> "Marks":
        """Stable from now on; the first promotion's time stays."""
        if self.stable and self.rejected is None:
            return self
        promoted_at = self.promoted_at or utc_seconds(now)
        again = replace(self.cleared(), superseded=None, not_returned=None)
        return replace(again, stable=True, promoted_at=promoted_at, promoted_by=by)

    def retired(self) -> "Marks":
        """No longer the stable one."""
        return replace(self, stable=False)

    def with_rejection(self, rejected: Rejection) -> "Marks":
        """The marks of a rejected revision. The first rejection stays until it is tried again."""
        return replace(self, stable=False, rejected=self.rejected or rejected, superseded=None)

    def cleared(self) -> "Marks":
        """To be tried again."""
        if self.rejected is None:
            return self
        return replace(self, rejected=None, former=(*self.former, self.rejected)[-_MOST_FORMER:])

    def given_up(self, superseded: Superseded) -> "Marks":
        """Left for a later spec, before a verdict."""
        return replace(self, superseded=superseded)

    def remembering(self, handled: Mapping[str, str], under_way: Mapping[str, str]) -> "Marks":
        """The marks with exactly these values of actions, by annotation, as handled or under way."""
        return replace(self, handled=dict(handled), under_way=dict(under_way))

    def annotations(self) -> dict[str, str]:
        """The annotations that store them."""
        rejected = self.rejected
        stored = {
            STABLE_ANNOTATION: "true" if self.stable else None,
            PROMOTED_AT_ANNOTATION: self.promoted_at,
            PROMOTED_BY_ANNOTATION: self.promoted_by,
            REJECTED_AT_ANNOTATION: rejected.at if rejected else None,
            REJECTED_REASON_ANNOTATION: rejected.reason if rejected else None,
            REJECTED_MESSAGE_ANNOTATION: rejected.message if rejected else None,
            REJECTED_BY_ANNOTATION: rejected.by if rejected else None,
            FORMERLY_REJECTED_ANNOTATION: _rejections_text(self.former) if self.former else None,
            RETURN_GIVEN_UP_ANNOTATION: _rejections_text((self.not_returned,)) if self.not_returned else None,
            SUPERSEDED_AT_ANNOTATION: self.superseded.at if self.superseded else None,
            SUPERSEDED_BY_ANNOTATION: self.superseded.by if self.superseded else None,
            **{HANDLED_ANNOTATIONS[action]: value for action, value in self.handled.items()},
            **{UNDER_WAY_ANNOTATIONS[action]: value for action, value in self.under_way.items()},
            CAPACITY_ANNOTATION: self.capacity,
            FALLBACK_ANNOTATION: _fallback_text(self.fallback) if self.fallback is not None else None,
            SIGNATURE_ANNOTATION: self.signature.text() if self.signature is not None else None,
        }
        return {name: value for name, value in stored.items() if value is not None}


def _rejections_text(rejections: tuple[Rejection, ...]) -> str:
    stored = [{field: getattr(each, field) for field in _REJECTION_FIELDS} for each in rejections]
    return json.dumps(stored, sort_keys=True)


def _rejections_of(revision: str, text: str | None) -> tuple[Rejection, ...]:
    """The rejections in an annotation of this revision's record; none where it cannot be read."""
    if text is None:
        return ()
    try:
        return tuple(Rejection(revision, **each) for each in json.loads(text))
    except (TypeError, ValueError):
        return ()


def _fallback_text(fallback: Fallback) -> str:
    stored = {"class": fallback.hardware_class, "since": fallback.since, "why": fallback.why}
    return json.dumps(stored, sort_keys=True)


def fallback_of(stored: Mapping[str, Any]) -> Fallback | None:
    """The fallback in a record's annotations; None where there is none, or it cannot be read."""
    text = KubernetesObject(stored).annotations.get(FALLBACK_ANNOTATION)
    if text is None:
        return None
    try:
        document = json.loads(text)
        return Fallback(str(document["class"]), str(document["since"]), str(document["why"]))
    except (ValueError, KeyError, TypeError):
        return None


def marks_of(stored: Mapping[str, Any]) -> Marks:
    """The marks on a stored ControllerRevision."""
    view = KubernetesObject(stored)
    name, annotations = view.name, view.annotations
    rejected_at = annotations.get(REJECTED_AT_ANNOTATION)
    superseded_at = annotations.get(SUPERSEDED_AT_ANNOTATION)
    rejected = Rejection(
        revision=name,
        at=str(rejected_at),
        reason=annotations.get(REJECTED_REASON_ANNOTATION, "Rejected"),
        message=annotations.get(REJECTED_MESSAGE_ANNOTATION, "nothing is known about why"),
        by=annotations.get(REJECTED_BY_ANNOTATION),
    )
    return Marks(
        stable=annotations.get(STABLE_ANNOTATION) == "true",
        promoted_at=annotations.get(PROMOTED_AT_ANNOTATION),
        promoted_by=annotations.get(PROMOTED_BY_ANNOTATION),
        rejected=rejected if rejected_at is not None else None,
        former=_rejections_of(name, annotations.get(FORMERLY_REJECTED_ANNOTATION)),
        not_returned=next(iter(_rejections_of(name, annotations.get(RETURN_GIVEN_UP_ANNOTATION))), None),
        superseded=(
            Superseded(name, annotations.get(SUPERSEDED_BY_ANNOTATION, "a later spec"), superseded_at)
            if superseded_at is not None
            else None
        ),
        handled={
            action: annotations[mark] for action, mark in HANDLED_ANNOTATIONS.items() if mark in annotations
        },
        under_way={
            action: annotations[mark] for action, mark in UNDER_WAY_ANNOTATIONS.items() if mark in annotations
        },
        capacity=annotations.get(CAPACITY_ANNOTATION),
        fallback=fallback_of(stored),
        signature=stored_signature(annotations.get(SIGNATURE_ANNOTATION)),
    )
