"""The volumes that keep models for a namespace: one claim for each, owned by all revisions that mount it.

What keeps the pods of a revision from mounting theirs:

| the claim | the pods of the revision | finding |
|---|---|---|
| is lost: its volume is gone | any | CacheUnusable |
| is being deleted | one has no node | CacheUnusable |
| has no volume yet | one has no node | CacheUnusable |
| is for one node at a time | on several nodes, and one waits for its volumes | CacheUnusable |
| otherwise | any | none |

A claim without a volume is no obstacle by itself: many StorageClasses wait for the first pod.
"""

import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from tailbound.api.conditions import Reason
from tailbound.api.model_source import CacheAccessMode, ModelSource
from tailbound.api.names import CACHE_LABEL, CACHED_MODEL_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE
from tailbound.api.runtime_contract import FETCH_CONTAINER
from tailbound.objects.claim import VolumeClaim
from tailbound.objects.fields import Object, child, text
from tailbound.objects.kubectl import kubectl
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod
from tailbound.reconcile.pods import PodFinding
from tailbound.revisions import model_cache
from tailbound.revisions.record import Revision

KIND: Final = "PersistentVolumeClaim"
NEW_VOLUME: Final = (
    "another spec.model.cache.size makes a revision with a volume of its own, while the old one serves"
)
_OF_VOLUMES: Final = re.compile("volume|storageclass", re.IGNORECASE)


def is_cache(stored: Object) -> bool:
    """Whether a claim is a cache of models, and not a namesake."""
    view = KubernetesObject(stored)
    return (
        view.controller is None
        and view.label(MANAGED_BY_LABEL) == MANAGED_BY_VALUE
        and view.label(CACHE_LABEL) == view.name
    )


def wanted_claim(revision: Revision, name: str, record: Object, live: Object | None) -> dict[str, Any]:
    """The claim of a stored revision as it should be. record: its ControllerRevision; live: as it is."""
    model, owner = model_cache.cached_model(revision), KubernetesObject(record)
    reference = _reference("apps/v1", "ControllerRevision", owner)
    own_name = model_cache.claim_name(model, revision.model)
    return _wanted(name, owner.namespace, model, reference, live, own_name)


def claim_of_job(job: KubernetesObject, model: ModelSource, live: Object | None) -> dict[str, Any] | None:
    """The claim that the Job which finds the digest of this model fills; None if it keeps nothing."""
    name = filled_by(job)
    if name is None or model.cache is None:
        return None
    return _wanted(name, job.namespace, model, _reference("batch/v1", "Job", job), live)


def name_for_job(claims: Sequence[Object], job: str) -> str:
    """The name of the claim that a Job of this name is to fill: one that no revision has taken, and no user.

    A model that lies there already may not be the one that the source has now: the Job of a service that was
    deleted, whose claim another service keeps, had the same name.
    """
    taken = {
        view.name
        for view in map(KubernetesObject, claims)
        if view.label(CACHED_MODEL_LABEL) or not is_cache(view.raw)
    }
    names = (model_cache.name_of_job(job, number) for number in count())
    return next(name for name in names if name not in taken)


def filled_by(job: KubernetesObject) -> str | None:
    """The name of the claim that a Job fills; None if it keeps nothing."""
    return model_cache.mounted_claim(child(job.raw, "spec", "template"))


def having(claims: Sequence[Object], model: str) -> str | None:
    """The name of the oldest claim with the model whose own claim has this name; None if there is none.

    One that has lost its volume, or is being deleted, has no model.
    """
    found = [
        (text(child(view.raw, "metadata"), "creationTimestamp"), view.name)
        for view in map(KubernetesObject, filter(is_cache, claims))
        if model in (view.name, view.label(CACHED_MODEL_LABEL))
        and not view.terminating
        and VolumeClaim(view.raw).phase != "Lost"
    ]
    return min(found)[1] if found else None


def _wanted(
    name: str, namespace: str, model: ModelSource, own: Object, live: Object | None, same: str | None = None
) -> dict[str, Any]:
    """The claim as it should be. Owners that are there already stay, as does a size that was raised."""
    assert model.cache is not None, "only a model with a cache has a claim"
    others = [each.raw for each in KubernetesObject(live or {}).owners if each.uid != own["uid"]]
    requests = dict(VolumeClaim(live).requests) if live is not None else None
    return model_cache.claim(name, namespace, model.cache, [*others, own], requests, same)


def _reference(api_version: str, kind: str, owner: KubernetesObject) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def finding_of(stored: Object | None, pods: Sequence[Pod]) -> PodFinding | None:
    """What keeps these pods of a revision from mounting its claim; None if nothing is known to."""
    if stored is None:
        return None
    claim = VolumeClaim(stored)
    message = next((said for rule in _RULES if (said := rule(claim, pods))), None)
    if message is None:
        return None
    return PodFinding(
        Reason.CACHE_UNUSABLE, f"{KIND} {claim.name} of spec.model.cache {message}", FETCH_CONTAINER
    )


def _lost(claim: VolumeClaim, _: Sequence[Pod]) -> str | None:
    if claim.phase != "Lost":
        return None
    return f"has lost its volume: {NEW_VOLUME}"


def _deleted(claim: VolumeClaim, pods: Sequence[Pod]) -> str | None:
    if not claim.terminating or not _without_node(pods):
        return None
    return (
        "is being deleted, and goes when the last pod that mounts it has ended; until then no further pod "
        f"can start with it: {NEW_VOLUME}"
    )


def _unbound(claim: VolumeClaim, pods: Sequence[Pod]) -> str | None:
    if claim.phase == "Bound" or not _without_node(pods):
        return None
    whose = f"StorageClass {claim.storage_class_name}" if claim.storage_class_name else "no StorageClass"
    return (
        f"has no volume: {whose} has given it none of {claim.size} with {', '.join(claim.access_modes)}. "
        "Check that the StorageClass exists and provides this access mode "
        f"({kubectl(claim.namespace, 'describe pvc', claim.name)}), or correct spec.model.cache"
    )


def _elsewhere(claim: VolumeClaim, pods: Sequence[Pod]) -> str | None:
    nodes = sorted({pod.node_name for pod in pods if pod.node_name})
    waits = next((pod for pod in pods if _waits_for_volumes(pod)), None)
    if claim.access_modes != (CacheAccessMode.READ_WRITE_ONCE,) or len(nodes) < 2 or waits is None:
        return None
    return (
        f"is {CacheAccessMode.READ_WRITE_ONCE}, so that one node at a time can mount it, and pods of the "
        f"revision are on {', '.join(nodes)}; pod {waits.name} waits: use a StorageClass for "
        f"{CacheAccessMode.READ_WRITE_MANY}, or a HardwareClass of one node"
    )


_RULES: Final[tuple[Callable[[VolumeClaim, Sequence[Pod]], str | None], ...]] = (
    _lost,
    _deleted,
    _unbound,
    _elsewhere,
)


def _without_node(pods: Sequence[Pod]) -> bool:
    """Whether the scheduler says of a pod that a volume keeps it from a node."""
    scheduled = [pod.condition("PodScheduled") for pod in pods]
    return any(each.status == "False" and _OF_VOLUMES.search(each.message) for each in scheduled)


def _waits_for_volumes(pod: Pod) -> bool:
    """Whether the kubelet has not started its first container."""
    if pod.finished or not pod.node_name:
        return False
    return not any(
        each.running or each.terminated or each.last_terminated for each in pod.init_container_statuses
    )
