"""What a service's plan wants to know of the gateways: their acknowledgements, or their counters."""

from dataclasses import dataclass

from tailbound.controller.counters import Counters
from tailbound.controller.gateways import Gateways
from tailbound.kube.objects import Key
from tailbound.reconcile.model import Plan


@dataclass(frozen=True)
class Following:
    """Both readers of the gateways. They read for a service only while its last plan asked for it."""

    gateways: Gateways
    counters: Counters

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

    def release(self, key: Key) -> None:
        """The service is gone."""
        self.gateways.release(key)
        self.counters.release(key)
