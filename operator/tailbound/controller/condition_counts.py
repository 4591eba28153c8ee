"""How many services have each condition and status, kept as they change: a scrape does not read the fleet."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tailbound.api.conditions import ConditionType
from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object
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
