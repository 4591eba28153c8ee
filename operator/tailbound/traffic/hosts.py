"""Which service answers to which host, over all services.

Truth table for one entry of spec.hosts of service S:

| the entry ...                                         | S answers to it |
|-------------------------------------------------------|-----------------|
| is one of S's own cluster names                       | yes (already)   |
| ends in .svc or .svc.CLUSTER_DOMAIN                   | no              |
| is NAME.NAMESPACE of another InferenceService         | no              |
| is claimed by an older service, or by one of the same | no              |
| age that comes first by NAMESPACE/NAME                |                 |
| is NAME-preview.NAMESPACE of a service that previews  | no              |
| otherwise                                             | yes             |

A service that previews answers to the cluster names of NAME-preview too, unless an InferenceService is called
so: then they are that one's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tailbound.api.names import preview_name
from tailbound.traffic.model import ServiceKey


@dataclass(frozen=True)
class Claim:
    """The hosts that one service asks for: lower case, without trailing dot."""

    service: ServiceKey
    created: datetime
    hosts: tuple[str, ...]
    previews: bool = False
    """It wants the names of its preview."""


@dataclass(frozen=True)
class Ownership:
    """The outcome for one service."""

    hosts: tuple[str, ...]
    denied: tuple[str, ...]
    preview: tuple[str, ...] = ()
    """Those of `hosts` where the candidate answers before it takes over."""


def cluster_names(service: ServiceKey, cluster_domain: str) -> tuple[str, ...]:
    """The names that every service has, most specific last."""
    short = f"{service.name}.{service.namespace}"
    return short, f"{short}.svc", f"{short}.svc.{cluster_domain}"


def settle_hosts(claims: Iterable[Claim], cluster_domain: str) -> Mapping[ServiceKey, Ownership]:
    """Give every host to exactly one service."""
    ordered = sorted(claims, key=lambda claim: (claim.created, claim.service))
    services = {claim.service for claim in ordered}
    previews = {
        claim.service: cluster_names(preview, cluster_domain)
        for claim in ordered
        if claim.previews and (preview := preview_of(claim.service)) not in services
    }
    short_names = {f"{service.name}.{service.namespace}" for service in services}
    short_names |= {names[0] for names in previews.values()}
    taken: dict[str, ServiceKey] = {}
    settled = {claim.service: _settle(claim, cluster_domain, short_names, taken) for claim in ordered}
    for service, names in previews.items():
        own = settled[service]
        settled[service] = Ownership((*own.hosts, *names), own.denied, names)
    return settled


def preview_of(service: ServiceKey) -> ServiceKey:
    """The name under which a candidate answers before it takes over."""
    return ServiceKey(service.namespace, preview_name(service.name))


def _settle(
    claim: Claim, cluster_domain: str, short_names: set[str], taken: dict[str, ServiceKey]
) -> Ownership:
    own = cluster_names(claim.service, cluster_domain)
    granted: list[str] = list(own)
    denied: list[str] = []
    for host in claim.hosts:
        if host in granted:
            continue
        reserved = host.endswith((".svc", f".svc.{cluster_domain}")) or host in short_names
        if reserved or taken.setdefault(host, claim.service) != claim.service:
            denied.append(host)
        else:
            granted.append(host)
    return Ownership(tuple(granted), tuple(denied))
