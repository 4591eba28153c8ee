"""A revision as it is stored: one immutable ControllerRevision, read and written.

The template is kept as a JSON string, byte for byte: nested, the API server would escape other characters.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from tailbound.api.names import (
    CAPACITY_ANNOTATION,
    FORMERLY_REJECTED_ANNOTATION,
    HANDLED_ANNOTATIONS,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    PROMOTED_AT_ANNOTATION,
    PROMOTED_BY_ANNOTATION,
    REJECTED_AT_ANNOTATION,
    REJECTED_BY_ANNOTATION,
    REJECTED_MESSAGE_ANNOTATION,
    REJECTED_REASON_ANNOTATION,
    RETURN_GIVEN_UP_ANNOTATION,
    REVISION_LABEL,
    SERVICE_LABEL,
    SPEC_HASH_ANNOTATION,
    STABLE_ANNOTATION,
    SUPERSEDED_AT_ANNOTATION,
    SUPERSEDED_BY_ANNOTATION,
    UNDER_WAY_ANNOTATIONS,
)
from tailbound.api.traffic import utc_seconds
from tailbound.revisions.identity import canonical_json, text_hash
from tailbound.revisions.relevant import REFRESH_FIELD

DATA_LIMIT_BYTES: Final = 256 * 1024
_MOST_FORMER: Final = 5
_DATA_FIELDS: Final = ("spec", "runtime", "hardwareClass", "template")


class CorruptRevisionError(Exception):
    """A ControllerRevision does not hold what Tailbound wrote; the text says what is wrong with which one."""


@dataclass(frozen=True)
class Revision:
    """What a pod is made from, for as long as this revision lives."""

    name: str
    number: int
    spec_hash: str
    spec_json: str
    runtime: str
    """Kind and name of the runtime it was rendered from, for people."""
    hardware_class: str
    template_json: str

    @property
    def template(self) -> dict[str, Any]:
        """The pod template; a new object each time."""
        template: dict[str, Any] = json.loads(self.template_json)
        return template

    @property
    def data(self) -> dict[str, str]:
        """What the ControllerRevision holds."""
        return {
            "spec": self.spec_json,
            "runtime": self.runtime,
            "hardwareClass": self.hardware_class,
            "template": self.template_json,
        }

    @property
    def size_bytes(self) -> int:
        """What the data take as JSON; at most `DATA_LIMIT_BYTES` may be stored."""
        return len(json.dumps(self.data).encode())


@dataclass(frozen=True)
class Rejected:
    """Why a revision is not tried again until a retry is asked for."""

    at: str
    reason: str
    message: str
    by: str | None = None
    """The user who asked for it; None after a verdict."""


@dataclass(frozen=True)
class Superseded:
    """A later spec came before there was a verdict."""

    at: str
    by: str
    """The revision of that spec."""


@dataclass(frozen=True)
class Marks:
    """What is known about a revision beyond its content; annotations, so that it outlives the status."""

    stable: bool = False
    promoted_at: str | None = None
    promoted_by: str | None = None
    """The user who asked for it; None after a verdict."""
    rejected: Rejected | None = None
    former: tuple[Rejected, ...] = ()
    """Rejections after which it was tried again, the newest last."""
    superseded: Superseded | None = None
    """That it was given up, until it is decided on."""
    not_returned: Rejected | None = None
    """Why the last return to it was given up, until it serves again."""
    handled: Mapping[str, str] = field(default_factory=dict)
    """By annotation of the service, the last value that named this revision and was acted on."""
    under_way: Mapping[str, str] = field(default_factory=dict)
    """By annotation of the service, the value that names this revision and is being acted on."""
    capacity: str | None = None
    """How fast a pod of it was found to be, as the autoscaler wrote it."""

    def promoted(self, now: datetime, by: str | None = None) -> "Marks":
        """Stable from now on; the first promotion's time stays."""
        if self.stable and self.rejected is None:
            return self
        promoted_at = self.promoted_at or utc_seconds(now)
        again = replace(self.forgiven(), superseded=None, not_returned=None)
        return replace(again, stable=True, promoted_at=promoted_at, promoted_by=by)

    def retired(self) -> "Marks":
        """No longer the stable one."""
        return replace(self, stable=False)

    def condemned(self, rejected: Rejected) -> "Marks":
        """Not to be tried again. What it was rejected for first stays, until it is tried again."""
        return replace(self, stable=False, rejected=self.rejected or rejected, superseded=None)

    def forgiven(self) -> "Marks":
        """To be tried again."""
        if self.rejected is None:
            return self
        return replace(self, rejected=None, former=(*self.former, self.rejected)[-_MOST_FORMER:])

    def given_up(self, superseded: Superseded) -> "Marks":
        """Left for a later spec, before a verdict."""
        return replace(self, superseded=superseded)

    def remembering(self, handled: Mapping[str, str], under_way: Mapping[str, str]) -> "Marks":
        """With these values, by annotation, as those that were acted on or are being, and no others."""
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
        }
        return {name: value for name, value in stored.items() if value is not None}


def _rejections_text(rejections: tuple[Rejected, ...]) -> str:
    return json.dumps([vars(each) for each in rejections], sort_keys=True)


def _rejections_of(text: str | None) -> tuple[Rejected, ...]:
    """The rejections in an annotation; none where it cannot be read."""
    try:
        return tuple(Rejected(**each) for each in json.loads(text or "[]"))
    except (TypeError, ValueError):
        return ()


def marks_of(stored: Mapping[str, Any]) -> Marks:
    """The marks on a stored ControllerRevision."""
    annotations = stored["metadata"].get("annotations", {})
    rejected_at = annotations.get(REJECTED_AT_ANNOTATION)
    superseded_at = annotations.get(SUPERSEDED_AT_ANNOTATION)
    rejected = Rejected(
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
        former=_rejections_of(annotations.get(FORMERLY_REJECTED_ANNOTATION)),
        not_returned=next(iter(_rejections_of(annotations.get(RETURN_GIVEN_UP_ANNOTATION))), None),
        superseded=(
            Superseded(str(superseded_at), str(annotations.get(SUPERSEDED_BY_ANNOTATION, "a later spec")))
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
    )


@dataclass(frozen=True)
class Origin:
    """What a revision was made from."""

    spec_hash: str
    """The hash of the spec alone, whatever the refresh."""
    refresh: str
    """The value of the annotation that asked for it; empty without one."""


def origin_of(stored: Mapping[str, Any]) -> Origin | None:
    """What a stored ControllerRevision was made from; None if it cannot be told.

    It is taken from the immutable data; the annotation, which every client can edit, counts only where
    that is corrupt.
    """
    data = stored.get("data")
    spec = data.get("spec") if isinstance(data, Mapping) else None
    if isinstance(spec, str):
        return spec_origin(spec)
    digest = stored["metadata"].get("annotations", {}).get(SPEC_HASH_ANNOTATION)
    return Origin(digest, "") if isinstance(digest, str) else None


@lru_cache(maxsize=4096)
def spec_origin(spec_json: str) -> Origin:
    """The origin of a revision whose stored spec is this text."""
    try:
        spec = json.loads(spec_json)
    except ValueError:
        spec = None
    if not isinstance(spec, dict) or REFRESH_FIELD not in spec:
        return Origin(text_hash(spec_json), "")
    refresh = str(spec.pop(REFRESH_FIELD))
    return Origin(text_hash(canonical_json(spec)), refresh)


def to_object(
    revision: Revision, marks: Marks, *, service: str, namespace: str, owner: Mapping[str, Any]
) -> dict[str, Any]:
    """The ControllerRevision to write."""
    annotations = {SPEC_HASH_ANNOTATION: revision.spec_hash, **marks.annotations()}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision.name,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY_VALUE,
                SERVICE_LABEL: service,
                REVISION_LABEL: revision.name,
            },
            "annotations": annotations,
            "ownerReferences": [dict(owner)],
        },
        "revision": revision.number,
        "data": revision.data,
    }


def from_object(stored: Mapping[str, Any]) -> Revision:
    """The revision that a stored ControllerRevision holds. Raises CorruptRevisionError."""
    name = stored["metadata"]["name"]
    number, data = stored.get("revision"), stored.get("data")
    if not isinstance(number, int) or number < 1:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: revision is {number!r}, not a positive number"
        )
    if not isinstance(data, Mapping):
        raise CorruptRevisionError(f"ControllerRevision {name}: data is missing")
    for part in _DATA_FIELDS:
        if not isinstance(data.get(part), str):
            raise CorruptRevisionError(f"ControllerRevision {name}: data.{part} is not a string")
    _check_template(name, data["template"])
    return Revision(
        name=name,
        number=number,
        spec_hash=text_hash(data["spec"]),
        spec_json=data["spec"],
        runtime=data["runtime"],
        hardware_class=data["hardwareClass"],
        template_json=data["template"],
    )


@lru_cache(maxsize=4096)
def _check_template(name: str, template_json: str) -> None:
    try:
        template = json.loads(template_json)
        label = template["metadata"]["labels"][REVISION_LABEL]
        containers = template["spec"]["containers"]
    except (ValueError, KeyError, TypeError) as problem:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.template is not a pod template"
        ) from problem
    if label != name or not isinstance(containers, list) or not containers:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.template is not the template of this revision"
        )
