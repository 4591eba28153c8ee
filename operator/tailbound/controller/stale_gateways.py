"""A gateway pod that does not take over a change is replaced, if another pod has taken it over."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile

from tailbound.api.traffic import AppliedRoute, RejectedRoute, ServiceObservation
from tailbound.controller.gateways import GatewayReports
from tailbound.kube.errors import KubeError
from tailbound.kube.objects import Key
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import PODS
from tailbound.objects.fields import Object, child, number
from tailbound.objects.metadata import KubernetesObject
from tailbound.telemetry.events import EventWriter
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
STALE_SECONDS = 30.0
EVENT_REASON = "GatewayReplaced"


def unacknowledged(service: Object, observations: Mapping[str, ServiceObservation | None]) -> tuple[str, ...]:
    """Names of the gateway pods that neither serve the service's newest spec and traffic nor refuse them.

    observations: what each pod has of the service, None where that is nothing or not known.
    """
    generation = KubernetesObject(service).generation
    traffic = number(child(service, "status", "traffic"), "generation") or 0

    def newest(route: AppliedRoute | RejectedRoute | None) -> bool:
        return route is not None and route.generation >= generation and route.traffic_generation >= traffic

    return tuple(
        name
        for name, found in observations.items()
        if found is None or not (newest(found.applied) or newest(found.rejected))
    )


def stale_gateways(
    service: Object,
    observations: Mapping[str, ServiceObservation | None],
    waited: Callable[[], Mapping[str, float]],
) -> tuple[str, ...]:
    """Names of the gateway pods to replace: those that waited too long, if another pod has acknowledged.

    waited: how long each has, in seconds.
    """
    late = unacknowledged(service, observations)
    if len(late) == len(observations):
        return ()
    seconds = waited()
    return tuple(name for name in late if seconds.get(name, 0) >= STALE_SECONDS)


class StaleGatewayReplacer:
    """Deletes one stale gateway pod at a time, and the next after another `STALE_SECONDS`."""

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
        """Look at services that wait up to the first with a stale gateway. A refused one is tried later."""
        now = self._clock()
        found = self._first(now) if now - self._last >= STALE_SECONDS else None
        if found is not None and self._holds():
            self._last = now
            await self._delete(*found)

    def _first(self, now: float) -> tuple[Object, Object] | None:
        """A service and the gateway pod to replace for it; None without any."""
        pods = self._gateways.ready_pods()
        if len(pods) < 2:  # no other pod can have acknowledged anything
            return None
        # The longest waiting come first.
        late = takewhile(lambda each: now - each[1].since >= STALE_SECONDS, self._gateways.awaiting.items())
        for key, waiting in late:
            service = self._service(key)
            if service is None:
                continue
            names = stale_gateways(
                service, self._gateways.observations(key), partial(self._gateways.waited, waiting)
            )
            if names and names[0] in pods:
                return service, pods[names[0]]
        return None

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
            f"{STALE_SECONDS:g} s while another gateway pod had",
        )
