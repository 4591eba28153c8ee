"""What a gateway of any make must do for one InferenceService: the output of the projection.

Provider-neutral: Envoy's clusters and routes are built from it in `tailbound.gateway`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS


class ServiceKey(NamedTuple):
    """Which InferenceService; written NAMESPACE/NAME."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """NAMESPACE/NAME, which `/observed` and Envoy's route names are written with."""
        return f"{self.namespace}/{self.name}"


class Endpoint(NamedTuple):
    """The address and port of one pod."""

    address: str
    port: int


class NoBackend(StrEnum):
    """Why a known service has no backend at all."""

    STOPPED = "Stopped"  # spec.stopped, and no traffic is assigned
    NOT_STARTED = "NotStarted"  # no revision was given traffic yet
    REJECTED = "Rejected"  # its configuration is refused, and none before it was good


@dataclass(frozen=True)
class RouteBackend:
    """One revision: its share of the requests, and where its pods listen now."""

    revision: str
    weight: int
    """Percent, as in status.traffic."""
    share: int
    """What it gets now, relative to the others' shares: its weight, or 0 while only others are ready."""
    http: tuple[Endpoint, ...]
    grpc: tuple[Endpoint, ...] | None
    """The endpoints for gRPC; None if no pod of the revision offers a gRPC port."""


@dataclass(frozen=True)
class Preview:
    """Names under which the candidate answers before it takes over."""

    hosts: tuple[str, ...]
    backend: RouteBackend | None
    """The backend of the candidate; None if there is none."""
    refused: bool = False
    """The configuration with the candidate in it is refused: no revision answers, rather than another one."""


@dataclass(frozen=True)
class Route:
    """Everything about one service that a gateway has to know."""

    service: ServiceKey
    created: datetime
    generation: int
    """metadata.generation that it was made from."""
    traffic_generation: int
    """status.traffic.generation that `backends` was made from; 0: there was none."""
    hosts: tuple[str, ...]
    """Names it answers to: lower case, without port and trailing dot. No two routes share one."""
    denied_hosts: tuple[str, ...]
    """Entries of spec.hosts that it may not answer to: others own them."""
    backends: tuple[RouteBackend, ...]
    unavailable: NoBackend | None
    """Set exactly if `backends` is empty."""
    timeout: timedelta
    """The most time of one request, from its last byte received to the last byte of the response."""
    latency_target: timedelta | None
    """spec.sla.latency.p99."""
    error_target: float | None = None
    """spec.sla.errorRate, from 0 to 1."""
    inference_paths: tuple[str, ...] = DEFAULT_INFERENCE_PATHS
    """Requests to these are counted; see `api.inference_paths`."""
    sheds: bool = False
    """Whether a pod is to refuse what it could only answer later than that. Needs the target."""
    preview: Preview | None = None

    @property
    def has_ready_pod(self) -> bool:
        """A revision that gets requests has a ready pod."""
        return any(each.share and (each.http or each.grpc) for each in self.backends)


@dataclass(frozen=True)
class RouteRejection:
    """The newest state of a service that cannot be projected, or that the gateway refused."""

    generation: int
    traffic_generation: int
    message: str


@dataclass(frozen=True)
class Projected:
    """The route to serve: made from the newest state, or from the last good one if that is rejected."""

    route: Route
    rejection: RouteRejection | None = None
