"""Envoy's dynamic resources as values: what the ADS server hands out, versioned by content."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import TypeAlias

from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from tailbound.traffic.model import Route, ServiceKey

_PREFIX = "type.googleapis.com/"


class ResourceType(StrEnum):
    """The four kinds that are served, in the order in which Envoy must get additions."""

    CLUSTER = f"{_PREFIX}envoy.config.cluster.v3.Cluster"
    ENDPOINTS = f"{_PREFIX}envoy.config.endpoint.v3.ClusterLoadAssignment"
    SCOPE = f"{_PREFIX}envoy.config.route.v3.ScopedRouteConfiguration"
    ROUTE = f"{_PREFIX}envoy.config.route.v3.RouteConfiguration"


# Envoy asks for all of these, and by name for the others.
WILDCARD = frozenset({ResourceType.CLUSTER, ResourceType.SCOPE})

ResourceId: TypeAlias = tuple[ResourceType, str]


@dataclass(frozen=True)
class EnvoyResource:
    """One resource. Equal versions mean equal content, whichever process made them."""

    type: ResourceType
    name: str
    version: str
    body: Any

    @property
    def id(self) -> ResourceId:
        """What Envoy knows it by."""
        return self.type, self.name


@dataclass(frozen=True)
class Bundle:
    """The resources of one service in one state, and the route that they were made from."""

    route: Route
    resources: tuple[EnvoyResource, ...]

    @property
    def service(self) -> ServiceKey:
        """Whose they are."""
        return self.route.service

    @cached_property
    def by_id(self) -> Mapping[ResourceId, EnvoyResource]:
        """The resources by what Envoy knows them by."""
        return {resource.id: resource for resource in self.resources}


def resource(type_: ResourceType, name: str, message: Message) -> EnvoyResource:
    """Pack a message. Serialising is deterministic, so that its digest can be the version."""
    value = message.SerializeToString(deterministic=True)
    version = blake2b(value, digest_size=8).hexdigest()
    return EnvoyResource(type_, name, version, Any(type_url=type_, value=value))


def packed(message: Message) -> Any:
    """A message as an extension of another one has it."""
    extension = Any()
    extension.Pack(message, deterministic=True)
    return extension
