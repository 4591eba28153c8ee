"""Which hosts each service has, over all InferenceServices and HostGrants that the operator knows."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tailbound.api.hosts import HostGrant, HostGrantSpec, HostPolicy, HostState, HostStatus, permits
from tailbound.api.parsing import InvalidObject, parse
from tailbound.kube.objects import Key, key_of, uid_of
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object, child, children, text
from tailbound.objects.metadata import KubernetesObject
from tailbound.telemetry.logs import logger
from tailbound.traffic.hosts import Claim, HostClaims, to_decide
from tailbound.traffic.intent import read_intent
from tailbound.traffic.model import RouteRejection, ServiceKey

_LOG = logger(__name__)
_BEGINNING: Final = datetime.fromtimestamp(0, UTC)


class HostLedger:
    """Decides on the hosts of all services.

    `concerns(key)` is called for each service that a change of another one, or of a HostGrant, gave another
    outcome.
    """

    def __init__(
        self,
        services: ObjectStore,
        grants: ObjectStore,
        cluster_domain: str,
        policy: HostPolicy,
        concerns: Callable[[Key], None],
    ) -> None:
        self._concerns = concerns
        self._policy = policy
        self._grants: dict[str, HostGrantSpec] = {}
        self._claims = HostClaims(cluster_domain, self._permits)
        services.subscribe(self._service_changed)
        grants.subscribe(self._grant_changed)

    def of(self, key: Key) -> tuple[HostStatus, ...]:
        """The decision on each entry of spec.hosts of one service."""
        owned = self._claims.owned.get(ServiceKey(*key))
        return () if owned is None else owned.entries

    def _permits(self, namespace: str, host: str) -> bool:
        return permits(self._policy, self._grants.values(), namespace, host)

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or _relevant(old) != _relevant(new)):
            self._put(new)
            self._settle(key_of(new))
        elif new is None and old is not None:
            self._claims.remove(ServiceKey(*key_of(old)))
            self._settle(key_of(old))

    def _put(self, service: Object) -> None:
        """Take in a service. One that cannot be read keeps the hosts that it has."""
        key, read = ServiceKey(*key_of(service)), read_intent(service)
        if not isinstance(read, RouteRejection):
            held, barred = to_decide(read.hosts, read.record)
            self._claims.put(Claim(key, read.created, read.hosts, read.previews, held, barred))
        elif key not in self._claims:
            hosts = _accepted(service)
            self._claims.put(Claim(key, _BEGINNING, hosts, held=frozenset(hosts)))

    def _grant_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            self._grants.pop(KubernetesObject(old).name, None)
        if new is not None:
            name, grant = KubernetesObject(new).name, parse(HostGrant, new)
            if isinstance(grant, InvalidObject):
                _LOG.warning("HostGrant ignored", name=name, message=grant.message)
            else:
                self._grants[name] = grant.spec
        self._claims.unsettle()
        self._settle()

    def _settle(self, but: Key | None = None) -> None:
        for service in self._claims.settle() - {but}:
            self._concerns((service.namespace, service.name))


def _relevant(service: Object) -> tuple[object, ...]:
    """What the outcome rests on."""
    spec, status = child(service, "spec"), child(service, "status")
    return uid_of(service), spec.get("hosts"), spec.get("rollout"), status.get("hosts")


def _accepted(service: Object) -> tuple[str, ...]:
    entries = children(child(service, "status"), "hosts")
    return tuple(text(each, "host") for each in entries if text(each, "state") == HostState.ACCEPTED)
