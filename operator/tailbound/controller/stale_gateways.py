"""A gateway pod that does not take over a change is replaced, if another pod has taken it over."""

from collections.abc import Callable, Mapping

from tailbound.api.traffic import Observed
from tailbound.controller.gateways import GatewayReports
from tailbound.kube.errors import KubeError
from tailbound.kube.objects import Key, uid_of, version_of
from tailbound.kube.protocol import KubeClient, Object
from tailbound.kube.resources import PODS
from tailbound.reconcile.model import Unread
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
LAGGARD_SECONDS = 30.0
EVENT_REASON = "GatewayReplaced"


def acknowledged(report: Observed | Unread, service: Object) -> bool:
    """Whether this gateway serves the service's newest spec and traffic, or says why it refuses them."""
    if isinstance(report, Unread):
        return False
    meta = service["metadata"]
    observation = report.services.get(f"{meta['namespace']}/{meta['name']}")
    traffic = int(((service.get("status") or {}).get("traffic") or {}).get("generation") or 0)
    routes = () if observation is None else (observation.applied, observation.rejected)
    return any(
        route is not None
        and route.generation >= int(meta["generation"])
        and route.traffic_generation >= traffic
        for route in routes
    )


def laggards(
    service: Object, waited_seconds: float, reports: Mapping[str, Observed | Unread]
) -> tuple[str, ...]:
    """Names of the gateway pods to replace: none unless the wait is long and another pod has acknowledged."""
    late = tuple(name for name, report in reports.items() if not acknowledged(report, service))
    if waited_seconds < LAGGARD_SECONDS or len(late) == len(reports):
        return ()
    return late


class StaleGatewayReplacer:
    """Deletes one laggard at a time, and not the next before another `LAGGARD_SECONDS` have passed."""

    def __init__(
        self,
        cluster: KubeClient,
        gateways: GatewayReports,
        service: Callable[[Key], Object | None],
        events: EventWriter,
        clock: Callable[[], float],
        holds: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._gateways = gateways
        self._service = service
        self._events = events
        self._clock = clock
        self._holds = holds
        self._last = float("-inf")

    async def replace(self) -> None:
        """Look at every awaiting service once. Refused deletions are logged and tried again later."""
        now = self._clock()
        if now - self._last < LAGGARD_SECONDS:
            return
        for key, waiting in tuple(self._gateways.awaiting.items()):
            service = self._service(key)
            names = () if service is None else laggards(service, now - waiting.since, self._gateways.view())
            pod = self._gateways.ready_pods().get(names[0]) if names else None
            if service is not None and pod is not None and self._holds():
                self._last = now
                await self._delete(service, pod)
                return

    async def _delete(self, service: Object, pod: Object) -> None:
        meta = pod["metadata"]
        try:
            await self._cluster.delete(
                PODS, meta["namespace"], meta["name"], uid_of(pod), str(version_of(pod))
            )
        except KubeError as error:
            _LOG.warning("gateway pod not deleted", pod=meta["name"], error=str(error))
            return
        _LOG.warning("gateway pod deleted", pod=meta["name"], service=service["metadata"]["name"])
        await self._events.record(
            service,
            "Warning",
            EVENT_REASON,
            f"Gateway pod {meta['name']} was deleted: it had not taken over the newest routing for "
            f"{LAGGARD_SECONDS:g} s while another gateway pod had",
        )
