"""The client side of delta ADS, as Envoy behaves: subscribes to what it is told of, refuses what is bad."""

from collections.abc import Callable, Iterable

from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.delta import DeltaSession, Nack
from tailbound.gateway.resources import Bundle, ResourceId, ResourceType
from tailbound.gateway.routes import bundle_of
from tailbound.traffic.model import Route, ServiceKey

CLUSTER, ENDPOINTS, SCOPE, ROUTE = ResourceType


class FakeEnvoy:
    """Holds a configuration and one stream. `refuses` decides about a resource by kind, name and content."""

    def __init__(
        self,
        configuration: Configuration,
        refuses: Callable[[ResourceType, str, bytes], bool] = lambda *_: False,
    ) -> None:
        self.configuration = configuration
        self.refuses = refuses
        self.has: dict[ResourceType, dict[str, tuple[str, bytes]]] = {type_: {} for type_ in ResourceType}
        self.refusals: list[Nack] = []
        self.responses = 0
        self._subscribed: dict[ResourceType, set[str]] = {type_: set() for type_ in ResourceType}
        self.violations: list[str] = []
        self.connect()

    def connect(self, *, restarted: bool = False) -> None:
        """Open a stream, anew or after a break."""
        if restarted:
            self.has = {type_: {} for type_ in ResourceType}
            self._subscribed = {type_: set() for type_ in ResourceType}
        self.session = DeltaSession(self.configuration)
        self._asked: set[ResourceType] = set()
        self._requests: list[DeltaDiscoveryRequest] = []
        for type_ in (CLUSTER, ENDPOINTS, SCOPE, ROUTE):
            names = sorted(self._subscribed[type_])
            if type_ in (CLUSTER, SCOPE) or names:
                self._ask(type_, subscribe=names)

    def update(self, *routes: Route, gone: Iterable[ServiceKey] = ()) -> None:
        """Configure services, and let the conversation come to rest."""
        self.announce(*routes, gone=gone)
        self.settle()

    def announce(self, *routes: Route, gone: Iterable[ServiceKey] = ()) -> None:
        """Configure services, and let nothing follow yet."""
        changes: dict[ServiceKey, Bundle | None] = {route.service: bundle_of(route) for route in routes}
        changes |= dict.fromkeys(gone)
        changed = self.configuration.update(changes)
        self.configuration.complete = True
        self.session.configured(changed, changes)

    def settle(self) -> None:
        """Talk until there is nothing left to say."""
        for _ in range(10_000):
            waiting = bool(self._requests)
            if waiting:
                self.refusals += self.session.receive(self._requests.pop(0))
            responses = self.session.responses()
            if not responses and not waiting:
                return
            for response in responses:
                self.take(response)
        raise AssertionError("the conversation does not come to rest")

    def names(self, type_: ResourceType) -> set[str]:
        """What it has of one kind."""
        return set(self.has[type_])

    def versions(self) -> dict[ResourceId, str]:
        """Everything it has."""
        return {
            (type_, name): version for type_, held in self.has.items() for name, (version, _) in held.items()
        }

    def take(self, response: DeltaDiscoveryResponse) -> None:
        """Apply what is good, answer for the whole."""
        self.responses += 1
        type_ = ResourceType(response.type_url)
        bad = [
            item.name for item in response.resources if self.refuses(type_, item.name, item.resource.value)
        ]
        for name in response.removed_resources:
            self.has[type_].pop(name, None)
        for item in response.resources:
            if item.name not in bad:
                self.has[type_][item.name] = (item.version, item.resource.value)
        self._requests.append(DeltaDiscoveryRequest(type_url=type_, response_nonce=response.nonce))
        if bad:
            self._requests[-1].error_detail.message = f"bad: {', '.join(bad)}"
        if type_ is CLUSTER:
            self._follow(ENDPOINTS, self.names(CLUSTER))
        if type_ is SCOPE:
            scopes = [ScopedRouteConfiguration.FromString(body) for _, body in self.has[SCOPE].values()]
            self._follow(ROUTE, {scope.route_configuration_name for scope in scopes})
        self._check()

    def _follow(self, type_: ResourceType, wanted: set[str]) -> None:
        subscribed = self._subscribed[type_]
        for name in subscribed - wanted:
            self.has[type_].pop(name, None)
        if wanted != subscribed:
            self._ask(type_, subscribe=sorted(wanted - subscribed), unsubscribe=sorted(subscribed - wanted))

    def _ask(
        self, type_: ResourceType, subscribe: Iterable[str] = (), unsubscribe: Iterable[str] = ()
    ) -> None:
        request = DeltaDiscoveryRequest(
            type_url=type_, resource_names_subscribe=subscribe, resource_names_unsubscribe=unsubscribe
        )
        if type_ not in self._asked:
            self._asked.add(type_)
            versions = {name: version for name, (version, _) in self.has[type_].items()}
            request.initial_resource_versions.update(versions)
        subscribed = self._subscribed[type_]
        subscribed |= set(subscribe)
        subscribed -= set(unsubscribe)
        self._requests.append(request)

    def _check(self) -> None:
        """A route must never lead to a cluster that Envoy does not have, or that has no endpoints yet."""
        for name, (_, body) in self.has[ROUTE].items():
            for host in RouteConfiguration.FromString(body).virtual_hosts:
                for route in host.routes:
                    for cluster in route.route.weighted_clusters.clusters:
                        if cluster.name not in self.has[CLUSTER]:
                            self.violations.append(f"{name} leads to {cluster.name}, which is not there")
                        elif cluster.name not in self.has[ENDPOINTS]:
                            self.violations.append(f"{name} leads to {cluster.name}, still without endpoints")
