"""Health checks of a container, and the kinds of requests that they and hooks make."""

import re
from typing import Annotated, Final

from pydantic import Field, StrictInt, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

from tailbound.api.schema import ATOMIC, INT_OR_STRING, Model, Rule

PORT_NAME: Final = "(?:[a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
_HANDLERS: Final = ("httpGet", "grpc", "tcpSocket", "exec")
_ONE_HANDLER: Final = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in _HANDLERS)

Argument = Annotated[str, StringConstraints(max_length=4096)]


def _is_port(port: int | str) -> bool:
    return 1 <= port <= 65535 if isinstance(port, int) else re.fullmatch(PORT_NAME, port) is not None


PortReference = Annotated[
    StrictInt | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "anyOf": list(INT_OR_STRING), "maxLength": 15}),
    Rule(
        cel=f"type(self) == int ? self >= 1 && self <= 65535 : string(self).matches('^{PORT_NAME}$')",
        holds=_is_port,
        message="'{value}' is not a port: write the name of one of the ports, or a number from 1 to 65535",
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
    """Name of the gRPC service in the health check request."""


class TCPSocketAction(Model):
    """A connection that must open."""

    port: PortReference
    """Name or number of the port."""


class ExecAction(Model):
    """A command in the container; exit status 0 is success."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=64), ATOMIC]
    """The command and its arguments; no shell."""


class Probe(Model):
    """A health check of the server, with exactly one of httpGet, grpc, tcpSocket and exec."""

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
    """Check by an HTTP request."""

    grpc: GRPCAction | None = None
    """Check by a gRPC call."""

    tcp_socket: TCPSocketAction | None = None
    """Check by opening a TCP connection."""

    exec: ExecAction | None = None
    """Check by running a command."""

    initial_delay_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] | None = None
    """Seconds after the start of the container before the first probe."""

    period_seconds: Annotated[StrictInt, Field(ge=1, le=3600)] = 10
    """Seconds between probes."""

    timeout_seconds: Annotated[StrictInt, Field(ge=1, le=3600)] = 1
    """Seconds after which a probe has failed."""

    failure_threshold: Annotated[StrictInt, Field(ge=1, le=10000)] = 3
    """Number of consecutive failures after which the check has failed."""

    success_threshold: Annotated[StrictInt, Field(ge=1, le=100)] = 1
    """Number of consecutive successes after a failure. Kubernetes allows only 1, except for readiness."""

    @property
    def port(self) -> int | str | None:
        """Name or number of the port that is asked; None for a command."""
        way = self.http_get or self.grpc or self.tcp_socket
        return way.port if way is not None else None

    def handlers(self) -> tuple[Model, ...]:
        """The handlers that are set."""
        ways = (self.http_get, self.grpc, self.tcp_socket, self.exec)
        return tuple(way for way in ways if way is not None)


def only_one_success(attribute: str) -> Rule:
    """A rule for a container: the probe is through with its first success, as Kubernetes demands."""
    probe = to_camel(attribute)
    return Rule(
        cel=f"!has(self.{probe}) || self.{probe}.successThreshold == 1",
        holds=lambda server: (p := getattr(server, attribute)) is None or p.success_threshold == 1,
        message=f"{probe}.successThreshold is {{value}}, and Kubernetes allows only 1 here: remove it",
        value_cel=f"self.{probe}.successThreshold",
        value=lambda server: getattr(server, attribute).success_threshold,
    )


def numbered_port(attribute: str) -> Rule:
    """A rule for a container without ports: its probe gives the port as a number."""
    probe = to_camel(attribute)
    ways = [f"self.{probe}.{way}" for way in ("httpGet", "tcpSocket")]
    named = " || ".join(f"(has({way}) && type({way}.port) != int)" for way in ways)

    def holds(container: Model) -> bool:
        found: Probe | None = getattr(container, attribute)
        requests = () if found is None else (found.http_get, found.tcp_socket)
        return not any(each is not None and isinstance(each.port, str) for each in requests)

    return Rule(
        cel=f"!has(self.{probe}) || !({named})",
        holds=holds,
        message=f"{probe} names a port, and this container has no ports with names: write the number",
    )


class PreStop(Model):
    """What runs in a container before it gets SIGTERM: exactly one of exec and httpGet."""

    rules = (
        Rule(
            cel="has(self.exec) != has(self.httpGet)",
            holds=lambda hook: (hook.exec is None) != (hook.http_get is None),
            message="write exactly one of exec and httpGet",
        ),
    )

    exec: ExecAction | None = None
    """A command in the container."""

    http_get: HTTPGetAction | None = None
    """An HTTP request to the container."""
