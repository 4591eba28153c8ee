"""EndpointSlices of one service, sorted out by revision, port and state."""

from collections.abc import Iterable
from dataclasses import dataclass

from tailbound.api.names import REVISION_LABEL
from tailbound.api.runtime_contract import GRPC_PORT_NAME, HTTP_PORT_NAME
from tailbound.traffic.model import Endpoint, Object


@dataclass(frozen=True)
class PortEndpoints:
    """The pods behind one named port."""

    ready: tuple[Endpoint, ...] = ()
    draining: tuple[Endpoint, ...] = ()
    """Terminating and still serving: used when nothing else is ready."""

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
    found: dict[str, dict[str, list[Object]]] = {}
    for item in slices:
        revision = ((item.get("metadata") or {}).get("labels") or {}).get(REVISION_LABEL)
        family = item.get("addressType")
        if revision and family in ("IPv4", "IPv6"):
            found.setdefault(str(revision), {}).setdefault(str(family), []).append(item)
    return {revision: _revision(families) for revision, families in found.items()}


def _revision(families: dict[str, list[Object]]) -> RevisionEndpoints:
    by_family = [
        RevisionEndpoints(_port(items, HTTP_PORT_NAME) or PortEndpoints(), _port(items, GRPC_PORT_NAME))
        for _, items in sorted(families.items())
    ]
    return next((found for found in by_family if found.http.usable()), by_family[0])


def _port(items: Iterable[Object], name: str) -> PortEndpoints | None:
    """The endpoints of the port `name`, or None if no slice lists it."""
    ready: set[Endpoint] = set()
    draining: set[Endpoint] = set()
    listed = False
    for item in items:
        numbers = [
            port["port"] for port in item.get("ports") or () if port.get("name") == name and port.get("port")
        ]
        listed = listed or bool(numbers)
        for endpoint in item.get("endpoints") or ():
            # A condition that is absent counts as ready, serving, and not terminating.
            conditions = endpoint.get("conditions") or {}
            terminating = bool(conditions.get("terminating"))
            places = {Endpoint(str(endpoint["addresses"][0]), int(number)) for number in numbers}
            if not terminating and conditions.get("ready") is not False:
                ready |= places
            elif terminating and conditions.get("serving") is not False:
                draining |= places
    # While slices are rebalanced a pod may be in two of them, with the older one out of date.
    return PortEndpoints(tuple(sorted(ready)), tuple(sorted(draining - ready))) if listed else None
