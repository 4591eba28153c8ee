"""Kubernetes Events on an InferenceService: one per transition, for people."""

from collections.abc import Callable
from datetime import datetime

from tailbound.api.names import FIELD_MANAGER, GROUP
from tailbound.kube.errors import KubeError
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import EVENTS
from tailbound.objects.fields import Object
from tailbound.objects.metadata import KubernetesObject
from tailbound.objects.printable import printable
from tailbound.objects.times import utc_seconds
from tailbound.telemetry.logs import logger

MESSAGE_LIMIT = 1024  # of the API
_LOG = logger(__name__)


def event_body(
    service: Object, type_: str, reason: str, message: str, *, instance: str, now: datetime, suffix: str
) -> Object:
    """A v1 Event about `service`. `suffix` makes its name unique.

    `kubectl describe` sorts by lastTimestamp, which events.k8s.io/v1 lets no client set.
    """
    about, message = KubernetesObject(service), printable(message)
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{about.name}.{suffix}", "namespace": about.namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "firstTimestamp": utc_seconds(now),
        "lastTimestamp": utc_seconds(now),
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": f"{GROUP}/{FIELD_MANAGER}",
        "reportingInstance": instance,
        "action": "Reconcile",
        "reason": reason,
        "type": type_,
        "message": message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…",
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
    }


class EventWriter:
    """Writes Events. A refused one is logged and dropped: no decision waits for it."""

    def __init__(
        self, cluster: KubeClient, instance: str, now: Callable[[], datetime], suffix: Callable[[], str]
    ) -> None:
        self._cluster = cluster
        self._instance = instance
        self._now = now
        self._suffix = suffix

    async def record(self, service: Object, type_: str, reason: str, message: str) -> None:
        """Write one Event about `service`. `type_` is Normal or Warning."""
        body = event_body(
            service,
            type_,
            reason,
            message,
            instance=self._instance,
            now=self._now(),
            suffix=self._suffix(),
        )
        try:
            await self._cluster.create_event(body)
        except KubeError as error:
            _LOG.warning("event not written", reason=reason, error=str(error))
