"""Which service answers to which host, over all services.

Truth table for one entry of spec.hosts of service S:

| the entry ...                                         | S answers to it |
|-------------------------------------------------------|-----------------|
| is one of S's own cluster names                       | yes (already)   |
| ends in .svc or .svc.CLUSTER_DOMAIN                   | no              |
| is NAME.NAMESPACE of another InferenceService         | no              |
| is claimed by an older service, or by one of the same | no              |
| age that comes first by NAMESPACE/NAME                |                 |
| otherwise                                             | yes             |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tailbound.traffic.model import ServiceKey


@dataclass(frozen=True)
class Claim:
    """The hosts that one service asks for: lower case, without trailing dot."""

    service: ServiceKey
    created: datetime
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Ownership:
    """The outcome for one service."""

    hosts: tuple[str, ...]
    denied: tuple[str, ...]


def cluster_names(service: ServiceKey, cluster_domain: str) -> tuple[str, ...]:
    """The names that every service has, most specific last."""
    short = f"{service.name}.{service.namespace}"
    return short, f"{short}.svc", f"{short}.svc.{cluster_domain}"


def settle_hosts(claims: Iterable[Claim], cluster_domain: str) -> Mapping[ServiceKey, Ownership]:
    """Give every host to exactly one service."""
    ordered = sorted(claims, key=lambda claim: (claim.created, claim.service))
    short_names = {f"{claim.service.name}.{claim.service.namespace}" for claim in ordered}
    taken: dict[str, ServiceKey] = {}
    return {claim.service: _settle(claim, cluster_domain, short_names, taken) for claim in ordered}


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
