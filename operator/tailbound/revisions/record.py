"""A revision as it is stored: one immutable ControllerRevision, read and written.

The template is kept as a JSON string, byte for byte: nested, the API server would escape other characters.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS, usable_metadata_path
from tailbound.api.inference_paths import read as read_paths
from tailbound.api.names import (
    INFERENCE_PATHS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    METADATA_PATH_ANNOTATION,
    REVISION_LABEL,
    SERVICE_LABEL,
    SPEC_HASH_ANNOTATION,
)
from tailbound.objects.fields import Object, child, text
from tailbound.objects.metadata import KubernetesObject
from tailbound.revisions.claims import ClaimTemplate
from tailbound.revisions.claims import violations as claim_violations
from tailbound.revisions.identity import canonical_json, text_hash
from tailbound.revisions.marks import Marks, fallback_of
from tailbound.revisions.relevant import REFRESH_FIELD
from tailbound.revisions.resolved import ResolvedModel
from tailbound.revisions.restricted import violations

DATA_LIMIT_BYTES: Final = 256 * 1024
_OTHERS: Final = "otherClasses"
"""Among the data: further classes and their templates, as a JSON list of pairs."""
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
        """The revision with pods for another of its classes; unchanged if it has no such class."""
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
        template: dict[str, Any] = orjson.loads(self.template_json)
        return template

    @property
    def inference_paths(self) -> tuple[str, ...]:
        """The paths of inference calls to its pods, as its runtime said when it was made."""
        if INFERENCE_PATHS_ANNOTATION not in self.template_json:
            return DEFAULT_INFERENCE_PATHS
        return read_paths(KubernetesObject(self.template).annotations.get(INFERENCE_PATHS_ANNOTATION))

    @property
    def metadata_path(self) -> str | None:
        """The path at which its server states the inputs and outputs of its model; None if there is none."""
        stored = None
        if METADATA_PATH_ANNOTATION in self.template_json:
            stored = KubernetesObject(self.template).annotations.get(METADATA_PATH_ANNOTATION)
        return usable_metadata_path(stored, self.inference_paths)

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


def class_names(stored: Object) -> tuple[str, ...]:
    """The hardware classes of a stored revision, the first one first; none where they cannot be read.

    Its pod templates are not looked at, which makes this cheap.
    """
    data = child(stored, "data")
    try:
        others = tuple(str(each) for each, _ in json.loads(text(data, _OTHERS) or "[]"))
    except (ValueError, TypeError):
        return ()
    return tuple(filter(None, (text(data, "hardwareClass"), *others)))


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
        template, spec = orjson.loads(template_json), orjson.loads(spec_json)
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


def to_prune(numbers: Mapping[str, int], in_use: Collection[str | None], limit: int) -> tuple[str, ...]:
    """Names of the revisions to delete, oldest first: all but the `limit` newest and those in use.

    `numbers` holds every stored revision's number by its name. None in `in_use` stands for no revision.
    """
    newest_first = sorted(numbers, key=lambda name: (-numbers[name], name))
    return tuple(name for name in reversed(newest_first[limit:]) if name not in in_use)
