"""ServingRuntime and ClusterServingRuntime: how a model format is served, as a structured pod template."""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, GetJsonSchemaHandler, StrictBool, StrictInt, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tailbound.api.meta import EnvVar, ObjectMeta
from tailbound.api.quantities import Duration, duration_between
from tailbound.api.runtime_contract import HTTP_PORT_NAME
from tailbound.api.schema import ATOMIC, INT_OR_STRING, Model, Rule, list_map, matches

FormatName = Annotated[
    str,
    StringConstraints(max_length=32),
    matches(
        "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?",
        "'{value}' is not a model format: write lower-case letters, digits and dashes, for example onnx",
    ),
]

_PORT_NAME: Final = "(?:[a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
_HANDLERS: Final = ("httpGet", "grpc", "tcpSocket", "exec")
_ONE_HANDLER: Final = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in _HANDLERS)

Argument = Annotated[str, StringConstraints(max_length=4096)]


class ImagePullPolicy(StrEnum):
    """When the node pulls the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class SupportedFormat(Model):
    """A model format that this runtime serves."""

    name: FormatName
    """Value of spec.model.format in an InferenceService."""


class ContainerPort(Model):
    """A port that the server listens on."""

    name: Annotated[
        str,
        StringConstraints(max_length=15),
        matches(
            _PORT_NAME,
            "'{value}' is not a port name: write lower-case letters, digits and single dashes, with at least "
            "one letter",
        ),
    ]
    """http: Open Inference Protocol over HTTP/1.1, required. grpc: the same over h2c. metrics: Prometheus."""

    container_port: Annotated[StrictInt, Field(ge=1, le=65535)]
    """Number of the port."""


class _PortReference:
    """Makes the schema of a port that is given by its name or its number."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING, "maxLength": 15}


def _is_port(port: int | str) -> bool:
    return 1 <= port <= 65535 if isinstance(port, int) else re.fullmatch(_PORT_NAME, port) is not None


PortReference = Annotated[
    StrictInt | str,
    _PortReference(),
    Rule(
        cel=f"type(self) == int ? self >= 1 && self <= 65535 : string(self).matches('^{_PORT_NAME}$')",
        holds=_is_port,
        message="'{value}' is not a port: write the name of one of the ports, or a number from 1 to 65535",
        value_cel="self",
    ),
]


class HTTPGetAction(Model):
    """A GET request; 200 to 399 is success."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = "/"
    """Path of the request."""

    port: PortReference
    """Name or number of the port."""


class GRPCAction(Model):
    """A call of grpc.health.v1.Health/Check."""

    port: Annotated[StrictInt, Field(ge=1, le=65535)]
    """Number of the port."""

    service: Annotated[str, StringConstraints(max_length=253)] | None = None
    """Service that is asked about."""


class TCPSocketAction(Model):
    """A connection that must open."""

    port: PortReference
    """Name or number of the port."""


class ExecAction(Model):
    """A command in the container; exit status 0 is success."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=64), ATOMIC]
    """The command and its arguments; no shell."""


class Probe(Model):
    """How Kubernetes asks the server for its health: exactly one of httpGet, grpc, tcpSocket and exec."""

    rules = (
        Rule(
            cel=f"{_ONE_HANDLER} == 1",
            holds=lambda probe: len(probe.handlers()) == 1,
            message="this probe has {value} of httpGet, grpc, tcpSocket and exec: write exactly one",
            value_cel=_ONE_HANDLER,
            value=lambda probe: len(probe.handlers()),
        ),
    )

    http_get: HTTPGetAction | None = None
    """Ask by HTTP."""

    grpc: GRPCAction | None = None
    """Ask by gRPC."""

    tcp_socket: TCPSocketAction | None = None
    """Open a connection."""

    exec: ExecAction | None = None
    """Run a command."""

    initial_delay_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] | None = None
    """Seconds after the start of the container before the first probe."""

    period_seconds: Annotated[StrictInt, Field(ge=1, le=3600)] = 10
    """Seconds between probes."""

    timeout_seconds: Annotated[StrictInt, Field(ge=1, le=3600)] = 1
    """Seconds after which a probe has failed."""

    failure_threshold: Annotated[StrictInt, Field(ge=1, le=10000)] = 3
    """Failures in a row that count."""

    success_threshold: Annotated[StrictInt, Field(ge=1, le=100)] = 1
    """Successes in a row that count after a failure. Kubernetes allows only 1, except for readiness."""

    def handlers(self) -> tuple[Model, ...]:
        """The ways of asking that are given."""
        ways = (self.http_get, self.grpc, self.tcp_socket, self.exec)
        return tuple(way for way in ways if way is not None)


def _only_one_success(probe: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{probe}) || self.{probe}.successThreshold == 1",
        holds=lambda server: (p := getattr(server, attribute)) is None or p.success_threshold == 1,
        message=f"{probe}.successThreshold is {{value}}, and Kubernetes allows only 1 here: remove it",
        value_cel=f"self.{probe}.successThreshold",
        value=lambda server: getattr(server, attribute).success_threshold,
    )


class ServerContainer(Model):
    """The container that serves the model.

    Strings may hold {{ expressions }} over service.name, service.namespace, model.path, model.format,
    model.uri, revision.name, hardware.class, hardware.devices, resources.cpu, resources.memory,
    timeout.seconds, batching.mode, batching.maxBatchSize, batching.preferredBatchSizes (4,8) and
    batching.maxQueueDelaySeconds.
    """

    rules = (
        Rule(
            cel=f"self.ports.exists(p, p.name == '{HTTP_PORT_NAME}')",
            holds=lambda server: any(port.name == HTTP_PORT_NAME for port in server.ports),
            message=f"none of the ports is named {HTTP_PORT_NAME}: give this name to the one that serves the "
            "Open Inference Protocol over HTTP",
        ),
        _only_one_success("startupProbe", "startup_probe"),
        _only_one_success("livenessProbe", "liveness_probe"),
    )

    image: Annotated[
        str,
        StringConstraints(max_length=1024),
        matches(
            r"[^\s]+",
            "'{value}' is not an image: write a reference without blanks, for example "
            "registry.example.com/server:1.2.3",
        ),
    ]
    """Image of the server."""

    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    """When the node pulls the image."""

    command: Annotated[tuple[Argument, ...], Field(max_length=64), ATOMIC] = ()
    """Replaces the image's entry point."""

    args: Annotated[tuple[Argument, ...], Field(max_length=256), ATOMIC] = ()
    """Arguments of the entry point."""

    env: Annotated[tuple[EnvVar, ...], Field(max_length=64), list_map("name")] = ()
    """Environment, beside the variables that Tailbound sets."""

    ports: Annotated[tuple[ContainerPort, ...], Field(min_length=1, max_length=16), list_map("name")]
    """Ports; one must be named http."""

    startup_probe: Probe | None = None
    """Holds the other probes back until the server is up."""

    readiness_probe: Probe | None = None
    """Decides whether the pod gets requests."""

    liveness_probe: Probe | None = None
    """Restarts the container when it fails."""


class ServingRuntimeSpec(Model):
    """How models of some formats are served."""

    formats: Annotated[tuple[SupportedFormat, ...], Field(min_length=1, max_length=32), list_map("name")]
    """Model formats that this runtime serves."""

    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    """Of several runtimes for a format in the same scope, the one with the highest priority is chosen."""

    drain: Annotated[
        Duration,
        duration_between(
            "1s", "10m", "as long as gateways and slow requests need after a pod begins to stop"
        ),
    ] = Duration(10_000)
    """How long the server keeps serving after SIGTERM, while its readiness already fails."""

    sheds: StrictBool = False
    """Whether spec.overload may be shed: the server refuses what it could only answer after the milliseconds
    in the request header x-tailbound-latency-bound-ms, with a 503 that has the header x-tailbound-shed."""

    server: ServerContainer
    """The container that serves the model."""

    def serves(self, model_format: str) -> bool:
        """Whether models of this format can be served."""
        return any(supported.name == model_format for supported in self.formats)


class ServingRuntime(Model):
    """ServingRuntime tells how model formats are served in its namespace. It precedes cluster-wide ones."""

    metadata: ObjectMeta
    spec: ServingRuntimeSpec


class ClusterServingRuntime(Model):
    """ClusterServingRuntime tells how model formats are served in every namespace."""

    metadata: ObjectMeta
    spec: ServingRuntimeSpec
