"""Gauges of all services, kept as each changes so that no scrape reads the fleet: conditions and costs."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Final

from tailbound.api.conditions import ConditionType
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object, child, text
from tailbound.objects.metadata import KubernetesObject

_COUNTED: Final = frozenset(
    {ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.METRICS_STALE}
)


class ConditionCounts:
    """Counts the services of a store from now on; it must be empty."""

    def __init__(self, services: ObjectStore) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        services.subscribe(self._changed)

    def by_status(self) -> Mapping[tuple[str, ...], float]:
        """Number of services by type and status of the condition; what no service has is left out."""
        return {labels: float(number) for labels, number in self._counts.items() if number}

    def _changed(self, old: Object | None, new: Object | None) -> None:
        self._counts.subtract(_conditions_of(old))
        self._counts.update(_conditions_of(new))


def _conditions_of(service: Object | None) -> Iterator[tuple[str, ...]]:
    for condition in KubernetesObject(service or {}).conditions:
        if condition.type in _COUNTED:
            yield condition.type, condition.status


class ServiceCosts:
    """Follows the services of a store from now on; it must be empty. holds: whether this process leads."""

    def __init__(self, services: ObjectStore, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self._costs: dict[tuple[str, ...], float] = {}
        services.subscribe(self._changed)

    def by_service(self) -> Mapping[tuple[str, ...], float]:
        """The known costs by namespace and name; nothing while another process leads, so that sums hold."""
        return dict(self._costs) if self._holds() else {}

    def _changed(self, old: Object | None, new: Object | None) -> None:
        view = KubernetesObject(new or old or {})
        cost = _cost_in(text(child(new or {}, "status", "hardware"), "costPerHour"))
        if cost is None:
            self._costs.pop((view.namespace, view.name), None)
        else:
            self._costs[view.namespace, view.name] = cost


def _cost_in(written: str) -> float | None:
    """The cost; None where it is absent, or was not written by us: a sum over services must stay a number."""
    try:
        cost = float(written)
    except ValueError:
        return None
    return cost if 0 <= cost < inf else None
