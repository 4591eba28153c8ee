"""The operator's decisions, executed in the simulated cluster."""

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from tailbound.judge.polls import PollResults
from tailbound.objects.download import DownloadProgress
from tailbound.objects.fields import Object
from tailbound.objects.signature import ModelSignature
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.decide import decide, draft, read, wanted_rendering
from tailbound.reconcile.model import (
    NO_DEVICE_CLASSES,
    NO_READER,
    Children,
    Observation,
    Plan,
    RefusedWrite,
    ScalingDecisions,
    Settings,
    SignatureRequest,
)
from tailbound.revisions.model_mounts import Fetcher
from tailbound.revisions.rendering import RenderFailed, Rendering, RenderRequest
from tailbound.revisions.template import expand
from tailbound.telemetry.prometheus import Series

from tests.support.copies import copied
from tests.support.simulated.cluster import Cluster
from tests.support.simulated.objects import hardware_class, runtime

SETTINGS = Settings(
    operator_namespace="tailbound-system",
    gateway_service="tailbound-gateway",
    cluster_domain="cluster.local",
    fetcher=Fetcher("registry.example.com/tailbound:1", "IfNotPresent"),
)


def no_series(_query: str) -> tuple[Series, ...]:
    """The answer of a Prometheus that has scraped nothing."""
    return ()


@lru_cache(maxsize=256)
def rendered(request: RenderRequest) -> Rendering:
    """What the renderer makes of a request: always the same."""
    return expand(request)


@dataclass
class Simulator(Cluster):
    """One service in its cluster, and the operator that looks after it."""

    hardware_classes: Mapping[str, Object] = field(default_factory=lambda: {"cpu": hardware_class()})
    runtimes: Mapping[str, Object] = field(default_factory=dict)
    cluster_runtimes: Mapping[str, Object] = field(default_factory=lambda: {"onnxruntime": runtime()})
    refused_writes: tuple[RefusedWrite, ...] = ()
    sizes: ScalingDecisions | None = None
    models: Mapping[str, ModelSignature | Unknown] | Unknown = NO_READER
    """By number of a revision, what its pods answer about their model."""
    unread: tuple[SignatureRequest, ...] = ()
    """What the last plan asks pods for."""
    polls: bool = False
    """The last plan asks for counters."""
    queries: tuple[str, ...] = ()
    """What the last plan asks of Prometheus."""
    prometheus: Callable[[str], tuple[Series, ...] | Unknown] = field(default=no_series)
    """Answers a query."""
    device_classes: Mapping[str, Object] | Unknown = NO_DEVICE_CLASSES
    downloads: dict[str, DownloadProgress] = field(default_factory=dict)
    """What the pods that download have reported."""
    job_pods: tuple[Object, ...] = ()
    """The pods of Jobs."""
    unscraped: str = ""
    """Why Prometheus has no counters of the gateways."""

    def observation(self) -> Observation:
        """What the operator sees now."""
        key = "{namespace}/{name}".format_map(self.service["metadata"])
        return Observation(
            service=self.service,
            hardware_classes=self.hardware_classes,
            runtimes=self.runtimes,
            cluster_runtimes=self.cluster_runtimes,
            children=Children(
                revisions=self.of("ControllerRevision"),
                deployments=self.of("Deployment"),
                services=self.of("Service"),
                disruption_budgets=self.of("PodDisruptionBudget"),
                pods=(*self.pods.values(), *self.job_pods),
                endpoint_slices=self.endpoint_slices(),
                jobs=self.of("Job"),
                claim_templates=self.of("ResourceClaimTemplate"),
            ),
            device_classes=self.device_classes,
            downloads=self.downloads,
            claims=self.of("PersistentVolumeClaim"),
            gateways={name: gateway.report(key) for name, gateway in self.gateways.items()},
            settings=SETTINGS,
            refused_writes=self.refused_writes,
            readings=self.readings() if self.polls else None,
            signatures=self.signatures(),
            sizes=self.sizes,
        )

    def signatures(self) -> Mapping[str, ModelSignature | Unknown] | Unknown:
        """The answers to what the last plan asks for."""
        if isinstance(self.models, Unknown):
            return self.models
        asked = {each.revision: each.revision.split("-")[1] for each in self.unread}
        return {name: self.models[number] for name, number in asked.items() if number in self.models}

    def readings(self) -> PollResults:
        """A round of counters."""
        by_pod = {name: gateway.reading() for name, gateway in self.gateways.items()}
        metrics = {query: self.prometheus(query) for query in self.queries}
        return PollResults(by_pod, frozenset(by_pod), self.unscraped, metrics)

    def plan(self) -> Plan:
        """The decision on what is, with every input left as it was."""
        observation = self.observation()
        self.seen_ready = self.ready_revisions()
        # Bytes are made several times as fast as a deep copy, which takes half of the time of a look.
        before = pickle.dumps(observation)
        plan = self.decided(observation)
        assert pickle.dumps(observation) == before
        return plan

    def decided(self, observation: Observation) -> Plan:
        """The decision on this observation, with the rendering that it asks for."""
        reading = read(observation)
        request = wanted_rendering(reading)
        rendering = rendered(request) if request is not None else None
        assert rendering is None or isinstance(rendering, RenderFailed) or json.loads(rendering.template_json)
        return decide(reading, draft(reading, rendering), self.now)

    def reconcile(self, *, crash_after: int | None = None) -> Plan:
        """Decide and execute; `crash_after` writes the operator dies."""
        plan = self.plan()
        self.polls, self.queries, self.unread = plan.poll_counters, plan.queries, plan.unread
        self.now += timedelta(seconds=1)
        for done, write in enumerate(plan.writes):
            if done == crash_after:
                return plan
            self.write(write)
        if plan.status is not None and crash_after is None:
            self.check_weight(plan.status)
            self.service["status"] = copied(dict(plan.status))
            self.touch(self.service)
        return plan

    def settle(self, rounds: int = 60) -> None:
        """Everything works: pods get ready, gateways follow, time passes, until nothing changes any more."""
        for gateway in self.gateways.values():
            gateway.readable = True
        for _ in range(rounds):
            self.work()
            plan = self.reconcile()
            if plan.writes or plan.status is not None:
                continue
            if plan.requeue_after is None:
                return
            self.now += plan.requeue_after
        raise AssertionError(f"no fixed point after {rounds} rounds: {plan}")

    # Questions.

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = next(c for c in self.service["status"]["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        """Message of a condition."""
        found = next(c for c in self.service["status"]["conditions"] if c["type"] == kind)
        return str(found["message"])

    @property
    def rollout(self) -> dict[str, Any]:
        """status.rollout."""
        found: dict[str, Any] = self.service["status"]["rollout"]
        return found

    def weights(self) -> dict[str, int]:
        """status.traffic by the number of the revision."""
        backends = self.service["status"]["traffic"]["backends"]
        return {backend["revision"].split("-")[1]: backend["weight"] for backend in backends}

    def serving(self) -> list[str]:
        """The revisions that status.traffic points to."""
        return [backend["revision"] for backend in self.service["status"]["traffic"]["backends"]]
