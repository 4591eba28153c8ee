"""From the stores to the one value that `decide` looks at."""

from collections.abc import Iterable, Mapping

from tailbound.api.traffic import Observed
from tailbound.controller.stores import Stores
from tailbound.judge.polls import PollResults
from tailbound.kube.objects import Key
from tailbound.kube.protocol import Object
from tailbound.kube.resources import CLUSTER_SERVING_RUNTIMES, HARDWARE_CLASSES
from tailbound.reconcile.model import Observation, RefusedWrite, ScalingDecisions, Settings, Unread


def observe(
    stores: Stores,
    key: Key,
    service: Object,
    gateways: Mapping[str, Observed | Unread],
    settings: Settings,
    obstacles: Iterable[RefusedWrite] = (),
    readings: PollResults | None = None,
    sizes: ScalingDecisions | None = None,
) -> Observation:
    """The service and what surrounds it, as the stores hold it now."""
    children = stores.children(key)
    return Observation(
        service=service,
        hardware_classes=stores.cluster_wide(HARDWARE_CLASSES),
        runtimes=stores.runtimes(key[0]),
        cluster_runtimes=stores.cluster_wide(CLUSTER_SERVING_RUNTIMES),
        revisions=children.revisions,
        deployments=children.deployments,
        services=children.services,
        disruption_budgets=children.disruption_budgets,
        pods=children.pods,
        endpoint_slices=children.endpoint_slices,
        gateways=gateways,
        settings=settings,
        obstacles=tuple(obstacles),
        readings=readings,
        sizes=sizes,
    )
