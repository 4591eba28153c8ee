"""The objectives of each service's SLA as a metric, beside the counters of its requests.

Alert rules compare the two. A gateway exports both, so that alerts need neither the operator nor a further
scrape.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tailbound.api.names import SLA_METRIC
from tailbound.telemetry.metrics import ReadGauge
from tailbound.traffic.model import Route

LATENCY: Final = "latency"
ERRORS: Final = "errors"
_ABOVE_P99: Final = 0.01


def service_levels(routes: Callable[[], Iterable[Route]]) -> ReadGauge:
    """The gauge of the ratios, from 0 to 1, of requests that may miss each target of a routed service."""
    return ReadGauge(
        SLA_METRIC,
        "Ratio of the requests of a service that may miss a target of its SLA.",
        ("namespace", "service", "objective"),
        lambda: _ratios(routes()),
    )


def _ratios(routes: Iterable[Route]) -> Mapping[tuple[str, ...], float]:
    return {(*route.service, objective): ratio for route in routes for objective, ratio in _objectives(route)}


def _objectives(route: Route) -> Iterable[tuple[str, float]]:
    if route.latency_target is not None:
        yield LATENCY, _ABOVE_P99
    if route.error_target is not None:
        yield ERRORS, route.error_target
