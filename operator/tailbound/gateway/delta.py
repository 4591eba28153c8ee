"""One delta ADS stream, without the stream: requests in, responses out, and what Envoy has acknowledged.

Per service, clusters and endpoints go first; its scopes and its routes follow once Envoy has acknowledged
those. On the way out the scopes go first, and clusters only after no route leads to them. One response per
kind is under way at a time. A refused one is halved until the resource that is to blame stands alone.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from envoy.service.discovery.v3.discovery_pb2 import Resource as WireResource

from tailbound.api.traffic import AppliedRoute
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.resources import WILDCARD, Bundle, EnvoyResource, ResourceId, ResourceType
from tailbound.gateway.routes import route_names
from tailbound.traffic.model import NoBackend, ServiceKey

# Stands for the version of a resource that Envoy may or may not have taken. No digest equals it.
_UNCERTAIN = "?"
_TYPES = {type_.value: type_ for type_ in ResourceType}


@dataclass(frozen=True)
class _Sent:
    nonce: str
    upserts: dict[str, EnvoyResource]
    removals: frozenset[str]


@dataclass
class _Kind:
    """What this stream knows about one kind of resource."""

    asked: bool = False
    confirmed: bool = False
    known: dict[str, str] = field(default_factory=dict)
    """Versions that Envoy has."""
    subscribed: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    """To be sent even if Envoy has that version: it asked again."""
    pending: set[str] = field(default_factory=set)
    """Names where what Envoy has may differ from what it should have."""
    suspects: deque[tuple[str, ...]] = field(default_factory=deque)
    """Parts of a refused response, each to be sent alone."""
    in_flight: _Sent | None = None


@dataclass(frozen=True)
class Nack:
    """Envoy refused this resource of this service."""

    service: ServiceKey | None
    resource: EnvoyResource
    message: str


class DeltaSession:
    """The state of one stream. `applied` is what this Envoy has acknowledged, by service."""

    def __init__(self, configuration: Configuration) -> None:
        self.applied: dict[ServiceKey, AppliedRoute] = {}
        self._configuration = configuration
        self._kinds = {type_: _Kind() for type_ in ResourceType}
        self._nonce = 0
        # Of the first full configuration; later changes do not make a gateway unready.
        self._outstanding: set[ServiceKey] | None = None

    @property
    def synced(self) -> bool:
        """Whether Envoy has acknowledged a full first configuration."""
        confirmed = all(self._kinds[type_].confirmed for type_ in WILDCARD)
        return confirmed and self._outstanding is not None and not self._outstanding

    def configured(self, changed: Iterable[ResourceId], services: Iterable[ServiceKey]) -> None:
        """The configuration changed in these resources, of these services."""
        for type_, name in changed:
            self._kinds[type_].pending.add(name)
        self._settle(services)

    def receive(self, request: DeltaDiscoveryRequest) -> list[Nack]:
        """Take in a request of Envoy; returns what it refused for good."""
        type_ = _TYPES.get(request.type_url)
        if type_ is None:
            return []
        kind = self._kinds[type_]
        if not kind.asked:
            self._open(type_, request)
        self._subscribe(type_, request)
        sent = kind.in_flight
        if sent is None or request.response_nonce != sent.nonce:
            return []
        kind.in_flight = None
        kind.confirmed = True
        if request.HasField("error_detail"):
            return self._refused(type_, sent, request.error_detail.message)
        self._accepted(type_, sent)
        return []

    def responses(self) -> list[DeltaDiscoveryResponse]:
        """What may be sent now. Call after every change and every request."""
        if not self._configuration.complete:
            return []
        if self._outstanding is None:
            self._outstanding = set(self._configuration.services())
            self._settle(tuple(self._outstanding))
        made = (self._respond(type_) for type_ in ResourceType)
        return [response for response in made if response is not None]

    # Requests.

    def _open(self, type_: ResourceType, request: DeltaDiscoveryRequest) -> None:
        kind = self._kinds[type_]
        kind.asked = True
        kind.known = dict(request.initial_resource_versions)
        if type_ in WILDCARD:
            kind.pending |= self._configuration.names(type_) | kind.known.keys()
        self._settle(self._owners(type_, kind.known))

    def _subscribe(self, type_: ResourceType, request: DeltaDiscoveryRequest) -> None:
        kind = self._kinds[type_]
        for name in request.resource_names_subscribe:
            if name != "*":
                kind.subscribed.add(name)
                kind.pending.add(name)
                if name not in request.initial_resource_versions:
                    kind.again.add(name)
        for name in request.resource_names_unsubscribe:
            kind.subscribed.discard(name)
            kind.again.discard(name)
            kind.known.pop(name, None)

    def _accepted(self, type_: ResourceType, sent: _Sent) -> None:
        kind = self._kinds[type_]
        for name in sent.removals:
            kind.known.pop(name, None)
        for name, resource in sent.upserts.items():
            if type_ in WILDCARD or name in kind.subscribed:
                kind.known[name] = resource.version
        self._settle(self._owners(type_, sent.upserts))

    def _refused(self, type_: ResourceType, sent: _Sent, message: str) -> list[Nack]:
        """Halve, or blame. Envoy may have taken the good parts, so that nothing of it is certain."""
        kind = self._kinds[type_]
        kind.known.update(dict.fromkeys(sent.upserts, _UNCERTAIN))
        names = sorted(sent.upserts)
        if len(names) > 1:
            middle = len(names) // 2
            kind.suspects.extendleft((tuple(names[middle:]), tuple(names[:middle])))
        if names:
            kind.pending |= sent.removals
        if len(names) != 1:
            return []
        resource = sent.upserts[names[0]]
        owner = self._configuration.owner(type_, resource.name)
        changed = self._configuration.refuse(resource, message)
        self.configured(changed, () if owner is None else (owner,))
        return [Nack(owner, resource, message)]

    # Responses.

    def _respond(self, type_: ResourceType) -> DeltaDiscoveryResponse | None:
        kind = self._kinds[type_]
        if not kind.asked or kind.in_flight is not None:
            return None
        upserts, removals = self._next(type_, kind)
        is_first_answer = type_ in WILDCARD and not kind.confirmed
        if is_first_answer and type_ is ResourceType.SCOPE and self._waiting(kind, upserts, removals):
            return None
        if not upserts and not removals and not is_first_answer:
            return None
        self._nonce += 1
        kind.in_flight = _Sent(str(self._nonce), {item.name: item for item in upserts}, frozenset(removals))
        kind.pending -= {item.name for item in upserts}
        kind.pending -= set(removals)
        kind.again -= {item.name for item in upserts}
        return DeltaDiscoveryResponse(
            type_url=type_,
            nonce=str(self._nonce),
            resources=[
                WireResource(name=item.name, version=item.version, resource=item.body) for item in upserts
            ],
            removed_resources=removals,
        )

    def _waiting(self, kind: _Kind, upserts: Sequence[EnvoyResource], removals: Sequence[str]) -> bool:
        """Envoy opens its port with the first scopes, so that these are given all together or not at all."""
        return bool(kind.pending - {item.name for item in upserts} - set(removals))

    def _next(self, type_: ResourceType, kind: _Kind) -> tuple[list[EnvoyResource], list[str]]:
        """The next part of a refused response that still matters, or else everything that is pending."""
        while kind.suspects:
            upserts, removals = self._due(type_, kind.suspects.popleft())
            if upserts or removals:
                return upserts, removals
        return self._due(type_, sorted(kind.pending))

    def _due(self, type_: ResourceType, names: Sequence[str]) -> tuple[list[EnvoyResource], list[str]]:
        """What is to be sent and what removed now of these names; forgets those with nothing to do.

        | should have | has            | further                     | do                   |
        |-------------|----------------|-----------------------------|----------------------|
        | nothing     | nothing        |                             | forget               |
        | nothing     | something      | by name: Envoy unsubscribes | forget               |
        | nothing     | something      | a route still leads there   | wait                 |
        | nothing     | something      | otherwise                   | remove               |
        | something   | that version   | not asked for again         | forget               |
        | something   |                | by name, not subscribed     | forget               |
        | something   | anything else  | what it needs is not there  | wait                 |
        | something   | anything else  | otherwise                   | send                 |
        """
        kind = self._kinds[type_]
        upserts: list[EnvoyResource] = []
        removals: list[str] = []
        for name in names:
            resource = self._configuration.get(type_, name)
            is_settled = (
                name not in kind.known or type_ not in WILDCARD
                if resource is None
                else self._needs_nothing(type_, resource)
            )
            if is_settled:
                kind.pending.discard(name)
            elif not self._may_go(type_, name):
                kind.pending.add(name)
            elif resource is None:
                removals.append(name)
            else:
                upserts.append(resource)
        return upserts, removals

    def _needs_nothing(self, type_: ResourceType, resource: EnvoyResource) -> bool:
        kind = self._kinds[type_]
        if type_ not in WILDCARD and resource.name not in kind.subscribed:
            return True
        return kind.known.get(resource.name) == resource.version and resource.name not in kind.again

    def _may_go(self, type_: ResourceType, name: str) -> bool:
        """Whether what a change of this resource depends on is in place."""
        is_removal = self._configuration.get(type_, name) is None
        if type_ is ResourceType.CLUSTER and is_removal:
            return not self._leads_to(name)
        if type_ in (ResourceType.SCOPE, ResourceType.ROUTE) and not is_removal:
            owner = self._configuration.owner(type_, name)
            bundle = None if owner is None else self._configuration.effective(owner)
            return bundle is not None and self._has(bundle, (ResourceType.CLUSTER, ResourceType.ENDPOINTS))
        return True

    def _leads_to(self, cluster: str) -> bool:
        """Whether a route of the service, as Envoy has it, may still lead to this cluster."""
        scopes, routes = self._kinds[ResourceType.SCOPE], self._kinds[ResourceType.ROUTE]
        if not scopes.asked or (scopes.known and not routes.asked):
            # After a break Envoy tells kind by kind what it has, clusters first.
            return True
        for name in route_names(cluster.rsplit("/", 2)[0]):
            version, route = routes.known.get(name), self._configuration.get(ResourceType.ROUTE, name)
            if version is not None and (route is None or route.version != version):
                return True
        return False

    # What is applied.

    def _has(self, bundle: Bundle, types: Iterable[ResourceType]) -> bool:
        wanted = frozenset(types)
        return all(
            self._kinds[item.type].known.get(item.name) == item.version
            for item in bundle.resources
            if item.type in wanted
        )

    def _owners(self, type_: ResourceType, names: Iterable[str]) -> set[ServiceKey]:
        owners = {self._configuration.owner(type_, name) for name in names}
        return {owner for owner in owners if owner is not None}

    def _settle(self, services: Iterable[ServiceKey]) -> None:
        for service in services:
            bundle = self._configuration.effective(service)
            if bundle is None:
                self.applied.pop(service, None)
                self._arrived(service)
            elif self._has(bundle, ResourceType):
                self._configuration.acknowledged(service)
                self._arrived(service)
                if bundle.route.unavailable is not NoBackend.REJECTED:
                    self.applied[service] = AppliedRoute(
                        generation=bundle.route.generation,
                        traffic_generation=bundle.route.traffic_generation,
                        denied_hosts=bundle.route.denied_hosts,
                        has_ready_pod=bundle.route.has_ready_pod,
                    )

    def _arrived(self, service: ServiceKey) -> None:
        if self._outstanding is not None:
            self._outstanding.discard(service)
