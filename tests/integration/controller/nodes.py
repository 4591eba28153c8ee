"""Stand-ins for nodes, their kubelets, and the controllers that make and remove pods."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tailbound.api.names import REVISION_LABEL, SERVICE_LABEL
from tailbound.kube.resources import DEPLOYMENTS, ENDPOINT_SLICES, PODS
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.support.tasks import beside


@asynccontextmanager
async def kubelet(environment: Environment) -> AsyncIterator[None]:
    """Stands in for the controller manager and the kubelet: Deployments get Ready pods and EndpointSlices."""

    async def run() -> None:
        while True:
            cluster, namespace = environment.cluster, environment.namespace
            # One whose label was taken off belongs to nobody until it has it back.
            deployments = (await cluster.list(DEPLOYMENTS, namespace, SERVICE_LABEL)).items
            found = (await cluster.list(ENDPOINT_SLICES, namespace)).items
            slices = {each["metadata"]["name"]: each for each in found}
            for deployment in deployments:
                with suppress(Exception):
                    found_slice = slices.get(deployment["metadata"]["name"])
                    await _serve_deployment(environment, deployment, found_slice)
            await asyncio.sleep(0.1)

    async with beside(run()):
        yield


async def _serve_deployment(environment: Environment, deployment: Object, found: Object | None) -> None:
    cluster, meta, pods = environment.cluster, deployment["metadata"], deployment["spec"]["replicas"]
    if meta.get("deletionTimestamp"):
        await _bury(environment, deployment, found)
        return
    status = deployment.get("status") or {}
    known = (status.get("replicas", 0), status.get("readyReplicas", 0), status.get("observedGeneration"))
    if known != (pods, pods, meta["generation"]):
        await cluster.replace_status(
            DEPLOYMENTS,
            {
                **deployment,
                "status": {
                    "observedGeneration": meta["generation"],
                    "replicas": pods,
                    "updatedReplicas": pods,
                    "readyReplicas": pods,
                    "availableReplicas": pods,
                },
            },
        )
    if found is None:
        await cluster.insert(ENDPOINT_SLICES, _slice(deployment, pods))
    elif len(found["endpoints"] or ()) != pods:
        endpoints = _slice(deployment, pods)["endpoints"]
        await cluster.replace(ENDPOINT_SLICES, {**found, "endpoints": endpoints})


async def _bury(environment: Environment, deployment: Object, stale: Object | None) -> None:
    """What the garbage collector does after a foreground deletion."""
    meta = {**deployment["metadata"], "finalizers": []}
    await environment.cluster.replace(DEPLOYMENTS, {**deployment, "metadata": meta})
    if stale is not None:
        found = stale["metadata"]
        await environment.cluster.delete(
            ENDPOINT_SLICES, meta["namespace"], meta["name"], found["uid"], found["resourceVersion"]
        )


def _slice(deployment: Object, pods: int) -> Object:
    meta = deployment["metadata"]
    labels = {key: meta["labels"][key] for key in (SERVICE_LABEL, REVISION_LABEL)}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": meta["namespace"], "name": meta["name"], "labels": labels},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.244.0.{index + 1}"], "conditions": {"ready": True}} for index in range(pods)
        ],
        "ports": [{"name": "http", "port": 8080}],
    }


@asynccontextmanager
async def nodes(environment: Environment) -> AsyncIterator[None]:
    """Stands in for ReplicaSets and the kubelet: as many Ready Pods as each Deployment asks for."""

    async def run() -> None:
        while True:
            for deployment in (await environment.cluster.list(DEPLOYMENTS, environment.namespace)).items:
                with suppress(Exception):
                    await _run_pods(environment, deployment)
            await asyncio.sleep(0.1)

    async with beside(run()):
        yield


async def _run_pods(environment: Environment, deployment: Object) -> None:
    cluster, meta = environment.cluster, deployment["metadata"]
    revision = meta["labels"][REVISION_LABEL]
    listing = await cluster.list(PODS, meta["namespace"], f"{REVISION_LABEL}={revision}")
    found, wanted = list(listing.items), deployment["spec"]["replicas"]
    for pod in found[wanted:]:
        about = pod["metadata"]
        await cluster.delete(
            PODS, about["namespace"], about["name"], about["uid"], about["resourceVersion"], "Background"
        )
    for _ in range(wanted - len(found)):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": meta["namespace"],
                "name": f"{revision}-{uuid.uuid4().hex[:6]}",
                "labels": {key: meta["labels"][key] for key in (SERVICE_LABEL, REVISION_LABEL)},
            },
            "spec": {"containers": [{"name": "server", "image": "runtime"}]},
        }
        created = await cluster.insert(PODS, body)
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": created["metadata"]["creationTimestamp"]}
            for kind in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "conditions": conditions}
        await cluster.replace_status(PODS, {**created, "status": status})
