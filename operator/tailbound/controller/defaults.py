"""The chart's default HardwareClasses and ClusterServingRuntimes.

Helm cannot install them beside their CRDs, so the operator does, from files. An object is updated only while
it holds exactly what an operator wrote: one edit by hand, and it is the user's for ever. A default that was
deleted comes back with the next leader; to be rid of it, take it out of the chart's values.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.names import (
    API_VERSION,
    DEFAULTS_HASH_ANNOTATION,
    GROUP,
    MANAGED_BY_LABEL,
    MANAGED_BY_VALUE,
    RELEASE_LABEL,
)
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.servingruntime import ClusterServingRuntime
from tailbound.controller.stores import Stores
from tailbound.environment import SettingError
from tailbound.kube.errors import KubeError
from tailbound.kube.objects import key_of
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import CLUSTER_SERVING_RUNTIMES, HARDWARE_CLASSES, resource_of
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
_KINDS: Mapping[str, type[HardwareClass] | type[ClusterServingRuntime]] = {
    HARDWARE_CLASSES.kind: HardwareClass,
    CLUSTER_SERVING_RUNTIMES.kind: ClusterServingRuntime,
}


def load_defaults(directory: Path) -> tuple[Object, ...]:
    """Every object of the directory's YAML files. Raises SettingError naming the file and what is wrong."""
    found: list[Object] = []
    for path in sorted((*directory.glob("*.yaml"), *directory.glob("*.yml"))):
        try:
            documents = list(yaml.safe_load_all(path.read_text("utf-8")))
        except (OSError, yaml.YAMLError) as error:
            raise SettingError(f"TAILBOUND_DEFAULTS_DIR: {path} cannot be read: {error}") from error
        found += [_checked(path, document) for document in documents if document is not None]
    return tuple(found)


def _checked(path: Path, document: Any) -> Object:
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind not in _KINDS or document.get("apiVersion") != API_VERSION:
        raise SettingError(
            f"TAILBOUND_DEFAULTS_DIR: {path} holds {kind or 'something that is no object'}; "
            f"write {' or '.join(_KINDS)} of {API_VERSION}"
        )
    parsed = parse(_KINDS[str(kind)], document)
    if isinstance(parsed, InvalidObject):
        raise SettingError(f"TAILBOUND_DEFAULTS_DIR: {path}: {kind} {parsed.name}: {parsed.message}")
    return dict(document)


def digest(obj: Object) -> str | None:
    """Digest of what counts in an object: its spec without defaults, and its tailbound.dev annotations.

    None if the object does not validate: it is nothing that an operator wrote.
    """
    parsed = parse(_KINDS[str(obj["kind"])], obj)
    if isinstance(parsed, InvalidObject):
        return None
    annotations = {
        name: value
        for name, value in KubernetesObject(obj).annotations.items()
        if name.startswith(f"{GROUP}/") and name != DEFAULTS_HASH_ANNOTATION
    }
    content = {"spec": _without_defaults(parsed.spec), "annotations": annotations}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_defaults(value: Any) -> Any:
    """The value without fields that equal their default: what the API server fills in is no difference."""
    if isinstance(value, BaseModel):
        return {
            name: _without_defaults(getattr(value, name))
            for name, field in type(value).model_fields.items()
            if getattr(value, name) != field.get_default(call_default_factory=True, validated_data={})
        }
    if isinstance(value, list | tuple):
        return [_without_defaults(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _without_defaults(item) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class AdmissionAnswer:
    """What to do about one default, and why."""

    write: Object | None
    create: bool
    why: str


# In the cluster                          | what happens
# ----------------------------------------|-----------------------------------------------
# absent                                  | created
# without our digest                      | left: another manager made it
# of another release                      | left: that release updates it
# differs from its own digest             | left: it was edited by hand
# equals its own digest and the default   | left: up to date
# equals its own digest, not the default  | updated: the chart has changed
def judge(default: Object, stored: Object | None) -> AdmissionAnswer:
    """What to do about one default object, by the table above."""
    wanted = digest(default)
    body = _body(default, str(wanted))
    if stored is None:
        return AdmissionAnswer(body, create=True, why="absent")
    written = KubernetesObject(stored).annotations.get(DEFAULTS_HASH_ANNOTATION)
    if written is None:
        return AdmissionAnswer(None, create=False, why="made by another manager")
    release = KubernetesObject(stored).label(RELEASE_LABEL)
    if release not in (None, KubernetesObject(default).label(RELEASE_LABEL)):
        return AdmissionAnswer(None, create=False, why=f"made by release {release}")
    if digest(stored) != written:
        return AdmissionAnswer(None, create=False, why="edited by hand")
    if written == wanted:
        return AdmissionAnswer(None, create=False, why="up to date")
    view = KubernetesObject(stored)
    guards = {"uid": view.uid, "resourceVersion": view.resource_version}
    return AdmissionAnswer(
        {**body, "metadata": {**body["metadata"], **guards}}, create=False, why="the chart changed"
    )


def _body(default: Object, wanted: str) -> Object:
    view = KubernetesObject(default)
    return {
        "apiVersion": view.api_version,
        "kind": view.kind,
        "metadata": {
            "name": view.name,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY_VALUE, **view.labels},
            "annotations": {**view.annotations, DEFAULTS_HASH_ANNOTATION: wanted},
        },
        "spec": default["spec"],
    }


async def ensure_defaults(
    cluster: KubeClient, stores: Stores, defaults: tuple[Object, ...], holds: Callable[[], bool]
) -> None:
    """Bring the defaults into the cluster. Refusals are logged: services say themselves what they miss."""
    for default in defaults:
        resource = resource_of(str(default["apiVersion"]), str(default["kind"]))
        name = key_of(default)[1]
        verdict = judge(default, stores.of[resource].get("", name))
        if verdict.write is None or not holds():
            _LOG.info("default left as it is", kind=resource.kind, name=name, why=verdict.why)
            continue
        request = cluster.create if verdict.create else cluster.apply
        try:
            stores.of[resource].upsert(await request(resource, verdict.write))
        except KubeError as error:
            _LOG.warning("default not written", kind=resource.kind, name=name, error=str(error))
        else:
            _LOG.info("default written", kind=resource.kind, name=name, why=verdict.why)
