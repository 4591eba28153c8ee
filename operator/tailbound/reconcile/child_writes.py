"""The children of one service as they should be after this decision: one function per pass of its writes."""

from collections.abc import Iterator
from typing import Any

from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import HANDLED_ANNOTATIONS, preview_name
from tailbound.api.rollout import previews
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile import children, class_returns, dead_pods, model_caches
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.marks import record_of_desired
from tailbound.reconcile.owned_state import Ownership, owner_reference, ownership, revision_of
from tailbound.reconcile.writes import Ask, Ensure, Remove, WriteRequest, refuses
from tailbound.revisions.identity import NAME_LIMIT
from tailbound.revisions.model_cache import claim_of
from tailbound.revisions.record import Revision, to_prune
from tailbound.revisions.resolve_job import resolve_job
from tailbound.rollout.actions import named


def trials(decided: Decided) -> Iterator[WriteRequest]:
    """Dry runs of what weights are moved for: what may be refused comes before what is given up for it."""
    for name, replicas in decided.step.tries.items():
        revision = decided.desired.revision if name == decided.name else decided.owned.revision(name)
        if revision is not None:
            service = decided.owned.service
            yield Ask(children.deployment(service, revision, revision.template, replicas))


def serving_revisions(decided: Decided) -> Iterator[WriteRequest]:
    """Children of every other revision that serves: kept whole, or stopped with the service."""
    for name, replicas in decided.step.fleet.items():
        revision = decided.owned.revision(name) if name != decided.name else None
        if revision is not None:
            yield from _claim_templates(decided, revision, come_what_may=True)
            yield from _children(decided, revision, replicas, come_what_may=True)


def desired_revision(decided: Decided) -> Iterator[WriteRequest]:
    """The Service of the whole service, the desired revision's record, and its children.

    The templates of claims come before the record: where the API server refuses one, nothing of it is kept.
    """
    revision = decided.desired.revision
    if revision is None:
        return
    yield Ensure(_front_service(decided, decided.owned.service.metadata.name))
    replicas = decided.step.fleet.get(revision.name)
    if replicas is not None:
        yield from _claim_templates(decided, revision)
    yield from record_of_desired(decided, revision)
    if replicas is not None:
        yield from _children(decided, revision, replicas)


def resolution(decided: Decided) -> Iterator[WriteRequest]:
    """The Job that finds the digest of a model, its claim, and the end of Jobs that nothing needs.

    A Job is never changed. It stays until the revision is stored that holds its result, and owns its claim:
    one that no revision has taken goes with it.
    """
    owned, intended, unresolved = decided.owned, decided.intended, decided.desired.unresolved
    stopped = owned.service.spec.stopped
    over = intended.stored or stopped or (unresolved is not None and unresolved.over)
    needed = None if over else intended.name
    found = owned.ours(owned.observation.children.jobs)
    jobs = tuple(job for job in found if KubernetesObject(job).name != needed)
    yield Remove("batch/v1", "Job", jobs)
    live = owned.find("Job", intended.name)
    kept = live is not None and ownership(live, owned.service) is Ownership.OURS
    if live is not None and kept and live not in jobs:
        yield from _claim_of_job(decided, KubernetesObject(live))
    if unresolved is not None and not kept and not stopped:
        settings = owned.observation.settings
        yield Ensure(
            resolve_job(
                intended.name,
                owned.service,
                settings.fetcher,
                settings.serving_user_id,
                owner_reference(owned.service),
                model_caches.name_for_job(owned.observation.claims, intended.name),
            )
        )


def _claim_of_job(decided: Decided, job: KubernetesObject) -> Iterator[WriteRequest]:
    owned = decided.owned
    name = model_caches.filled_by(job)
    if name is None or job.terminating:
        return
    claim = model_caches.claim_of_job(job, owned.service.spec.model, owned.find(model_caches.KIND, name))
    if claim is not None:
        yield Ensure(claim)


def preview_service(decided: Decided) -> Iterator[WriteRequest]:
    """The name of the preview comes last: a conflict about it keeps nothing else from being done."""
    name = _preview_name(decided.owned.service)
    if name is not None and decided.desired.revision is not None:
        yield Ensure(_front_service(decided, name))


def unneeded_children(decided: Decided) -> Iterator[WriteRequest]:
    """Remove children of revisions that nothing needs, budgets of single pods, and a preview's old name."""
    owned, fleet = decided.owned, decided.step.fleet
    seen, kept = owned.observation.children, _kept_stable(decided)

    def gone(child: Object) -> bool:
        name = revision_of(child)
        return decided.step.shrink and name is not None and name not in fleet and name != kept

    yield Remove("apps/v1", "Deployment", tuple(filter(gone, owned.ours(seen.deployments))))
    yield Remove("v1", "Service", tuple(filter(gone, owned.ours(seen.services))))
    claims = tuple(filter(gone, owned.ours(seen.claim_templates)))
    yield Remove("resource.k8s.io/v1", "ResourceClaimTemplate", claims)
    budgets = tuple(
        budget
        for budget in owned.ours(seen.disruption_budgets)
        if gone(budget) or fleet.get(revision_of(budget) or "", 2) < 2
    )
    yield Remove("policy/v1", "PodDisruptionBudget", budgets)
    if _preview_name(owned.service) is None:
        former = owned.find("Service", preview_name(owned.service.metadata.name))
        own = owned.ours([former] if former is not None else [])
        yield Remove("v1", "Service", tuple(each for each in own if revision_of(each) is None))


def dead_pods_left_behind(decided: Decided) -> Iterator[WriteRequest]:
    """Remove pods that have ended for good, but for the newest ones of the last minutes."""
    owned, spec = decided.owned, decided.owned.service.spec
    most = max(spec.rollout.restart_limit, 2, *decided.step.fleet.values())
    gone = dead_pods.left_behind(owned.pods, most, decided.now)
    yield Remove("v1", "Pod", tuple(pod.raw for pod in gone))


def old_history(decided: Decided) -> Iterator[WriteRequest]:
    """Remove old ControllerRevisions; what runs, serves or is marked stays."""
    owned, step, intended = decided.owned, decided.step, decided.intended
    numbers = owned.numbers | {intended.name: intended.number}
    marked = {name for name, marks in owned.marks.items() if marks.stable}
    in_use = {*owned.deployments, *marked, *step.fleet, intended.name, step.stable, step.candidate}
    in_use |= {step.rollout.from_revision} if step.rollout is not None else set()
    annotations = owned.service.metadata.annotations
    in_use |= {named(annotations[each]) for each in HANDLED_ANNOTATIONS if each in annotations}
    limit = owned.service.spec.rollout.history_limit
    outdated = class_returns.outdated_attempts(owned) - in_use
    kept = {name: number for name, number in numbers.items() if name not in outdated}
    doomed = (*sorted(outdated), *to_prune(kept, in_use, limit))
    yield Remove("apps/v1", "ControllerRevision", tuple(owned.stored_revisions[name] for name in doomed))


def _children(
    decided: Decided, revision: Revision, replicas: int, *, come_what_may: bool = False
) -> Iterator[WriteRequest]:
    service, template = decided.owned.service, revision.template
    claim_name = claim_of(revision)
    if claim_name is not None:
        record = decided.owned.stored_revisions.get(revision.name)
        if record is None:
            return  # the claim needs its owner's uid, and pods without their claim would find no node
        live = decided.owned.find(model_caches.KIND, claim_name)
        claim = model_caches.wanted_claim(revision, claim_name, record, live)
        # Pods that run go on with a claim that is being deleted; pods that lack it have a finding.
        vital = not come_what_may and revision.name not in decided.owned.deployments
        yield Ensure(claim, come_what_may, vital)
    yield Ensure(children.revision_service(service, revision, template), come_what_may, not come_what_may)
    deployment = children.deployment(service, revision, template, replicas)
    yield Ensure(deployment, come_what_may, not come_what_may)
    if replicas > 1:
        yield Ensure(children.disruption_budget(service, revision), come_what_may, vital=False)


def _claim_templates(
    decided: Decided, revision: Revision, *, come_what_may: bool = False
) -> Iterator[WriteRequest]:
    for claim in revision.claims:
        body = children.claim_template(decided.owned.service, revision, claim)
        yield Ensure(body, come_what_may, not come_what_may)


def _front_service(decided: Decided, name: str) -> dict[str, Any]:
    return children.front_service(decided.owned.service, decided.owned.observation.settings, name)


def _kept_stable(decided: Decided) -> str | None:
    """The revision that keeps the mark of the stable one, also where the move of that mark is refused."""
    owned, following = decided.owned, decided.step.marking.stable
    if owned.service.spec.stopped or owned.stable is None:
        return None
    moves = following not in (None, owned.stable)
    refused = any(
        refuses(owned, "ControllerRevision", name) for name in (owned.stable, following) if name is not None
    )
    return None if moves and not refused else owned.stable


def _preview_name(service: InferenceService) -> str | None:
    """The name of the Service of its previews; None if it has none, or if no Service can be called so."""
    name, rollout = preview_name(service.metadata.name), service.spec.rollout
    return name if previews(rollout.strategy, rollout.promotion) and len(name) <= NAME_LIMIT else None
