"""What services cost in an hour, by their status, kept as it changes: a scrape does not read the fleet."""

from collections.abc import Callable, Mapping
from math import inf

from tailbound.kube.store import ObjectStore
from tailbound.objects.fields import Object, child, text
from tailbound.objects.metadata import KubernetesObject


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
