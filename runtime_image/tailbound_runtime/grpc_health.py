"""grpc.health.v1: whether the server serves, asked once or watched.

| service | Check | Watch |
|---|---|---|
| "", inference.GRPCInferenceService | the state | the state, and each change |
| another | NOT_FOUND | SERVICE_UNKNOWN |

The state is SERVING from readiness on until SIGTERM, and NOT_SERVING otherwise.
"""

from typing import Final

from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_call import Arrival, Surface, parsed
from tailbound_runtime.grpc_head import RpcHead
from tailbound_runtime.grpc_message_call import MessageCall
from tailbound_runtime.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tailbound_runtime.http2 import Http2Connection
from tailbound_runtime.http2_outflow import Stream
from tailbound_runtime.protocol import Body

SERVICE: Final = "grpc.health.v1.Health"


class Health:
    """The state, and who watches it.

    services: that this server has
    """

    def __init__(self, surface: Surface, services: frozenset[str]) -> None:
        self._surface = surface
        self._services = services
        self._ready = False
        self._watching: set[WatchCall] = set()

    def set(self, ready: bool) -> None:
        """The server serves from now on, or does so no longer."""
        if ready != self._ready:
            self._ready = ready
            for call in tuple(self._watching):
                call.tell()

    def close(self) -> None:
        """End the calls that watch: their connections are to close."""
        for call in tuple(self._watching):
            call.refuse(ApiError(503, "this server ends"))

    def state(self, service: str) -> HealthCheckResponse | None:
        """What is said of this service; None if it is not known."""
        if service not in self._services:
            return None
        kind = HealthCheckResponse.SERVING if self._ready else HealthCheckResponse.NOT_SERVING
        return HealthCheckResponse(status=kind)

    def check(self, asked: HealthCheckRequest) -> HealthCheckResponse:
        """The answer to Check. Raises ApiError."""
        state = self.state(asked.service)
        if state is None:
            raise ApiError(404, f"this server has no service {asked.service!r}")
        return state

    def watch(self, connection: Http2Connection, stream: Stream, head: RpcHead) -> "WatchCall":
        """A call of Watch."""
        return WatchCall(self, self._watching, self._surface, connection, stream, head)


class WatchCall(MessageCall):
    """Gets the state now and at each change, until it ends."""

    __slots__ = ("_among", "_health", "_service")

    def __init__(self, health: Health, among: "set[WatchCall]", *arrival: *Arrival) -> None:
        super().__init__(*arrival, limited=False)
        self._health = health
        self._among = among
        self._service = ""

    def take(self, message: Body) -> None:
        """Begin to watch."""
        self._service = parsed(HealthCheckRequest, message).service
        self._among.add(self)
        self.tell()

    def tell(self) -> None:
        """Send the state, unless the client has not taken the last one yet: then it is too slow to watch."""
        if self.stream.pending is not None:
            self.refuse(ApiError(413, "the states before have not been taken"))
            return
        state = self._health.state(self._service)
        if state is None:
            state = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        self.say([state.SerializeToString()])
        self.connection.flush()

    def overdue(self) -> None:
        """The caller's deadline has passed, or it does not take the end."""
        if self.over:
            super().overdue()
        else:
            self.refuse(ApiError(504, "the deadline of this call has passed"))

    def finish(self, block: bytes) -> None:
        """The end of the answer."""
        self._among.discard(self)
        super().finish(block)

    def lost(self) -> None:
        """The client watches no longer."""
        self._among.discard(self)
        super().lost()
