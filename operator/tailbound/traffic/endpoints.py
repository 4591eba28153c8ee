"""EndpointSlices of one service, sorted out by revision, port and state.

The operator and the gateways read them with the same rule: an endpoint is ready if it is a pod that a gateway
routes to. So a rollout waits for no pod that gets no requests, and counts none.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tailbound.api.names import REVISION_LABEL
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HTTP_PORT_NAME
from tailbound.objects.endpoint_slice import EndpointSlice
from tailbound.objects.fields import Object
from tailbound.traffic.model import Endpoint


@dataclass(frozen=True)
class PortEndpoints:
    """The pods behind one named port."""

    ready: tuple[Endpoint, ...] = ()
    draining: tuple[Endpoint, ...] = ()
    """Terminating and still serving: used when nothing else is ready."""
    ready_pods: frozenset[str] = frozenset()
    """Names of the pods that are ready; the address of an endpoint that names no pod."""

    def usable(self) -> tuple[Endpoint, ...]:
        """The ready ones, or else the draining ones."""
        return self.ready or self.draining


@dataclass(frozen=True)
class RevisionEndpoints:
    """The pods of one revision. `grpc` is None if no slice lists such a port."""

    http: PortEndpoints = PortEndpoints()
    grpc: PortEndpoints | None = None


def endpoints_by_revision(slices: Iterable[Object]) -> dict[str, RevisionEndpoints]:
    """Read the slices of one service. Of a dual-stack revision the IPv4 side is used."""
    found: dict[str, dict[str, list[EndpointSlice]]] = {}
    for item in map(EndpointSlice, slices):
        revision = item.label(REVISION_LABEL)
        if revision and item.family in ("IPv4", "IPv6"):
            found.setdefault(revision, {}).setdefault(item.family, []).append(item)
    return {revision: _revision(families) for revision, families in found.items()}


def _revision(families: dict[str, list[EndpointSlice]]) -> RevisionEndpoints:
    by_family = [
        RevisionEndpoints(_port(items, HTTP_PORT_NAME) or PortEndpoints(), _port(items, GRPC_PORT_NAME))
        for _, items in sorted(families.items())
    ]
    return next((found for found in by_family if found.http.usable()), by_family[0])


def _port(items: Iterable[EndpointSlice], name: str) -> PortEndpoints | None:
    """The endpoints of the port `name`, or None if no slice lists it."""
    ready: set[Endpoint] = set()
    draining: set[Endpoint] = set()
    pods: set[str] = set()
    listing = [(item, numbers) for item in items if (numbers := item.ports(name))]
    for item, numbers in listing:
        for entry in item.entries:
            listens = {Endpoint(entry.address, number) for number in numbers}
            if entry.ready:
                ready |= listens
                pods.add(entry.pod)
            elif entry.draining:
                draining |= listens
    if not listing:
        return None
    # While slices are rebalanced a pod may be in two of them, with the older one out of date.
    return PortEndpoints(tuple(sorted(ready)), tuple(sorted(draining - ready)), frozenset(pods))
