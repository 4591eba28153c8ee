"""The children of a service on the real API server: what it makes of them is no difference, and hands are."""

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tailbound.api.names import SERVICE_LABEL
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration
from tailbound.kube.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    SERVICES,
    Resource,
    resource_of,
)
from tailbound.reconcile.model import Create, Delete, DryRun, Plan

from e2e.cluster import ControlPlane
from tests.support.simulated.objects import NAME, hardware_class, runtime, service
from tests.support.simulated.simulator import Simulator

NAMESPACES = Resource("v1", "Namespace", "namespaces", namespaced=False)
CHILDREN = (CONTROLLER_REVISIONS, DEPLOYMENTS, SERVICES, DISRUPTION_BUDGETS)
MOST_ROUNDS = 60
_NUMBER = itertools.count(1)

# Everything that the API server writes its own way: quantities, empty values, defaults of probes and ports.
RICH_SPEC: dict[str, Any] = {
    "resources": {"cpu": "1500m", "memory": "1024Mi"},
    "env": [{"name": "EMPTY", "value": ""}, {"name": "MARKUP", "value": "<&> é \u2028"}],
    "labels": {"team": "risk"},
    "annotations": {"note": "<&>"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "reader",
    "timeout": "2500ms",
    "scaling": {"min": 2},
    "hardware": {"class": ["cpu", "spare"]},
}
RICH_CLASS = hardware_class(
    resources=[
        {"name": "nvidia.com/gpu", "count": 1},
        {"name": "nvidia.com/gpumem", "count": 8000},
        {"name": "deviceclass.resource.kubernetes.io/gpu.example.com", "count": 2},
    ],
    nodeSelector={"accelerator": "l4"},
    tolerations=[
        {"key": "gpu", "operator": "Exists"},
        {"key": "spot", "value": "yes", "effect": "NoSchedule"},
    ],
    runtimeClassName="nvidia",
    priorityClassName="serving",
)
RICH_RUNTIME = runtime(
    command=["/server"],
    env=[{"name": "A", "value": "{{ hardware.devices }}"}],
    ports=[{"name": "http", "containerPort": 8080}, {"name": "grpc", "containerPort": 8081}],
    startupProbe={"httpGet": {"port": "http"}, "failureThreshold": 60},
    readinessProbe={"grpc": {"port": 8081}},
    livenessProbe={"tcpSocket": {"port": 8080}, "initialDelaySeconds": 0},
)
SERVICES_OF_ALL_KINDS = {
    "plain": Simulator(),
    "rich": Simulator(
        service=service(**RICH_SPEC),
        hardware_classes={"cpu": RICH_CLASS, "spare": hardware_class("spare")},
        cluster_runtimes={"onnxruntime": RICH_RUNTIME},
    ),
}


@dataclass
class Live:
    """A simulated service whose children live on the real API server."""

    control_plane: ControlPlane
    cluster: AioCluster
    namespace: str
    simulator: Simulator

    async def execute(self, plan: Plan) -> None:
        """The plan's writes, for real; its status stays simulated."""
        for write in plan.writes:
            if isinstance(write, Delete):
                resource = resource_of(write.api_version, write.kind)
                await self.cluster.delete(
                    resource, write.namespace, write.name, write.uid, write.resource_version
                )
                continue
            resource = resource_of(write.body["apiVersion"], write.body["kind"])
            if isinstance(write, Create):
                await self.cluster.create(resource, write.body)
            else:
                await self.cluster.apply(resource, write.body, dry_run=isinstance(write, DryRun))
        if plan.status is not None:
            self.simulator.service["status"] = dict(plan.status)
        await self.refresh()

    async def refresh(self) -> None:
        """Read every child."""
        self.simulator.objects.clear()
        for resource in CHILDREN:
            listing = await self.cluster.list(
                resource, self.namespace, label_selector=f"{SERVICE_LABEL}={NAME}"
            )
            for item in listing.items:
                self.simulator.objects[resource.kind, item["metadata"]["name"]] = dict(item)

    async def serve(self) -> None:
        """To the fixed point, with pods and gateways simulated."""
        for _ in range(MOST_ROUNDS):
            await self.refresh()
            plan = self.simulator.plan()
            changes = plan.writes or plan.status is not None
            if not changes and not plan.poll_counters and plan.requeue_after is None:
                return
            await self.execute(plan)
            self.simulator.polls = plan.poll_counters
            self.simulator.now += plan.requeue_after or timedelta(seconds=1)
            self.simulator.run_controllers()
            for pod in self.simulator.pods:
                self.simulator.make_ready(pod)
            for gateway in self.simulator.gateways:
                self.simulator.sync(gateway)
        raise AssertionError(f"no fixed point after {MOST_ROUNDS} rounds: {plan}")


@pytest.fixture(params=SERVICES_OF_ALL_KINDS)
async def live(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """A service that serves."""
    namespace = f"children-{next(_NUMBER)}"
    cluster = AioCluster(
        await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)}), user_agent="test"
    )
    await cluster.insert(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    template = SERVICES_OF_ALL_KINDS[request.param]
    simulator = Simulator(
        service=json.loads(json.dumps(template.service)),
        hardware_classes=template.hardware_classes,
        cluster_runtimes=template.cluster_runtimes,
    )
    simulator.service["metadata"]["namespace"] = namespace
    made = Live(control_plane, cluster, namespace, simulator)
    await made.serve()
    yield made
    await cluster.close()


async def test_an_idle_service_finds_no_difference(live: Live) -> None:
    assert live.simulator.condition("Ready") == ("True", "Serving")
    assert live.simulator.plan().writes == ()
    marks = live.simulator.of("ControllerRevision")[0]["metadata"]["annotations"]
    assert marks["tailbound.dev/stable"] == "true"


async def test_hands_of_others_stay_and_are_no_difference(live: Live) -> None:
    (name,) = live.simulator.names("Deployment")
    kubectl = live.control_plane.kubectl
    kubectl("rollout", "restart", f"deployment/{name}", "-n", live.namespace)
    for child in (f"deployment/{name}", f"service/{NAME}", f"controllerrevision/{name}"):
        kubectl("annotate", child, "team=risk", "-n", live.namespace)
        kubectl("label", child, "colour=blue", "-n", live.namespace)
    await live.refresh()
    assert live.simulator.plan().writes == ()
    kubectl("scale", f"deployment/{name}", "--replicas=5", "-n", live.namespace)
    await live.refresh()
    await live.execute(live.simulator.plan())
    stored = live.simulator.objects["Deployment", name]
    assert stored["spec"]["replicas"] == live.simulator.service["spec"].get("scaling", {}).get("min", 1)
    assert stored["metadata"]["annotations"]["team"] == "risk"
    assert "kubectl.kubernetes.io/restartedAt" in stored["spec"]["template"]["metadata"]["annotations"]
    assert live.simulator.plan().writes == ()


async def test_what_somebody_changed_is_changed_back(live: Live) -> None:
    (name,) = live.simulator.names("Deployment")
    kubectl = live.control_plane.kubectl
    kubectl("set", "image", f"deployment/{name}", "server=other:1", "-n", live.namespace)
    kubectl(
        "patch", "service", NAME, "-n", live.namespace, "-p", '{"spec":{"externalName":"evil.example.com"}}'
    )
    kubectl("patch", "service", name, "-n", live.namespace, "-p", '{"spec":{"selector":{"team":"risk"}}}')
    kubectl("rollout", "pause", f"deployment/{name}", "-n", live.namespace)
    budgets = live.simulator.names("PodDisruptionBudget")
    for budget in budgets:
        label = '{"spec":{"selector":{"matchLabels":{"team":"risk"}}}}'
        kubectl("patch", "pdb", budget, "-n", live.namespace, "--type=merge", "-p", label)
    await live.refresh()
    plan = live.simulator.plan()
    written = sorted(write.kind if isinstance(write, Delete) else write.body["kind"] for write in plan.writes)
    assert written == ["Deployment", *["PodDisruptionBudget"] * len(budgets), "Service", "Service"]
    await live.execute(plan)
    assert live.simulator.plan().writes == ()
    deployment = live.simulator.objects["Deployment", name]["spec"]
    assert not deployment.get("paused")
    (server,) = deployment["template"]["spec"]["containers"]
    assert server["image"] == "registry.example.com/runtime:1"
    assert live.simulator.objects["Service", name]["spec"]["selector"] == {"tailbound.dev/revision": name}
    front = live.simulator.objects["Service", NAME]
    assert front["spec"]["externalName"] == "tailbound-gateway.tailbound-system.svc.cluster.local"


async def test_a_rollover_moves_the_stable_mark_and_returning_reuses_the_revision(live: Live) -> None:
    (old,) = live.simulator.names("Deployment")
    before = live.simulator.objects["Deployment", old]["spec"]["template"]
    model = live.simulator.service["spec"]["model"]
    live.simulator.edit(model=model | {"sha256": "b" * 64})
    await live.serve()
    (new,) = live.simulator.names("Deployment")
    assert new != old
    assert sorted(live.simulator.names("ControllerRevision")) == sorted([old, new])
    marks = live.simulator.objects["ControllerRevision", old]["metadata"]["annotations"]
    assert "tailbound.dev/stable" not in marks
    assert "tailbound.dev/promoted-at" in marks
    live.simulator.edit(model=model)
    await live.serve()
    assert live.simulator.names("Deployment") == [old]
    assert live.simulator.objects["Deployment", old]["spec"]["template"] == before
    assert live.simulator.condition("Ready") == ("True", "Serving")
    assert live.simulator.plan().writes == ()


async def test_the_stored_template_survives_the_api_server_byte_for_byte(live: Live) -> None:
    (stored,) = live.simulator.of("ControllerRevision")
    template = json.loads(stored["data"]["template"])
    fresh = Simulator(
        service=live.simulator.service | {"status": {}},
        hardware_classes=live.simulator.hardware_classes,
        cluster_runtimes=live.simulator.cluster_runtimes,
    )
    (record,) = (w.body for w in fresh.plan().writes if w.body["kind"] == "ControllerRevision")  # type: ignore[union-attr]
    assert stored["data"] == record["data"]
    assert template["metadata"]["labels"][SERVICE_LABEL] == NAME
