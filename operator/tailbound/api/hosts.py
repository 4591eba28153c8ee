"""Hosts: the decision on each entry of spec.hosts, and HostGrant, which gives hosts to namespaces."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from tailbound.api.meta import DNS_LABEL, ObjectMeta
from tailbound.api.schema import SET, Model, matches


class HostState(StrEnum):
    """The decision on one entry of spec.hosts."""

    ACCEPTED = "Accepted"
    TAKEN = "Taken"
    NOT_GRANTED = "NotGranted"
    RESERVED = "Reserved"


class HostStatus(Model):
    """One entry of spec.hosts, and whether the service answers to it."""

    host: Annotated[str, StringConstraints(max_length=253)]
    """The host."""

    state: HostState
    """Accepted: the service answers to it. Taken: another service had it first; it stays taken for this
    service until the entry is removed and added again. NotGranted: no HostGrant gives it to the namespace.
    Reserved: it is a name of another service inside the cluster."""

    owner: Annotated[str, StringConstraints(max_length=512)] = ""
    """NAMESPACE/NAME of the InferenceService that has it, or had it last, if it is Taken or Reserved."""


NamespacePattern = Annotated[
    str,
    StringConstraints(max_length=64),
    matches(
        rf"\*|{DNS_LABEL}|[a-z0-9][-a-z0-9]{{0,62}}\*",
        "'{value}' names no namespaces: write a name, the beginning of names and '*' as in team-a-*, or '*' "
        "for every namespace",
    ),
]

HostPattern = Annotated[
    str,
    StringConstraints(max_length=255),
    matches(
        rf"\*|(?:\*\.|{DNS_LABEL}\.)(?:{DNS_LABEL}\.)*[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?",
        "'{value}' names no hosts: write a full DNS name in lower case, '*.' and such a name for everything "
        "below it, or '*' for every host",
    ),
]


class HostGrantSpec(Model):
    """Which namespaces may use which hosts."""

    namespaces: Annotated[tuple[NamespacePattern, ...], Field(min_length=1, max_length=256), SET]
    """Namespaces whose services may use the hosts. A '*' at the end stands for any ending."""

    hosts: Annotated[tuple[HostPattern, ...], Field(min_length=1, max_length=256), SET]
    """Hosts that services of these namespaces may list in spec.hosts. *.example.com covers every name below
    example.com, at any depth, and not example.com itself."""

    def covers(self, host: str) -> bool:
        """Whether this grant is about the host."""
        return any(_host_matches(pattern, host) for pattern in self.hosts)

    def names(self, namespace: str) -> bool:
        """Whether this grant is for the namespace."""
        return any(_namespace_matches(pattern, namespace) for pattern in self.namespaces)


class HostGrant(Model):
    """HostGrant gives hosts to namespaces: a host that HostGrants cover is for their namespaces alone.

    A host that no HostGrant covers is for every namespace, or for none if the value hosts.policy of the chart
    is granted.
    """

    metadata: ObjectMeta
    spec: HostGrantSpec


class HostPolicy(StrEnum):
    """What holds for a host that no HostGrant covers: every namespace may use it, or none."""

    OPEN = "open"
    GRANTED = "granted"


def permits(policy: HostPolicy, grants: Iterable[HostGrantSpec], namespace: str, host: str) -> bool:
    """Whether services of the namespace may use the host.

    | grants that cover the host | policy | may use it |
    |---|---|---|
    | some, one names the namespace | any | yes |
    | some, none names the namespace | any | no |
    | none | open | yes |
    | none | granted | no |
    """
    covering = [grant for grant in grants if grant.covers(host)]
    if not covering:
        return policy is HostPolicy.OPEN
    return any(grant.names(namespace) for grant in covering)


def _host_matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*"):
        return pattern == "*" or host.endswith(pattern[1:])
    return host == pattern


def _namespace_matches(pattern: str, namespace: str) -> bool:
    if pattern.endswith("*"):
        return namespace.startswith(pattern[:-1])
    return namespace == pattern
