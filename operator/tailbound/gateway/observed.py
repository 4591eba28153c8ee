"""What this gateway pod does: the /observed document, readiness, and its own metrics."""

from collections.abc import Callable, Collection, Iterable, Set
from datetime import datetime

from tailbound.api.traffic import Observed, ObservedQuestion, RejectedRoute, ServiceObservation
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.controller import GatewayController
from tailbound.gateway.counting import Counters
from tailbound.gateway.envoy import EnvoyProcess
from tailbound.gateway.server import AdsServer
from tailbound.telemetry.metrics import ReadGauge
from tailbound.traffic.model import ServiceKey


class Observer:
    """Reads the parts of the sidecar; changes none of them."""

    def __init__(
        self,
        configuration: Configuration,
        ads: AdsServer,
        controller: GatewayController,
        envoy: EnvoyProcess,
    ) -> None:
        self._configuration = configuration
        self._ads = ads
        self._controller = controller
        self._envoy = envoy

    async def everything(self) -> Observed:
        """The document over all services, without counters."""
        return self._document(self._known(), await self._envoy.start_if_live(), None)

    async def answer(self, question: ObservedQuestion) -> Observed:
        """The document over the services that are asked for and known here.

        Envoy's counters are read only if they are wanted, and then once for all of these services.
        """
        known = self._known()
        services = {each for name in question.services if (each := _key_of(name)) in known}
        start = await self._envoy.start_if_live()
        counters = await self._counters(services, start) if question.counters else None
        return self._document(services, start, counters)

    def _known(self) -> Set[ServiceKey]:
        return self._configuration.services() | self._controller.rejections.keys()

    def _document(
        self, services: Iterable[ServiceKey], start: datetime | None, counters: Counters | None
    ) -> Observed:
        return Observed(
            envoy_start_time=start,
            synced=self._ads.synced,
            services={str(service): self._observation(service, counters) for service in sorted(services)},
        )

    async def _counters(self, services: Collection[ServiceKey], start: datetime | None) -> Counters | None:
        """Counters of the Envoy that started at `start`. An Envoy that just took its place has others."""
        counters = await self._envoy.counters(services)
        return counters if await self._envoy.start_if_live() == start is not None else None

    async def why_not_ready(self) -> str | None:
        """Why no requests may come yet; None if they may. Rules, first match wins:"""
        if self._envoy.draining:
            return "draining"
        if not self._configuration.complete:
            return "waiting for the API server, and there is no snapshot"
        if not self._ads.connected:
            return "Envoy is not connected"
        if not self._ads.synced:
            return "Envoy has not acknowledged its first configuration yet"
        if await self._envoy.start_if_live() is None:
            return "Envoy does not listen yet"
        return None

    def _observation(self, service: ServiceKey, counters: Counters | None) -> ServiceObservation:
        return ServiceObservation(
            applied=self._ads.applied.get(service),
            rejected=self._rejected(service),
            counters=None if counters is None else counters.get(service, {}),
        )

    def _rejected(self, service: ServiceKey) -> RejectedRoute | None:
        """The projection's own refusal, or else Envoy's."""
        rejection = self._controller.rejections.get(service)
        if rejection is not None:
            return RejectedRoute(
                generation=rejection.generation,
                traffic_generation=rejection.traffic_generation,
                message=rejection.message,
            )
        message, bundle = self._configuration.refusal(service), self._configuration.desired(service)
        if message is None or bundle is None:
            return None
        return RejectedRoute(
            generation=bundle.route.generation,
            traffic_generation=bundle.route.traffic_generation,
            message=message,
        )

    def gauges(self) -> tuple[ReadGauge, ...]:
        """The sidecar's own metrics, read when they are asked for. None grows with the number of services."""
        known, configuration, ads = self._known, self._configuration, self._ads
        return (
            _gauge("services", "Services configured.", lambda: len(configuration.services())),
            _gauge("services_applied", "Services that Envoy has acknowledged.", lambda: len(ads.applied)),
            _gauge(
                "services_rejected",
                "Services whose newest state is refused.",
                lambda: sum(self._rejected(service) is not None for service in known()),
            ),
            _gauge("synced", "1 while Envoy has its full first configuration.", lambda: int(ads.synced)),
        )


def _key_of(name: str) -> ServiceKey:
    namespace, _, service = name.partition("/")
    return ServiceKey(namespace, service)


def _gauge(name: str, text: str, read: Callable[[], int]) -> ReadGauge:
    return ReadGauge(f"tailbound_gateway_{name}", text, (), lambda: {(): read()})
