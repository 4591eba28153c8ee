"""What Envoy should have: the newest bundle of every service, except where Envoy refused a part of it."""

from collections.abc import Iterable, Mapping, Set

from tailbound.gateway.resources import Bundle, Resource, ResourceId, ResourceType
from tailbound.gateway.routes import former_bundle, refused_bundle
from tailbound.traffic.model import Route, ServiceKey, Unavailable


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
        self._resources: dict[ResourceType, dict[str, Resource]] = {type_: {} for type_ in ResourceType}
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

    def refuse(self, resource: Resource, message: str) -> set[ResourceId]:
        """Envoy refuses this very content: quarantine the service that it belongs to, and nothing else."""
        self._refused.setdefault(resource.id, {})[resource.version] = message
        owner = self._owners.get(resource.id)
        return set() if owner is None else self._settle([owner])

    def acknowledged(self, service: ServiceKey) -> None:
        """Envoy has all of the service's effective bundle: what to return to if the next one is bad."""
        bundle = self._effective[service]
        if bundle.route.unavailable is not Unavailable.REJECTED:
            self._good[service] = bundle

    def services(self) -> Set[ServiceKey]:
        """Every service that is configured."""
        return self._desired.keys()

    def names(self, type_: ResourceType) -> Set[str]:
        """The names of all resources of a kind that Envoy should have."""
        return self._resources[type_].keys()

    def get(self, type_: ResourceType, name: str) -> Resource | None:
        """The resource that Envoy should have under this name, or None."""
        return self._resources[type_].get(name)

    def owner(self, type_: ResourceType, name: str) -> ServiceKey | None:
        """Whose resource it is."""
        return self._owners.get((type_, name))

    def effective(self, service: ServiceKey) -> Bundle | None:
        """What Envoy should have for the service; None if nothing."""
        return self._effective.get(service)

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
        """Truth table:

        | newest refused | last good one  | stand-in refused | effective                              |
        |----------------|----------------|------------------|----------------------------------------|
        | gone           |                |                  | nothing                                |
        | no             |                |                  | the newest                             |
        | yes            | there          |                  | the last good one, for the newest hosts |
        | yes            | none / refused | no               | a stand-in that answers 503            |
        | yes            | none / refused | yes              | nothing                                |
        """
        newest = self._desired.get(service)
        if newest is None:
            return None
        if not self._refusals(newest.resources):
            return newest
        scopes = [
            resource
            for resource in newest.resources
            if resource.type is ResourceType.SCOPE and not self._refusals([resource])
        ]
        good = self._good.get(service)
        former = former_bundle(good, newest.route) if good is not None else None
        fallbacks = (former, refused_bundle(newest.route))
        for fallback in fallbacks:
            if fallback is not None:
                rest = [item for item in fallback.resources if item.type is not ResourceType.SCOPE]
                if not self._refusals(rest):
                    return Bundle(fallback.route, (*scopes, *rest))
        return None

    def _refusals(self, resources: Iterable[Resource]) -> list[str]:
        found = (self._refused.get(item.id, {}).get(item.version) for item in resources)
        return [message for message in found if message is not None]
