"""What pins the model of a revision that is yet to be made: the spec, or what a Job found at the source.

| spec.model | the Job of the revision's name | its pod | outcome |
|---|---|---|---|
| has a digest, or is an image | any | any | None: the spec pins it |
| has none | does not exist, is not ours, or is being deleted | any | `Unresolved` |
| has none | has failed | any | `Unresolved`, over: the next one begins |
| has none | runs, or is complete | has reported a digest | `ResolvedModel` |
| has none | is complete | is gone | `Unresolved`, over: the next one begins |
| has none | runs | is stuck, or has failed and is tried again | `Unresolved` with this problem |
| has none | runs | otherwise | `Unresolved` |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tailbound.api.conditions import Reason
from tailbound.api.runtime_contract import Resolution
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.pod import Pod
from tailbound.reconcile import downloads, model_caches
from tailbound.reconcile.owned_state import OwnedState, Ownership, ownership
from tailbound.reconcile.pods import report
from tailbound.revisions.model_cache import claim_name
from tailbound.revisions.resolved import ResolvedModel
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class Unresolved:
    """The digest of the source is not known yet."""

    message: str
    problem: Problem | None = None
    """What keeps the Job from finding it."""
    over: bool = False
    """The Job has ended without a result: another one takes its place."""


ModelPin: TypeAlias = ResolvedModel | Unresolved | None
"""What pins the model; None: the spec itself."""


def model_pin(owned: OwnedState, name: str) -> ModelPin:
    """What pins the model of the revision of this name, which is not stored yet."""
    if owned.service.spec.model.pinned:
        return None
    describe = owned.commands.kubectl("describe job", name)
    waits = Unresolved(
        f"Job {name} reads the model to find its digest, as spec.model.sha256 is missing; pods with "
        f"this model start once it is known ({describe} shows what keeps it from a pod, "
        f"as a ResourceQuota){downloads.message(owned, name)}"
    )
    live = owned.find("Job", name)
    if live is None or ownership(live, owned.service) is not Ownership.OURS:
        return waits
    job = KubernetesObject(live)
    if job.terminating:
        return waits
    return _of_job(owned, job, waits)


def _of_job(owned: OwnedState, job: KubernetesObject, waits: Unresolved) -> ModelPin:
    failed = job.condition("Failed")
    if failed.status == "True":
        said = failed.message or failed.reason or "it gives no reason"
        again = f"Job {job.name}, which finds the digest of the model, has failed and is made again: {said}"
        return Unresolved(waits.message, Problem(Reason.SOURCE_UNREACHABLE, again), over=True)
    pods = owned.pods_of_job(job.uid)
    found = next((model for pod in pods if (model := _reported(pod)) is not None), None)
    if found is not None:
        filled = model_caches.filled_by(job)
        return replace(found, claim=_claim_with(owned, found, filled))
    if job.condition("Complete").status == "True":
        return Unresolved(waits.message, over=True)
    return Unresolved(waits.message, _obstacle(owned, job, [pod for pod in pods if not pod.terminating]))


def claim_of_new(owned: OwnedState, pin: ModelPin) -> str | None:
    """The claim of a revision that is yet to be made, where it is not the one of the model's own name."""
    if isinstance(pin, ResolvedModel):
        return pin.claim
    return _claim_with(owned, None, None) if pin is None else None


def _claim_with(owned: OwnedState, found: ResolvedModel | None, filled: str | None) -> str | None:
    """The claim that has the model, where it is not the one of the model's own name.

    found: what a Job has found, None where the spec pins the model; filled: the claim to which it has
    downloaded.

    | a claim of the namespace has the model | the Job has filled a claim | outcome |
    |---|---|---|
    | of the model's own name | any | None |
    | another one | any | that one |
    | none | yes | that of the Job |
    | none | no | None |
    """
    model = owned.service.spec.model
    if model.cache is None:
        return None
    own = claim_name(model, found)
    name = model_caches.having(owned.observation.claims, own) or filled
    return name if name != own else None


def _obstacle(owned: OwnedState, job: KubernetesObject, pods: Sequence[Pod]) -> Problem | None:
    filled = model_caches.filled_by(job)
    claim = owned.find(model_caches.KIND, filled) if filled is not None else None
    finding = model_caches.finding_of(claim, pods) or report(pods, None).obstacle
    if finding is None:
        return None
    return Problem(
        finding.reason,
        f"the digest of the model cannot be found, and spec.model.sha256 is missing: {finding.message}",
    )


def _reported(pod: Pod) -> ResolvedModel | None:
    """What a pod has found; None while it has not ended, and if it failed."""
    for status in pod.container_statuses:
        ended = status.terminated
        if ended is None or ended.exit_code != 0:
            continue
        try:
            said = Resolution.read(ended.message)
        except ValueError:
            continue
        return ResolvedModel(said.sha256, said.size_bytes, said.weight_bytes)
    return None
