"""What Envoy should have: the newest bundle of every service, except where Envoy refused a part of it."""

from collections.abc import Iterable, Mapping, Set
from itertools import chain

from tailbound.gateway.resources import Bundle, EnvoyResource, ResourceId, ResourceType
from tailbound.gateway.routes import bundle_of, fallbacks
from tailbound.traffic.model import NoBackend, Route, ServiceKey


class Configuration:
    """Outlives the streams: what an Envoy refused or acknowledged is known to the next one.

    `complete` turns True with the first full configuration; until then nothing may be sent, because Envoy
    takes what is absent as deleted.
    """

    def __init__(self) -> None:
        self.complete = False
        self._desired: dict[ServiceKey, Bundle] = {}
        self._good: dict[ServiceKey, Bundle] = {}
        self._effective: dict[ServiceKey, Bundle] = {}
        self._refused: dict[ResourceId, dict[str, str]] = {}
        self._resources: dict[ResourceType, dict[str, EnvoyResource]] = {type_: {} for type_ in ResourceType}
        self._owners: dict[ResourceId, ServiceKey] = {}

    def update(self, changes: Mapping[ServiceKey, Bundle | None]) -> set[ResourceId]:
        """Take in the newest state of some services (None: gone); returns what may be different now."""
        for service, bundle in changes.items():
            if bundle is None:
                self._desired.pop(service, None)
                self._good.pop(service, None)
            else:
                self._desired[service] = bundle
        return self._settle(changes)

    def refuse(self, resource: EnvoyResource, message: str) -> set[ResourceId]:
        """Envoy refuses this very content: quarantine the service that it belongs to, and nothing else."""
        self._refused.setdefault(resource.id, {})[resource.version] = message
        owner = self._owners.get(resource.id)
        return set() if owner is None else self._settle([owner])

    def acknowledged(self, service: ServiceKey) -> None:
        """Envoy has all of the service's effective bundle: what to return to if the next one is bad."""
        bundle = self._effective[service]
        if bundle.route.unavailable is not NoBackend.REJECTED:
            self._good[service] = bundle

    def services(self) -> Set[ServiceKey]:
        """Every service that is configured."""
        return self._desired.keys()

    def names(self, type_: ResourceType) -> Set[str]:
        """The names of all resources of a kind that Envoy should have."""
        return self._resources[type_].keys()

    def get(self, type_: ResourceType, name: str) -> EnvoyResource | None:
        """The resource that Envoy should have under this name, or None."""
        return self._resources[type_].get(name)

    def owner(self, type_: ResourceType, name: str) -> ServiceKey | None:
        """Whose resource it is."""
        return self._owners.get((type_, name))

    def effective(self, service: ServiceKey) -> Bundle | None:
        """What Envoy should have for the service; None if nothing."""
        return self._effective.get(service)

    def routes(self) -> list[Route]:
        """The routes of all services that Envoy should have."""
        return [bundle.route for bundle in self._effective.values()]

    def desired(self, service: ServiceKey) -> Bundle | None:
        """The newest state of the service, whether Envoy takes it or not."""
        return self._desired.get(service)

    def refusal(self, service: ServiceKey) -> str | None:
        """Why Envoy does not take the newest state of the service; None if it did not refuse it."""
        bundle = self._desired.get(service)
        return None if bundle is None else next(iter(self._refusals(bundle.resources)), None)

    def last_good(self) -> list[Route]:
        """The routes that Envoy acknowledged last, of the services that still exist."""
        return [bundle.route for _, bundle in sorted(self._good.items())]

    def _settle(self, services: Iterable[ServiceKey]) -> set[ResourceId]:
        """Recompute the effective bundles. What one service gives up and another takes is no removal."""
        different: set[ResourceId] = set()
        for service in services:
            before, after = self._effective.get(service), self._choose(service)
            if before is not None:
                different |= self._withdraw(service, before)
            if after is None:
                self._effective.pop(service, None)
            else:
                self._effective[service] = after
                different |= self._enter(service, after)
        return different

    def _withdraw(self, service: ServiceKey, bundle: Bundle) -> set[ResourceId]:
        mine = {resource.id for resource in bundle.resources if self._owners.get(resource.id) == service}
        for type_, name in mine:
            del self._resources[type_][name]
            del self._owners[type_, name]
        return mine

    def _enter(self, service: ServiceKey, bundle: Bundle) -> set[ResourceId]:
        for resource in bundle.resources:
            self._resources[resource.type][resource.name] = resource
            self._owners[resource.id] = service
        return set(bundle.by_id)

    def _choose(self, service: ServiceKey) -> Bundle | None:
        """Truth table; a name whose scope is refused leads nowhere in any case:

        | the newest state     | effective                                 |
        |----------------------|-------------------------------------------|
        | gone                 | nothing                                   |
        | not refused          | the newest                                |
        | refused              | the first of `fallbacks` that is not      |
        | and all of them too  | nothing                                   |
        """
        newest = self._desired.get(service)
        if newest is None:
            return None
        good = self._good.get(service)
        former = fallbacks(newest.route, good.route if good is not None else None)
        offered = chain([newest], (bundle_of(route) for route in former))
        return next((found for each in offered if (found := self._accepted(each)) is not None), None)

    def _accepted(self, bundle: Bundle) -> Bundle | None:
        """The bundle without scopes that are refused; None if anything else of it is."""
        if not self._refusals(bundle.resources):
            return bundle
        kept = [
            item
            for item in bundle.resources
            if item.type is not ResourceType.SCOPE or not self._refusals([item])
        ]
        return None if self._refusals(kept) else Bundle(bundle.route, tuple(kept))

    def _refusals(self, resources: Iterable[EnvoyResource]) -> list[str]:
        found = (self._refused.get(item.id, {}).get(item.version) for item in resources)
        return [message for message in found if message is not None]
