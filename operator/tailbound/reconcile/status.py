"""The status document: built as a whole, written only if it differs."""

from collections.abc import Iterable
from typing import Any

from tailbound.api.conditions import ConditionType
from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS, usable_paths
from tailbound.api.inferenceservice import MOST_CONDITIONS, InferenceServiceStatus, RevisionStatus
from tailbound.api.meta import Condition
from tailbound.api.names import SERVICE_LABEL
from tailbound.objects.deployment import Deployment
from tailbound.reconcile import hardware_status, scaling
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.progress import status_of
from tailbound.rollout.model import RolloutStep
from tailbound.rollout.weights import weight_of

_OUR_CONDITIONS = frozenset(ConditionType)


def document(decided: Decided, merged: tuple[Condition, ...]) -> InferenceServiceStatus:
    """The whole status, with these conditions."""
    owned, step = decided.owned, decided.step
    return InferenceServiceStatus(
        observed_generation=owned.service.metadata.generation,
        url=_url(owned),
        traffic=step.flow.traffic,
        inference_paths=_inference_paths(owned, step),
        routing=decided.snapshot.routing,
        hosts=owned.observation.hosts,
        hardware=hardware_status.status(decided),
        stable=_revision_status(owned, step, step.stable),
        canary=_revision_status(owned, step, step.candidate),
        rollout=status_of(step.rollout),
        scaling=scaling.status(owned, step),
        serving_pods=_serving_pods(owned, step),
        replicas=_total_replicas(owned.deployments.values()),
        selector=_selector(owned),
        conditions=merged,
    )


def _revision_status(owned: OwnedState, step: RolloutStep, name: str | None) -> RevisionStatus | None:
    """One revision, its pods and its share; None if there is no such revision."""
    if name is None:
        return None
    deployed = owned.deployments.get(name)
    replicas, ready = (deployed.status_replicas, deployed.ready_replicas) if deployed is not None else (0, 0)
    weight = weight_of(step.flow.traffic, name)
    return RevisionStatus(revision=name, replicas=replicas, ready=ready, weight=weight)


def _inference_paths(owned: OwnedState, step: RolloutStep) -> tuple[str, ...] | None:
    """The paths of inference calls to the revisions that get requests; None for the default ones."""
    backends = step.flow.traffic.backends if step.flow.traffic is not None else ()
    names = [backend.revision for backend in backends] + [name for name in [step.candidate] if name]
    records = (owned.revision(name) for name in names)
    paths = {path for record in records if record is not None for path in record.inference_paths}
    usable = usable_paths(sorted(paths))
    return None if set(usable) <= set(DEFAULT_INFERENCE_PATHS) else usable


def _serving_pods(owned: OwnedState, step: RolloutStep) -> str:
    """Ready and wanted pods of all revisions that get requests; empty where none does."""
    backends = step.flow.traffic.backends if step.flow.traffic is not None else ()
    names = [backend.revision for backend in backends if backend.weight]
    ready = sum(owned.ready_endpoints.get(name, 0) for name in names)
    return f"{ready}/{sum(step.fleet.get(name, 0) for name in names)}" if names else ""


def _url(owned: OwnedState) -> str:
    """The URL of the service inside the cluster."""
    metadata = owned.service.metadata
    return f"http://{metadata.name}.{metadata.namespace}.svc.{owned.observation.settings.cluster_domain}"


def _selector(owned: OwnedState) -> str:
    """Selects the pods of every revision."""
    return f"{SERVICE_LABEL}={owned.service.metadata.name}"


def _total_replicas(deployments: Iterable[Deployment]) -> int:
    """Pods that exist, of all revisions."""
    return sum(deployment.status_replicas for deployment in deployments)


def to_write(stored: InferenceServiceStatus, wanted: InferenceServiceStatus) -> dict[str, Any] | None:
    """The whole status as JSON, other people's conditions at its end; None if the stored one is equal."""
    ours = tuple(condition for condition in stored.conditions if condition.type in _OUR_CONDITIONS)
    if stored.model_copy(update={"conditions": ours}) == wanted:
        return None
    theirs = [condition for condition in stored.conditions if condition.type not in _OUR_CONDITIONS]
    kept = (*wanted.conditions, *theirs)[:MOST_CONDITIONS]
    return wanted.model_copy(update={"conditions": kept}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
