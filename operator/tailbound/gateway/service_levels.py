"""The objectives of each service's SLA as a metric, beside the counters of its requests.

Alert rules compare the two. A gateway exports both, so that alerts need neither the operator nor a further
scrape.
"""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailbound.api.names import SLA_METRIC
from tailbound.traffic.model import Route

LATENCY: Final = "latency"
ERRORS: Final = "errors"
_ABOVE_P99: Final = 0.01


class ServiceLevels(Collector):
    """A gauge for each target in a service's SLA: the ratio of its requests that may miss it, from 0 to 1."""

    def __init__(self, routes: Callable[[], Iterable[Route]]) -> None:
        self._routes = routes

    def describe(self) -> list[Metric]:
        """Nothing in advance: registering must not read."""
        return []

    def collect(self) -> list[Metric]:
        """The objectives of every service that is routed now."""
        family = GaugeMetricFamily(
            SLA_METRIC,
            "Ratio of the requests of a service that may miss a target of its SLA.",
            labels=("namespace", "service", "objective"),
        )
        for route in self._routes():
            for objective, ratio in _objectives(route):
                family.add_metric((*route.service, objective), ratio)
        return [family]


def _objectives(route: Route) -> Iterable[tuple[str, float]]:
    if route.latency_target is not None:
        yield LATENCY, _ABOVE_P99
    if route.error_target is not None:
        yield ERRORS, route.error_target
