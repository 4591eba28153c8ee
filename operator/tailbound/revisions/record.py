"""A revision as it is stored: one immutable ControllerRevision, read and written.

The template is kept as a JSON string, byte for byte: nested, the API server would escape other characters.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS
from tailbound.api.inference_paths import read as read_paths
from tailbound.api.names import (
    CAPACITY_ANNOTATION,
    FALLBACK_ANNOTATION,
    FORMERLY_REJECTED_ANNOTATION,
    HANDLED_ANNOTATIONS,
    INFERENCE_PATHS_ANNOTATION,
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
    SIGNATURE_ANNOTATION,
    SPEC_HASH_ANNOTATION,
    STABLE_ANNOTATION,
    SUPERSEDED_AT_ANNOTATION,
    SUPERSEDED_BY_ANNOTATION,
    UNDER_WAY_ANNOTATIONS,
)
from tailbound.api.rejection import Rejection, Superseded
from tailbound.api.traffic import utc_seconds
from tailbound.objects.fields import child, text
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.signature import ModelSignature, stored_signature
from tailbound.revisions.claims import ClaimTemplate
from tailbound.revisions.claims import violations as claim_violations
from tailbound.revisions.identity import canonical_json, text_hash
from tailbound.revisions.relevant import REFRESH_FIELD
from tailbound.revisions.resolved import ResolvedModel
from tailbound.revisions.restricted import violations

DATA_LIMIT_BYTES: Final = 256 * 1024
_OTHERS: Final = "otherClasses"
"""Among the data: further classes and their templates, as a JSON list of pairs."""
_MOST_FORMER: Final = 5
_DATA_FIELDS: Final = ("spec", "runtime", "hardwareClass", "template")
_REJECTION_FIELDS: Final = ("at", "by", "message", "reason")


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
    """The class that its pods are for: the first one, unless it fell back to another."""
    template_json: str
    """The template for this class."""
    choices: tuple[tuple[str, str], ...] = ()
    """Every class with its template, in order of preference; empty if there is only one."""
    model: ResolvedModel | None = None
    """What the source had when it was made; None if the spec pins the model."""
    claims: tuple[ClaimTemplate, ...] = ()
    """From which its pods claim their devices, for all classes."""

    def on(self, hardware_class: str) -> "Revision":
        """The same revision with pods for another of its classes; unchanged if it has no such class."""
        template = dict(self.choices).get(hardware_class)
        return (
            self if template is None else replace(self, hardware_class=hardware_class, template_json=template)
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Its classes in order of preference."""
        return tuple(name for name, _ in self.choices) or (self.hardware_class,)

    @property
    def template(self) -> dict[str, Any]:
        """The pod template; a new object each time."""
        template: dict[str, Any] = json.loads(self.template_json)
        return template

    @property
    def inference_paths(self) -> tuple[str, ...]:
        """The paths of inference calls to its pods, as its runtime said when it was made."""
        if INFERENCE_PATHS_ANNOTATION not in self.template_json:
            return DEFAULT_INFERENCE_PATHS
        return read_paths(KubernetesObject(self.template).annotations.get(INFERENCE_PATHS_ANNOTATION))

    @property
    def data(self) -> dict[str, str]:
        """What the ControllerRevision holds."""
        (name, template), *others = self.choices or ((self.hardware_class, self.template_json),)
        data = {
            "spec": self.spec_json,
            "runtime": self.runtime,
            "hardwareClass": name,
            "template": template,
            **({"model": self.model.written()} if self.model is not None else {}),
            **({"claims": _claims_text(self.claims)} if self.claims else {}),
        }
        return {**data, _OTHERS: json.dumps(others)} if others else data

    @property
    def size_bytes(self) -> int:
        """What the data take as JSON; at most `DATA_LIMIT_BYTES` may be stored."""
        return len(json.dumps(self.data).encode())


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
    """That it was given up, until it is decided on."""
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
        """Not to be tried again. What it was rejected for first stays, until it is tried again."""
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
    try:
        return tuple(Rejection(revision, **each) for each in json.loads(text or "[]"))
    except (TypeError, ValueError):
        return ()


def _fallback_text(fallback: Fallback) -> str:
    stored = {"class": fallback.hardware_class, "since": fallback.since, "why": fallback.why}
    return json.dumps(stored, sort_keys=True)


def fallback_of(stored: Mapping[str, Any]) -> Fallback | None:
    """The fallback in a record's annotations; None where there is none, or it cannot be read."""
    try:
        document = json.loads(KubernetesObject(stored).annotations.get(FALLBACK_ANNOTATION, ""))
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


@dataclass(frozen=True)
class Origin:
    """What a revision was made from."""

    spec_hash: str
    """The hash of the spec alone, whatever the refresh."""
    refresh: str
    """The value of the annotation that asked for it; empty without one."""


def origin_of(stored: Mapping[str, Any]) -> Origin | None:
    """The origin of a stored ControllerRevision; None if it is unknown.

    It is taken from the immutable data; the annotation, which every client can edit, counts only where
    that is corrupt.
    """
    spec = text(child(stored, "data"), "spec")
    if spec:
        return spec_origin(spec)
    digest = KubernetesObject(stored).annotations.get(SPEC_HASH_ANNOTATION)
    return Origin(digest, "") if digest is not None else None


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
    name = KubernetesObject(stored).name
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
    choices, claims = _choices(name, data), _claims(name, data)
    known = frozenset(claim.name for claim in claims)
    for _, template in choices or (("", data["template"]),):
        _check_template(name, template, data["spec"], known)
    revision = Revision(
        name=name,
        number=number,
        spec_hash=text_hash(data["spec"]),
        spec_json=data["spec"],
        runtime=data["runtime"],
        hardware_class=data["hardwareClass"],
        template_json=data["template"],
        model=_model(name, data),
        choices=choices,
        claims=claims,
    )
    fallback = fallback_of(stored)
    return revision if fallback is None else revision.on(fallback.hardware_class)


def _choices(name: str, data: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Every class and its template; empty for a single one. Raises CorruptRevisionError."""
    if _OTHERS not in data:
        return ()
    try:
        others = tuple((str(each), str(template)) for each, template in json.loads(data[_OTHERS]))
    except (ValueError, TypeError) as problem:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.{_OTHERS} is not a list of classes and templates"
        ) from problem
    return ((data["hardwareClass"], data["template"]), *others)


def _model(name: str, data: Mapping[str, Any]) -> ResolvedModel | None:
    if "model" not in data:
        return None
    try:
        return ResolvedModel.read(data["model"])
    except (ValueError, TypeError) as problem:
        raise CorruptRevisionError(f"ControllerRevision {name}: data.model: {problem}") from problem


def _claims_text(claims: tuple[ClaimTemplate, ...]) -> str:
    return json.dumps([[each.name, each.hardware_class, each.spec_json] for each in claims])


def _claims(name: str, data: Mapping[str, Any]) -> tuple[ClaimTemplate, ...]:
    """The templates of its claims. Raises CorruptRevisionError."""
    try:
        found = [ClaimTemplate(str(a), str(b), str(c)) for a, b, c in json.loads(data.get("claims", "[]"))]
        refused = [why for claim in found for why in claim_violations(json.loads(claim.spec_json))]
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.claims is not a list of templates of claims"
        ) from problem
    refused += [
        f"claims: {claim.name} is not a name of it"
        for claim in found
        if not claim.name.startswith(f"{name}-")
    ]
    if refused:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.claims is not one that Tailbound wrote: {'; '.join(refused)}"
        )
    return tuple(found)


@lru_cache(maxsize=4096)
def _check_template(name: str, template_json: str, spec_json: str, claims: frozenset[str]) -> None:
    try:
        template, spec = json.loads(template_json), json.loads(spec_json)
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
    _check_restricted(name, template, spec, claims)


def _check_restricted(name: str, template: Mapping[str, Any], spec: Any, claims: frozenset[str]) -> None:
    """Raise CorruptRevisionError if the template asks for what Tailbound renders for no pod."""
    try:
        refused = violations(template, spec.get("serviceAccountName"), claims)
    except (AttributeError, KeyError, TypeError) as problem:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.template is not a pod template"
        ) from problem
    if refused:
        raise CorruptRevisionError(
            f"ControllerRevision {name}: data.template is not one that Tailbound wrote: {'; '.join(refused)}"
        )
