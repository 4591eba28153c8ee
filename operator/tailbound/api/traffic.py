"""`status.traffic` and the gateway's `/observed` document: the whole protocol between operator and gateways.

The operator decides weights and writes `status.traffic`; gateways only project it, together with the
InferenceService's routing fields and the EndpointSlices of its revisions, into Envoy. `/observed` tells what
Envoy has acknowledged. Frozen: gateways of one release must read what the operator of another wrote.
"""

from typing import Annotated, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tailbound.api.schema import list_map


class _Document(BaseModel):
    """Base of documents that are immutable, have camelCase keys, and ignore fields of newer writers."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Backend(_Document):
    """One revision and its share of the requests."""

    revision: str = Field(
        description="Name of the ControllerRevision, and of its Deployment and Service.", max_length=253
    )
    weight: Annotated[int, Field(ge=0, le=100, description="Percent of the requests.")]


class TrafficStatus(_Document):
    """`status.traffic`. Weights add up to 100; no backends means that nothing is to be served."""

    generation: Annotated[int, Field(ge=1, description="Rises with every change of `backends`.")]
    backends: Annotated[
        tuple[Backend, ...],
        Field(max_length=16, description="Revisions that get requests."),
        list_map("revision"),
    ] = ()


class AppliedRoute(_Document):
    """A state of one service that Envoy has acknowledged, or that it refused."""

    generation: int = Field(description="metadata.generation of the InferenceService that was projected.")
    traffic_generation: int = Field(
        description="status.traffic.generation that was projected; 0 if there was none."
    )
    denied_hosts: tuple[str, ...] = Field(
        default=(), description="Entries of spec.hosts that the service does not answer to."
    )
    has_ready_pod: bool = Field(
        default=True,
        description="A revision that gets requests has a ready pod; otherwise each request gets a 503.",
    )


class RejectedRoute(AppliedRoute):
    """The newest state, when Envoy or the projection refused it. The last applied one stays in force."""

    message: str


_Count = Annotated[int, Field(ge=0)]


class RequestClasses(_Document):
    """Finished requests of one service and revision since Envoy started, each in exactly one class.

    A revision that is absent from an answer has counted nothing. See `tailbound.gateway.counting`.
    """

    good: _Count = 0
    slow: _Count = 0
    timed_out: _Count = 0
    shed: _Count = 0
    failed: _Count = 0
    abandoned: _Count = 0
    other: _Count = 0


class ServiceObservation(_Document):
    """What one gateway pod does for one service."""

    applied: AppliedRoute | None = None
    rejected: RejectedRoute | None = None
    counters: dict[str, RequestClasses] | None = Field(
        default=None,
        description="By revision; absent unless counters were asked for and Envoy could be read.",
    )


MOST_ASKED: Final = 500
"""Services that one POST /observed may name: its body stays below 70 kB with the longest names."""


class ObservedQuestion(_Document):
    """Body of POST /observed: the services that are asked for, and whether their counters are wanted."""

    services: Annotated[tuple[str, ...], Field(max_length=MOST_ASKED, description="NAMESPACE/NAME each.")]
    counters: bool = Field(
        default=False, description="Read Envoy's counters as well, once for all of these services."
    )


class Observed(_Document):
    """The answer to GET /observed, about every service, and to POST /observed, about those asked for."""

    envoy_start_time: AwareDatetime | None = Field(
        description="When this Envoy started; absent while it is not up."
    )
    synced: bool = Field(description="The first full configuration was acknowledged by this Envoy.")
    services: dict[str, ServiceObservation] = Field(description="By NAMESPACE/NAME.")
