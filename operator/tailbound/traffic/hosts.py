"""Which service answers to which host, over all services.

The operator decides on each entry of spec.hosts and records it in status.hosts; gateways follow the record.
Truth table for one entry of service S; the first row that fits:

| the entry ...                                                        | it is      |
|----------------------------------------------------------------------|------------|
| is one of S's own cluster names                                      | Accepted   |
| ends in .svc or .svc.CLUSTER_DOMAIN                                  | Reserved   |
| is NAME.NAMESPACE of another InferenceService                        | Reserved   |
| is NAME-preview.NAMESPACE of a service that previews                 | Reserved   |
| is not for S's namespace, by the HostGrants                          | NotGranted |
| is recorded as Taken for S: a host is never inherited                | Taken      |
| is recorded as Accepted for another service (the oldest of several)  | Taken      |
| is asked for by an older service without such a record, or by one of | Taken      |
| the same age that comes first by NAMESPACE/NAME                      |            |
| otherwise                                                            | Accepted   |

A service that previews answers to the cluster names of NAME-preview too, unless an InferenceService is called
so: then they are that one's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tailbound.api.hosts import HostState, HostStatus
from tailbound.api.names import PREVIEW_SUFFIX, preview_name
from tailbound.traffic.model import ServiceKey


@dataclass(frozen=True)
class Claim:
    """The hosts that one service asks for: lower case, without trailing dot."""

    service: ServiceKey
    created: datetime
    hosts: tuple[str, ...]
    previews: bool = False
    """Whether it wants the names of its preview."""
    held: frozenset[str] = frozenset()
    """Those of `hosts` that it has, by its record: they go before every claim without a record."""
    barred: Mapping[str, str] = field(default_factory=dict)
    """Those of `hosts` that it cannot get, each with the service that has or had it; empty if unknown."""


Record = Iterable[HostStatus] | None
"""status.hosts of one service; None: nothing was decided yet, or by an earlier version."""


def to_decide(hosts: Iterable[str], record: Record) -> tuple[frozenset[str], Mapping[str, str]]:
    """What the operator makes of a record: the `held` and `barred` hosts of a claim."""
    decided = {each.host: each for each in record or ()}
    asked = [decided[host] for host in hosts if host in decided]
    held = frozenset(each.host for each in asked if each.state is HostState.ACCEPTED)
    return held, {each.host: each.owner for each in asked if each.state is HostState.TAKEN}


def to_follow(hosts: Iterable[str], record: Record) -> tuple[frozenset[str], Mapping[str, str]]:
    """What a gateway makes of a record: with one, nothing but what it accepts can be got."""
    held, _ = to_decide(hosts, record)
    return held, {} if record is None else {host: "" for host in hosts if host not in held}


@dataclass(frozen=True)
class HostOwnership:
    """The outcome for one service."""

    hosts: tuple[str, ...]
    entries: tuple[HostStatus, ...] = ()
    """The decision on each entry of spec.hosts."""
    preview: tuple[str, ...] = ()
    """Those of `hosts` where the candidate answers before it takes over."""

    @property
    def denied(self) -> tuple[str, ...]:
        """The entries of spec.hosts that the service does not answer to."""
        return tuple(each.host for each in self.entries if each.state is not HostState.ACCEPTED)


def _everyone(_namespace: str, _host: str) -> bool:
    return True


def cluster_names(service: ServiceKey, cluster_domain: str) -> tuple[str, ...]:
    """The names that every service has, most specific last."""
    short = f"{service.name}.{service.namespace}"
    return short, f"{short}.svc", f"{short}.svc.{cluster_domain}"


def preview_of(service: ServiceKey) -> ServiceKey:
    """The name under which a candidate answers before it takes over."""
    return ServiceKey(service.namespace, preview_name(service.name))


class HostClaims:
    """The claims of all services. Settles again only those whose outcome a change can have changed.

    | what changes of a service | whose outcome can change |
    |---|---|
    | anything | its own, and of those that claim one of its hosts |
    | it comes or goes | of those that claim its cluster name, and of the one whose preview is called so |
    | it previews or not | of those that claim the name of its preview |

    A change of what `permits` says can change all: `unsettle` has them all settled again.
    """

    def __init__(self, cluster_domain: str, permits: Callable[[str, str], bool] = _everyone) -> None:
        """`permits(namespace, host)`: whether HostGrants give the host to the namespace."""
        self.owned: dict[ServiceKey, HostOwnership] = {}
        self._cluster_domain = cluster_domain
        self._permits = permits
        self._claims: dict[ServiceKey, Claim] = {}
        self._claimants: dict[str, set[ServiceKey]] = {}
        self._unsettled: set[ServiceKey] = set()

    def __contains__(self, service: ServiceKey) -> bool:
        return service in self._claims

    def put(self, claim: Claim) -> None:
        """Take in what a service asks for now."""
        if self._claims.get(claim.service) == claim:
            return
        self.remove(claim.service)
        self._claims[claim.service] = claim
        for host in claim.hosts:
            self._claimants.setdefault(host, set()).add(claim.service)
        self._touch(claim)

    def remove(self, service: ServiceKey) -> None:
        """Forget a service."""
        claim = self._claims.pop(service, None)
        if claim is None:
            return
        self._touch(claim)
        for host in set(claim.hosts):
            claimants = self._claimants[host]
            claimants.discard(service)
            if not claimants:
                del self._claimants[host]

    def unsettle(self) -> None:
        """Settle every outcome again."""
        self._unsettled |= self._claims.keys()

    def settle(self) -> set[ServiceKey]:
        """Bring `owned` up to date; returns the services whose outcome is another one, gone ones included."""
        changed = set()
        for service in self._unsettled:
            claim, before = self._claims.get(service), self.owned.pop(service, None)
            after = None if claim is None else self._outcome(claim)
            if after is not None:
                self.owned[service] = after
            if after != before:
                changed.add(service)
        self._unsettled.clear()
        return changed

    def _touch(self, claim: Claim) -> None:
        service = claim.service
        names = (*claim.hosts, _short_name(service), _short_name(preview_of(service)))
        for host in names:
            self._unsettled |= self._claimants.get(host, set())
        self._unsettled.add(service)
        previewed = _previewed_by(service)
        if previewed in self._claims:
            self._unsettled.add(previewed)
            self._unsettled |= self._claimants.get(_short_name(service), set())

    def _outcome(self, claim: Claim) -> HostOwnership:
        own = cluster_names(claim.service, self._cluster_domain)
        entries = tuple(self._entry(claim, host, own) for host in dict.fromkeys(claim.hosts))
        accepted = [each.host for each in entries if each.state is HostState.ACCEPTED]
        preview = self._preview(claim)
        return HostOwnership((*dict.fromkeys((*own, *accepted)), *preview), entries, preview)

    def _entry(self, claim: Claim, host: str, own: tuple[str, ...]) -> HostStatus:
        """The decision on one entry, as the table of the module says."""
        if host in own:
            return HostStatus(host=host, state=HostState.ACCEPTED)
        if self._is_service_name(host):
            return HostStatus(host=host, state=HostState.RESERVED)
        namesake = self._named(host)
        if namesake is not None:
            return HostStatus(host=host, state=HostState.RESERVED, owner=str(namesake))
        if not self._permits(claim.service.namespace, host):
            return HostStatus(host=host, state=HostState.NOT_GRANTED)
        first = self._first(host)
        if first == claim.service:
            return HostStatus(host=host, state=HostState.ACCEPTED)
        owner = claim.barred.get(host, "") if first is None else str(first)
        return HostStatus(host=host, state=HostState.TAKEN, owner=owner)

    def _preview(self, claim: Claim) -> tuple[str, ...]:
        preview = preview_of(claim.service)
        wanted = claim.previews and preview not in self._claims
        return cluster_names(preview, self._cluster_domain) if wanted else ()

    def _is_service_name(self, host: str) -> bool:
        return host.endswith((".svc", f".svc.{self._cluster_domain}"))

    def _named(self, host: str) -> ServiceKey | None:
        """The service that has this host as a cluster name, for itself or for its preview."""
        name, _, namespace = host.rpartition(".")
        service = ServiceKey(namespace, name)
        if service in self._claims:
            return service
        previewed = self._claims.get(_previewed_by(service))
        return previewed.service if previewed is not None and previewed.previews else None

    def _first(self, host: str) -> ServiceKey | None:
        """The service that has this host, among those that can get it."""
        able = [
            claim
            for claim in (self._claims[service] for service in self._claimants[host])
            if host not in claim.barred and self._permits(claim.service.namespace, host)
        ]
        first = min(able, key=lambda each: (host not in each.held, each.created, each.service), default=None)
        return None if first is None else first.service


def _short_name(service: ServiceKey) -> str:
    return f"{service.name}.{service.namespace}"


def _previewed_by(preview: ServiceKey) -> ServiceKey:
    """The service whose preview would be called so; no service where the name is not that of a preview."""
    name = preview.name.removesuffix(PREVIEW_SUFFIX)
    return ServiceKey(preview.namespace, name if name != preview.name else "")
