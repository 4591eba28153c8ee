"""Delta ADS over a Unix socket. Thin: every decision is in `delta`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.service.discovery.v3.ads_pb2_grpc import (
    AggregatedDiscoveryServiceServicer,
    add_AggregatedDiscoveryServiceServicer_to_server,
)
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from tailbound.api.traffic import AppliedRoute
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.delta import DeltaSession
from tailbound.gateway.resources import Bundle
from tailbound.telemetry.logs import logger
from tailbound.traffic.model import ServiceKey

_log = logger(__name__)

_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class AdsServer(AggregatedDiscoveryServiceServicer):  # type: ignore[misc]
    """Serves one Envoy. A second stream means that it restarted: the newest one counts.

    `on_applied` is called after Envoy acknowledged something; `on_stream` when an Envoy asks for its first
    configuration, True if it has none yet: it has just started.
    """

    def __init__(
        self,
        configuration: Configuration,
        on_applied: Callable[[], None],
        on_stream: Callable[[bool], None],
    ) -> None:
        self._configuration = configuration
        self._on_applied = on_applied
        self._on_stream = on_stream
        self._session: DeltaSession | None = None
        self._wake = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    @property
    def connected(self) -> bool:
        """Whether an Envoy is on the line."""
        return self._session is not None

    @property
    def synced(self) -> bool:
        """Whether the connected Envoy has acknowledged a full first configuration."""
        return self._session is not None and self._session.synced

    @property
    def applied(self) -> Mapping[ServiceKey, AppliedRoute]:
        """What the connected Envoy has acknowledged; nothing while none is connected."""
        return {} if self._session is None else self._session.applied

    def update(self, changes: Mapping[ServiceKey, Bundle | None]) -> None:
        """Configure the newest state of some services. The first call must hold every service."""
        changed = self._configuration.update(changes)
        self._configuration.complete = True
        if self._session is not None:
            self._session.configured(changed, changes)
            self._on_applied()
        self._wake.set()

    async def start(self, socket: Path) -> None:
        """Listen. Raises OSError if that is not possible."""
        _clear(socket)
        server = grpc.aio.server(options=_OPTIONS)
        add_AggregatedDiscoveryServiceServicer_to_server(self, server)
        if not server.add_insecure_port(f"unix:{socket}"):
            raise OSError(f"cannot listen on {socket}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Close the stream. Envoy keeps what it has, and comes back."""
        if self._server is not None:
            await self._server.stop(grace=None)

    async def DeltaAggregatedResources(  # noqa: N802 - the name is Envoy's
        self, requests: AsyncIterator[DeltaDiscoveryRequest], context: Any
    ) -> AsyncIterator[DeltaDiscoveryResponse]:
        """One stream, until Envoy ends it or a newer one replaces it."""
        session, wake = DeltaSession(self._configuration), asyncio.Event()
        self._session, self._wake = session, wake
        reader = asyncio.create_task(self._read(requests, session, wake))
        _log.info("envoy connected")
        try:
            while self._session is session and not reader.done():
                for response in session.responses():
                    yield response
                await wake.wait()
                wake.clear()
            if reader.done():
                reader.result()
        except Exception:
            # Envoy only sees that its stream ended, and comes back.
            _log.exception("the stream failed")
            raise
        finally:
            reader.cancel()
            if self._session is session:
                self._session = None
            _log.info("envoy disconnected")

    async def _read(
        self, requests: AsyncIterator[DeltaDiscoveryRequest], session: DeltaSession, wake: asyncio.Event
    ) -> None:
        is_first = True
        try:
            async for request in requests:
                if is_first:
                    self._on_stream(not request.initial_resource_versions)
                    is_first = False
                for refusal in session.receive(request):
                    _log.warning(
                        "envoy refused a resource",
                        service=str(refusal.service),
                        resource=refusal.resource.name,
                        type=refusal.resource.type,
                        message=refusal.message,
                    )
                self._on_applied()
                wake.set()
        except grpc.aio.AioRpcError:
            return
        finally:
            wake.set()


def _clear(socket: Path) -> None:
    """A former life of this process may have left its socket behind."""
    socket.unlink(missing_ok=True)
