"""Projects InferenceServices and EndpointSlices to routes. Pure: state in, changes out; no I/O, no clock."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tailbound.api.traffic import TrafficStatus
from tailbound.objects.fields import Object
from tailbound.traffic.endpoints import PortEndpoints, RevisionEndpoints, endpoints_by_revision
from tailbound.traffic.hosts import Claim, HostClaims, HostOwnership, cluster_names, to_follow
from tailbound.traffic.intent import RoutingSpec, key_of, read_intent
from tailbound.traffic.model import (
    Endpoint,
    NoBackend,
    Preview,
    Projected,
    Route,
    RouteBackend,
    RouteRejection,
    ServiceKey,
)

_BEGINNING = datetime.fromtimestamp(0, UTC)


class Projector:
    """Projects what changed, service by service, and remembers the last good state of each.

    `slices_of` gives the EndpointSlices of one service. `last_good` are the routes of a former life; they
    stand in for services whose newest state is rejected, and tell which revisions served before.
    """

    def __init__(
        self,
        cluster_domain: str,
        slices_of: Callable[[ServiceKey], Iterable[Object]],
        last_good: Iterable[Route] = (),
    ) -> None:
        self._cluster_domain = cluster_domain
        self._slices_of = slices_of
        self._intents: dict[ServiceKey, RoutingSpec] = {}
        self._rejections: dict[ServiceKey, RouteRejection] = {}
        self._routes: dict[ServiceKey, Route] = {route.service: route for route in last_good}
        self._hosts = HostClaims(cluster_domain)
        self._dirty: set[ServiceKey] = set()
        for route in self._routes.values():
            self._hosts.put(_claim_of(route, cluster_domain))

    def service_changed(self, obj: Object) -> None:
        """Take in a new or changed InferenceService."""
        key = key_of(obj)
        self._dirty.add(key)
        read = read_intent(obj)
        if isinstance(read, RouteRejection):
            self._rejections[key] = read
            if key not in self._hosts:
                self._hosts.put(Claim(key, _BEGINNING, ()))
            return
        self._rejections.pop(key, None)
        self._intents[key] = read
        held, barred = to_follow(read.hosts, read.record)
        self._hosts.put(Claim(key, read.created, read.hosts, read.previews, held, barred))

    def service_gone(self, key: ServiceKey) -> None:
        """Forget a deleted InferenceService."""
        self._dirty.add(key)
        self._intents.pop(key, None)
        self._rejections.pop(key, None)
        self._hosts.remove(key)

    def slices_changed(self, key: ServiceKey) -> None:
        """One of the service's EndpointSlices came, changed or went."""
        self._dirty.add(key)

    def project(self) -> dict[ServiceKey, Projected | None]:
        """What every service that changed since the last call is to be served by; None: it is gone."""
        self._dirty |= self._hosts.settle()
        changes = {key: self._project(key) for key in sorted(self._dirty)}
        self._dirty.clear()
        return changes

    def _project(self, key: ServiceKey) -> Projected | None:
        """Truth table:

        | rejected | read before | projected in a former life | served by                          |
        |----------|-------------|----------------------------|------------------------------------|
        | no       | (now)       |                            | the newest state                   |
        | yes      | yes         |                            | the last good one, pods up to date |
        | yes      | no          | yes                        | that route, pods up to date        |
        | yes      | no          | no                         | a stand-in that answers 503        |
        | gone     |             |                            | nothing                            |
        """
        intent, rejection = self._intents.get(key), self._rejections.get(key)
        if intent is None and rejection is None:
            self._routes.pop(key, None)
            return None
        found = endpoints_by_revision(self._slices_of(key))
        before = self._routes.get(key)
        owned = self._hosts.owned[key]
        if intent is not None:
            route = route_of(intent, owned, found, before)
        elif before is not None:
            backends = _share(_weights(before), found)
            route = replace(before, hosts=owned.hosts, denied_hosts=owned.denied, backends=backends)
        else:
            return Projected(_stand_in(key, owned), rejection)
        self._routes[key] = route
        return Projected(route, rejection)


def _claim_of(route: Route, cluster_domain: str) -> Claim:
    own = cluster_names(route.service, cluster_domain)
    preview = route.preview.hosts if route.preview is not None else ()
    hosts = [host for host in route.hosts if host not in (*own, *preview)]
    return Claim(
        route.service,
        route.created,
        (*hosts, *route.denied_hosts),
        bool(preview),
        held=frozenset(hosts),
        barred=dict.fromkeys(route.denied_hosts, ""),
    )


def _stand_in(service: ServiceKey, owned: HostOwnership) -> Route:
    """A route that keeps the service's own names, so that callers learn what is wrong."""
    return Route(
        service=service,
        created=_BEGINNING,
        generation=0,
        traffic_generation=0,
        hosts=owned.hosts,
        denied_hosts=owned.denied,
        backends=(),
        unavailable=NoBackend.REJECTED,
        timeout=timedelta(seconds=1),
        latency_target=None,
    )


def route_of(
    intent: RoutingSpec, owned: HostOwnership, found: Mapping[str, RevisionEndpoints], before: Route | None
) -> Route:
    """The route of one valid service. `before` is its route so far.

    | status.traffic | a route before             | weights                        |
    |----------------|----------------------------|--------------------------------|
    | there          | and `_is_held`             | the former ones                |
    | there          |                            | those of status.traffic        |
    | lost           | of the same object         | the former ones, until rewritten |
    | lost           | none, or of a former object | none                           |
    """
    traffic = intent.traffic
    if traffic is None:
        held = before is not None and before.created == intent.created
    else:
        held = before is not None and _is_held(traffic, before, found)
    if held and before is not None:
        generation, weights = before.traffic_generation, _weights(before)
    elif traffic is not None:
        generation, weights = traffic.generation, {item.revision: item.weight for item in traffic.backends}
    else:
        generation, weights = 0, {}
    nothing = NoBackend.STOPPED if intent.stopped else NoBackend.NOT_STARTED
    return Route(
        service=intent.service,
        created=intent.created,
        generation=intent.generation,
        traffic_generation=generation,
        hosts=owned.hosts,
        denied_hosts=owned.denied,
        backends=_share(weights, found),
        unavailable=None if weights else nothing,
        timeout=intent.timeout,
        latency_target=intent.latency_target,
        error_target=intent.error_target,
        inference_paths=intent.inference_paths,
        sheds=intent.sheds,
        preview=_preview(owned, intent.candidate, found),
    )


def _preview(
    owned: HostOwnership, candidate: str | None, found: Mapping[str, RevisionEndpoints]
) -> Preview | None:
    if not owned.preview:
        return None
    return Preview(owned.preview, _backend(candidate, 100, 100, found) if candidate is not None else None)


def _backend(revision: str, weight: int, share: int, found: Mapping[str, RevisionEndpoints]) -> RouteBackend:
    pods = _usable(found, revision)
    return RouteBackend(revision, weight, share, pods.http.usable(), _grpc(pods))


def _is_held(traffic: TrafficStatus, before: Route, found: Mapping[str, RevisionEndpoints]) -> bool:
    """Whether a new share of the traffic must wait.

    It may reach us before the EndpointSlices that it was decided on. Until one of its revisions has a ready
    pod here, the former share stays, if that one still has a ready pod.
    """
    if traffic.generation == before.traffic_generation or not traffic.backends:
        return False
    weighted = {item.revision for item in traffic.backends if item.weight}
    former = {backend.revision for backend in before.backends if backend.weight}
    return not _ready(weighted, found) and bool(_ready(former, found))


def _share(weights: Mapping[str, int], found: Mapping[str, RevisionEndpoints]) -> tuple[RouteBackend, ...]:
    """Truth table of the weights:

    | some weighted revision has a ready pod | some has a draining pod | who gets requests                |
    |----------------------------------------|-------------------------|----------------------------------|
    | yes                                    |                         | those with ready pods            |
    | no                                     | yes                     | those with draining pods         |
    | no                                     | no                      | none: all, so that 503 follows |
    """
    weighted = {revision for revision, weight in weights.items() if weight}
    takers = _ready(weighted, found) or _draining(weighted, found) or weighted
    return tuple(
        _backend(revision, weights[revision], weights[revision] if revision in takers else 0, found)
        for revision in sorted(weights)
    )


def _weights(route: Route) -> dict[str, int]:
    return {backend.revision: backend.weight for backend in route.backends}


def _usable(found: Mapping[str, RevisionEndpoints], revision: str) -> RevisionEndpoints:
    return found.get(revision, RevisionEndpoints(PortEndpoints(), None))


def _grpc(endpoints: RevisionEndpoints) -> tuple[Endpoint, ...] | None:
    return None if endpoints.grpc is None else endpoints.grpc.usable()


def _ready(revisions: Iterable[str], found: Mapping[str, RevisionEndpoints]) -> set[str]:
    return {revision for revision in revisions if _usable(found, revision).http.ready}


def _draining(revisions: Iterable[str], found: Mapping[str, RevisionEndpoints]) -> set[str]:
    return {revision for revision in revisions if _usable(found, revision).http.draining}
