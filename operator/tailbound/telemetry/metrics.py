"""The operator's own Prometheus metrics. No label grows with the number of services, save those of the cost,
which only services on priced hardware have.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Metrics:
    """Every metric of one operator process, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "tailbound_operator_reconcile_seconds",
            "Time from taking a service off the queue to its last write.",
            ["outcome"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
            registry=self.registry,
        )
        self.writes = Counter(
            "tailbound_operator_writes",
            "Writes to the API server, by verb, kind and outcome.",
            ["verb", "kind", "outcome"],
            registry=self.registry,
        )
        self.leader = Gauge(
            "tailbound_operator_leader", "1 while this process holds the Lease.", registry=self.registry
        )
        self.resync_differences = Counter(
            "tailbound_operator_resync_differences",
            "Differences that a periodic list found before a watch did. A steady rise: a blind watch.",
            ["kind"],
            registry=self.registry,
        )
        self.gateway_reads = Counter(
            "tailbound_operator_gateway_reads",
            "Reads of a gateway's /observed, by outcome.",
            ["outcome"],
            registry=self.registry,
        )

    def gauge(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        """A gauge whose values, by the values of its labels, are read when they are asked for."""
        self.registry.register(ReadGauge(name, text, labels, read))


class ReadGauge(Collector):
    """A gauge whose values, by the values of its labels, are read when they are asked for."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        self._name, self._text, self._labels, self._values = name, text, labels, read

    def describe(self) -> list[Metric]:
        """The gauge without values: registering does not read them."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> list[Metric]:
        """The gauge with its present values."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for values, number in self._values().items():
            family.add_metric(values, number)
        return [family]
