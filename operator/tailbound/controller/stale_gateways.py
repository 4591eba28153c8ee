"""A gateway pod that does not take over a change is replaced, if another pod has taken it over."""

from collections.abc import Callable, Mapping
from itertools import takewhile

from tailbound.api.traffic import Observed
from tailbound.controller.gateways import GatewayReports
from tailbound.kube.errors import KubeError
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import PODS
from tailbound.objects.fields import Object, child, number
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
LAGGARD_SECONDS = 30.0
EVENT_REASON = "GatewayReplaced"


def acknowledged(report: Observed | Unknown, service: Object) -> bool:
    """Whether this gateway serves the service's newest spec and traffic, or says why it refuses them."""
    if isinstance(report, Unknown):
        return False
    view = KubernetesObject(service)
    observation = report.services.get(f"{view.namespace}/{view.name}")
    traffic = number(child(service, "status", "traffic"), "generation") or 0
    routes = () if observation is None else (observation.applied, observation.rejected)
    return any(
        route is not None and route.generation >= view.generation and route.traffic_generation >= traffic
        for route in routes
    )


def laggards(
    service: Object, waited: Mapping[str, float], reports: Mapping[str, Observed | Unknown]
) -> tuple[str, ...]:
    """Names of the gateway pods to replace: those that waited too long, if another pod has acknowledged."""
    late = tuple(name for name, report in reports.items() if not acknowledged(report, service))
    if len(late) == len(reports):
        return ()
    return tuple(name for name in late if waited.get(name, 0) >= LAGGARD_SECONDS)


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
        # The longest waiting come first.
        late = takewhile(lambda each: now - each[1].since >= LAGGARD_SECONDS, self._gateways.awaiting.items())
        for key, waiting in tuple(late):
            service, reports = self._service(key), self._gateways.reports(key)
            names = () if service is None else laggards(service, self._gateways.waited(waiting), reports)
            pod = self._gateways.ready_pods().get(names[0]) if names else None
            if service is not None and pod is not None and self._holds():
                self._last = now
                await self._delete(service, pod)
                return

    async def _delete(self, service: Object, pod: Object) -> None:
        view, name = KubernetesObject(pod), KubernetesObject(pod).name
        try:
            await self._cluster.delete(PODS, view.namespace, name, view.uid, view.resource_version)
        except KubeError as error:
            _LOG.warning("gateway pod not deleted", pod=name, error=str(error))
            return
        _LOG.warning("gateway pod deleted", pod=name, service=KubernetesObject(service).name)
        await self._events.record(
            service,
            "Warning",
            EVENT_REASON,
            f"Gateway pod {name} was deleted: it had not taken over the newest routing for "
            f"{LAGGARD_SECONDS:g} s while another gateway pod had",
        )
