"""The PersistentVolumeClaim that keeps the model of a revision for its whole namespace.

Its name follows from the model's digest and from what else decides what lies on the volume, so that no
revision ever finds another model there. Its owners are the ControllerRevisions of all services that mount it:
garbage collection removes it after the last of them.

A Job that finds the digest of a source downloads to a claim that is named after the Job, which owns it. The
first revision of this model keeps that claim, and says by a label whose place it has taken.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from tailbound.api.model_source import CLAIM_PREFIX, CacheAccessMode, ModelCache, ModelSource
from tailbound.api.names import CACHE_LABEL, CACHED_MODEL_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE
from tailbound.api.runtime_contract import CACHE_VOLUME, model_path
from tailbound.objects.fields import Object, child, children, text
from tailbound.revisions.identity import canonical_json
from tailbound.revisions.record import Revision
from tailbound.revisions.resolved import ResolvedModel

_DIGEST_LENGTH: Final = 26


def claim_name(model: ModelSource, resolved: ResolvedModel | None) -> str:
    """The name of the claim for this model and this cache, where no other one has it."""
    assert model.cache is not None, "only a model with a cache has a claim"
    identity = {
        "sha256": model.sha256 if resolved is None else resolved.sha256,
        "output": model_path(model.format, model.path),
        "files": sorted(model.files),
        "archive": model.archive,
        "cache": model.cache.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    return _named(canonical_json(identity))


def name_of_job(job: str, number: int = 0) -> str:
    """The name of the claim that the Job of this name fills. number: the claims before that are in use."""
    return _named(f"{job}/{number}" if number else job)


def filled_by_job(model: ModelSource) -> bool:
    """Whether the Job that finds the digest of the model downloads it to a claim.

    Not where the source states digests, and not to a volume of one node: the pods may need another one.
    """
    cache = model.cache
    shared = cache is not None and cache.access_mode is CacheAccessMode.READ_WRITE_MANY
    return shared and not model.uri.startswith("hf://")


def claim_volume(name: str) -> dict[str, Any]:
    """The volume of a pod. It is not read-only as a whole: the first fetch container fills it."""
    return {"name": CACHE_VOLUME, "persistentVolumeClaim": {"claimName": name}}


def claim_of(revision: Revision) -> str | None:
    """The name of the claim that the pods of a stored revision mount; None if they cache nothing."""
    return mounted_claim(revision.template) if CACHE_VOLUME in revision.template_json else None


def mounted_claim(template: Object) -> str | None:
    """The name of the claim that the pods of a template mount; None if they cache nothing."""
    volumes = children(child(template, "spec"), "volumes")
    mounted = next((each for each in volumes if text(each, "name") == CACHE_VOLUME), {})
    return text(child(mounted, "persistentVolumeClaim"), "claimName") or None


def cached_model(revision: Revision) -> ModelSource:
    """The model of a stored revision that has a claim."""
    return ModelSource.model_validate(json.loads(revision.spec_json)["model"])


def claim(
    name: str,
    namespace: str,
    cache: ModelCache,
    owners: Sequence[Any],
    requests: dict[str, Any] | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """The claim of this name.

    requests: its present size, which may have been raised; model: the name that a claim of the model on it
    has, None while that is not known.
    """
    labels = {MANAGED_BY_LABEL: MANAGED_BY_VALUE, CACHE_LABEL: name}
    if model is not None and model != name:
        labels[CACHED_MODEL_LABEL] = model
    spec: dict[str, Any] = {
        "accessModes": [str(cache.access_mode)],
        "resources": {"requests": requests or {"storage": str(cache.size)}},
    }
    if cache.storage_class_name is not None:
        spec["storageClassName"] = cache.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": list(owners),
        },
        "spec": spec,
    }


def _named(seed: str) -> str:
    digest = hashlib.sha256(seed.encode()).digest()
    return CLAIM_PREFIX + base64.b32encode(digest).decode().lower()[:_DIGEST_LENGTH]
