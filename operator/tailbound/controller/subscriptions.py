"""What a service's plan wants to be followed: acknowledgements and counters of the gateways, its traffic."""

from dataclasses import dataclass

from tailbound.controller.autoscaler import Autoscaler
from tailbound.controller.counters import CounterPoller
from tailbound.controller.gateways import GatewayReports
from tailbound.kube.objects import Key
from tailbound.reconcile.model import Plan


@dataclass(frozen=True)
class Following:
    """What looks at the gateways and the metrics; for a service only while its last plan asks for it."""

    gateways: GatewayReports
    counters: CounterPoller
    autoscaler: Autoscaler

    def follow(self, key: Key, plan: Plan) -> None:
        """Read what the plan asks for, and nothing else."""
        if plan.watch_gateways:
            self.gateways.expect(key)
        else:
            self.gateways.release(key)
        if plan.poll_counters:
            self.counters.expect(key, plan.queries)
        else:
            self.counters.release(key)
        if plan.scalable is not None:
            self.autoscaler.expect(key, plan.scalable)
        else:
            self.autoscaler.release(key)

    def release(self, key: Key) -> None:
        """The service is gone."""
        self.gateways.release(key)
        self.counters.release(key)
        self.autoscaler.release(key)
