"""Carries out the writes of a plan: fenced, guarded, and with every response entering the stores at once."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tailbound.api.conditions import Reason
from tailbound.api.names import HARDWARE_CLASS_ANNOTATION
from tailbound.controller.restraint import rivalry
from tailbound.controller.stores import Stores
from tailbound.kube.errors import (
    Conflict,
    KubeError,
    NameConflict,
    NamespaceEnds,
    NotAdmitted,
    NotAdmittedYet,
    NotServed,
    Terminal,
    Transient,
)
from tailbound.kube.objects import key_of, uid_of
from tailbound.kube.protocol import KubeClient, Propagation
from tailbound.kube.resources import (
    DEPLOYMENTS,
    INFERENCE_SERVICES,
    RESOURCE_CLAIM_TEMPLATES,
    Resource,
    resource_of,
)
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.reconcile.model import Apply, Create, Delete, DryRun, RefusedWrite, Write
from tailbound.reconcile.refused_pods import refusal_in
from tailbound.telemetry.metrics import Metrics

_T = TypeVar("_T")
_VERBS: Final = {Create: "create", Apply: "apply", DryRun: "dry-run", Delete: "delete"}


# Refusals that no change of the InferenceService alone ends.
_NOT_OF_THE_SPEC: Final = (Reason.WEBHOOK_UNAVAILABLE, Reason.POLICY_DENIED)
_OF_A_QUOTA: Final = (Reason.QUOTA_EXCEEDED, Reason.QUOTA_TOO_SMALL)

_OF_A_FAILURE: Final = (
    ". What to do: mend the API server, or an admission webhook that does not answer it in time: look at the "
    "ValidatingWebhookConfigurations and MutatingWebhookConfigurations of the cluster"
)


class NotLeaderError(Exception):
    """Raised when this process no longer holds the Lease: it may not write."""


class Executor:
    """Writes for one leader. `holds` is the fence: asked before every request that writes."""

    def __init__(
        self, cluster: KubeClient, stores: Stores, metrics: Metrics, holds: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._stores = stores
        self._metrics = metrics
        self._holds = holds

    async def write(self, write: Write) -> RefusedWrite | None:
        """Do one write. A RefusedWrite if the API server refuses it until something is changed.

        Raises NotLeaderError, Transient, and Conflict, once the stores hold the newest state of the object.
        """
        resource, namespace, name = target_of(write)
        verb = _VERBS[type(write)]
        try:
            await self._counted(verb, resource, lambda: self._do(write, resource))
        except Conflict:
            await self._look_again(resource, namespace, name)
            raise
        except (Terminal, NotAdmittedYet) as error:
            reason = reason_of(error, write, resource)
            return RefusedWrite(
                resource.kind, name, reason, f"{_origin(write, reason)}{error}{_remedy(error)}"
            )
        return None

    def failure(self, write: Write, error: Transient) -> RefusedWrite | None:
        """The message about a write that fails repeatedly; None where the whole service has to wait."""
        if isinstance(error, NamespaceEnds | NotServed):
            return None
        resource, _, name = target_of(write)
        return RefusedWrite(
            resource.kind, name, Reason.WRITE_FAILED, f"{resource.kind} {name}: {error}{_OF_A_FAILURE}"
        )

    async def rival(self, write: Write) -> RefusedWrite:
        """The message about the client or webhook that undid this write. Raises Transient."""
        resource, namespace, name = target_of(write)
        live = await self._cluster.get(resource, namespace, name)
        return rivalry(resource.kind, name, live, write)

    async def write_status(self, service: Object, status: Object) -> Object:
        """Replace the whole status of a service, guarded by the version that it was decided on.

        Raises what `write` raises, and Terminal if the API server refuses it.
        """
        body = {**service, "status": status}
        try:
            return await self._counted("status", INFERENCE_SERVICES, lambda: self._status(body))
        except Conflict:
            await self._look_again(INFERENCE_SERVICES, *key_of(service))
            raise

    async def _status(self, body: Object) -> Object:
        stored = await self._cluster.replace_status(INFERENCE_SERVICES, body)
        self._stores.of[INFERENCE_SERVICES].upsert(stored)
        return stored

    async def _do(self, write: Write, resource: Resource) -> None:
        store = self._stores.of[resource]
        if isinstance(write, Create):
            store.upsert(await self._cluster.create(resource, write.body))
        elif isinstance(write, Apply):
            store.upsert(await self._cluster.apply(resource, write.body))
        elif isinstance(write, DryRun):
            await self._cluster.apply(resource, write.body, dry_run=True)
        else:
            remaining = await self._cluster.delete(
                resource,
                write.namespace,
                write.name,
                write.uid,
                write.resource_version,
                _propagation(resource),
            )
            if remaining is not None:
                store.upsert(remaining)
            else:
                store.gone(write.namespace, write.name, write.uid)

    async def _counted(self, verb: str, resource: Resource, request: Callable[[], Awaitable[_T]]) -> _T:
        if not self._holds():
            raise NotLeaderError
        outcome = "error"
        try:
            answer = await request()
            outcome = "ok"
            return answer
        except KubeError as error:
            outcome = type(error).__name__.lower()
            raise
        finally:
            self._metrics.writes.labels(verb, resource.kind, outcome).inc()

    async def _look_again(self, resource: Resource, namespace: str, name: str) -> None:
        """Bring the newest state of an object into the stores, so that the next decision is made on it."""
        store = self._stores.of[resource]
        current = await self._cluster.get(resource, namespace, name)
        known = store.get(namespace, name)
        if current is not None:
            store.upsert(current)
        elif known is not None:
            store.gone(namespace, name, uid_of(known))


def target_of(write: Write) -> tuple[Resource, str, str]:
    """Resource, namespace and name that a write is about."""
    if isinstance(write, Delete):
        return resource_of(write.api_version, write.kind), write.namespace, write.name
    namespace, name = key_of(write.body)
    return resource_of(str(write.body["apiVersion"]), str(write.body["kind"])), namespace, name


def _origin(write: Write, reason: Reason) -> str:
    """Which object of whose author to correct, where that is not the one that is written."""
    if reason is not Reason.RESOURCE_CLAIM_REFUSED or isinstance(write, Delete):
        return ""
    name = KubernetesObject(write.body).annotations.get(HARDWARE_CLASS_ANNOTATION, "")
    return f"spec.resourceClaim of HardwareClass {name} is refused, correct it: "


def _remedy(error: KubeError) -> str:
    """The remedy for a rule of admission, where its answer alone does not say it."""
    refusal = refusal_in(str(error))
    if isinstance(error, NotAdmittedYet) and refusal.reason is not Reason.WEBHOOK_UNAVAILABLE:
        return ". What to do: install the roles of the chart again, with helm upgrade"
    if refusal.reason in _OF_A_QUOTA:
        return ". What to do: raise the ResourceQuota of the namespace, or delete objects that it counts"
    return f". What to do: {refusal.remedy}" if refusal.reason in _NOT_OF_THE_SPEC else ""


def _propagation(resource: Resource) -> Propagation:
    # A Deployment stays visible until its pods have drained: only then is the old revision really gone.
    return "Foreground" if resource is DEPLOYMENTS else "Background"


def reason_of(error: Terminal | NotAdmittedYet, write: Write, resource: Resource) -> Reason:
    """What a refusal says about the service. Only a new Deployment brings a new template of the runtime."""
    if isinstance(error, NameConflict):
        return Reason.NAME_CONFLICT
    admission = refusal_in(str(error)).reason
    if isinstance(error, NotAdmittedYet):
        return admission if admission is Reason.WEBHOOK_UNAVAILABLE else Reason.RIGHT_MISSING
    # A ValidatingAdmissionPolicy answers as if the object were invalid (422).
    if isinstance(error, NotAdmitted) or admission is Reason.POLICY_DENIED:
        return Reason.WRITE_REFUSED if admission is Reason.POD_REFUSED else admission
    if resource is RESOURCE_CLAIM_TEMPLATES and isinstance(write, Create):
        return Reason.RESOURCE_CLAIM_REFUSED
    renders = resource is DEPLOYMENTS and isinstance(write, Create)
    return Reason.RUNTIME_INVALID if renders else Reason.WRITE_REFUSED
