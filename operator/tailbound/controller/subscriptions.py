"""What a service's plan wants to be followed: acknowledgements and counters of the gateways, its models, its
traffic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailbound.api.traffic import Observed
from tailbound.controller.autoscaler import Autoscaler
from tailbound.controller.counters import CounterPoller
from tailbound.controller.download_reader import DownloadReader
from tailbound.controller.gateways import GatewayReports
from tailbound.controller.signature_reader import SignatureReader
from tailbound.judge.polls import PollResults
from tailbound.kube.objects import Key
from tailbound.objects.download import DownloadProgress
from tailbound.objects.signature import ModelSignature
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import Plan, ScalingDecisions


@dataclass(frozen=True)
class Followed:
    """The newest values of everything that is read for one service."""

    gateways: Mapping[str, Observed | Unknown]
    readings: PollResults | None
    signatures: Mapping[str, ModelSignature | Unknown]
    sizes: ScalingDecisions | None
    downloads: Mapping[str, DownloadProgress] = field(default_factory=dict)


@dataclass(frozen=True)
class Subscriptions:
    """The readers of gateways, metrics and pods: each for a service only while its last plan asks for it."""

    gateways: GatewayReports
    counters: CounterPoller
    autoscaler: Autoscaler
    signatures: SignatureReader
    downloads: DownloadReader

    def view(self, key: Key) -> Followed:
        """The newest values, for a decision that ends in `follow` or `release`."""
        return Followed(
            gateways=self.gateways.view(key),
            readings=self.counters.view(key),
            signatures=self.signatures.view(key),
            sizes=self.autoscaler.view(key),
            downloads=self.downloads.view(key),
        )

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
        self.signatures.expect(key, plan.unread)
        self.downloads.expect(key, plan.download)
        if plan.scalable is not None:
            self.autoscaler.expect(key, plan.scalable)
        else:
            self.autoscaler.release(key)

    def release(self, key: Key) -> None:
        """The service is gone."""
        self.gateways.release(key)
        self.counters.release(key)
        self.autoscaler.release(key)
        self.signatures.expect(key, ())
        self.downloads.expect(key, None)
