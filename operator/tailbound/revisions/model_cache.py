"""The PersistentVolumeClaim that keeps the model of a revision for its whole namespace.

Its name follows from the model's digest and from what else decides what lies on the volume, so that no
revision ever finds another model there. Its owners are the ControllerRevisions of all services that mount it:
garbage collection removes it after the last of them.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from tailbound.api.model_cache import CLAIM_PREFIX, ModelCache
from tailbound.api.model_source import ModelSource
from tailbound.api.names import CACHE_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE
from tailbound.api.runtime_contract import CACHE_VOLUME, model_path
from tailbound.objects.fields import child, children, text
from tailbound.revisions.identity import canonical_json
from tailbound.revisions.record import Revision
from tailbound.revisions.resolved import ResolvedModel

_DIGEST_LENGTH: Final = 26


def claim_name(model: ModelSource, resolved: ResolvedModel | None) -> str:
    """The name of the claim for this model and this cache."""
    assert model.cache is not None, "only a model with a cache has a claim"
    identity = {
        "sha256": model.sha256 if resolved is None else resolved.sha256,
        "output": model_path(model.format, model.path),
        "files": sorted(model.files),
        "archive": model.archive,
        "cache": model.cache.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    seed = hashlib.sha256(canonical_json(identity).encode()).digest()
    return CLAIM_PREFIX + base64.b32encode(seed).decode().lower()[:_DIGEST_LENGTH]


def claim_volume(model: ModelSource, resolved: ResolvedModel | None) -> dict[str, Any]:
    """The volume of a serving pod. It is not read-only as a whole: the first fetch container fills it."""
    return {"name": CACHE_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(model, resolved)}}


def claim_of(revision: Revision) -> str | None:
    """The name of the claim that the pods of a stored revision mount; None if they cache nothing."""
    if CACHE_VOLUME not in revision.template_json:
        return None
    volumes = children(child(revision.template, "spec"), "volumes")
    mounted = next((each for each in volumes if text(each, "name") == CACHE_VOLUME), {})
    return text(child(mounted, "persistentVolumeClaim"), "claimName") or None


def claim(
    name: str,
    namespace: str,
    revision: Revision,
    owners: Sequence[Any],
    requests: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The claim of this name for a revision. requests: its present size, which may have been raised."""
    cache = ModelCache.model_validate(json.loads(revision.spec_json)["model"]["cache"])
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
            "labels": {MANAGED_BY_LABEL: MANAGED_BY_VALUE, CACHE_LABEL: name},
            "ownerReferences": list(owners),
        },
        "spec": spec,
    }
