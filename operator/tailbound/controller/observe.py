"""Builds the observation that `decide` reads from the stores."""

from collections.abc import Iterable

from tailbound.controller.stores import Stores
from tailbound.controller.subscriptions import Followed
from tailbound.kube.objects import Key
from tailbound.kube.resources import CLUSTER_SERVING_RUNTIMES, DEVICE_CLASSES, HARDWARE_CLASSES
from tailbound.objects.fields import Object
from tailbound.reconcile.model import NO_DEVICE_CLASSES, Observation, RefusedWrite, Settings


def observe(
    stores: Stores,
    key: Key,
    service: Object,
    followed: Followed,
    settings: Settings,
    refused_writes: Iterable[RefusedWrite] = (),
) -> Observation:
    """The service and what surrounds it, as the stores hold it now."""
    return Observation(
        service=service,
        hardware_classes=stores.cluster_wide(HARDWARE_CLASSES),
        runtimes=stores.runtimes(key[0]),
        cluster_runtimes=stores.cluster_wide(CLUSTER_SERVING_RUNTIMES),
        children=stores.children(key),
        device_classes=(
            stores.cluster_wide(DEVICE_CLASSES) if stores.serves(DEVICE_CLASSES) else NO_DEVICE_CLASSES
        ),
        downloads=followed.downloads,
        claims=stores.claims(key[0]),
        hosts=stores.hosts.of(key),
        gateways=followed.gateways,
        settings=settings,
        refused_writes=tuple(refused_writes),
        readings=followed.readings,
        signatures=followed.signatures,
        sizes=followed.sizes,
    )
