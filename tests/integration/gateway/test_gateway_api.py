"""The sidecar against a real API server: its watches, its token reviews, and namespaces of its own."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tailbound.api.names import API_VERSION, OBSERVED_AUDIENCE
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration

from e2e.cluster import ControlPlane
from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods, gateway_pod, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service

CRD = Path(__file__).parents[3] / "crds" / "tailbound.dev_inferenceservices.yaml"
HTTP = free_port()


class Kubectl:
    """kubectl in a thread, as the gateway runs in this one."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    async def __call__(self, *arguments: str, stdin: Any = None) -> str:
        given = None if stdin is None else json.dumps(stdin)
        return await asyncio.to_thread(self._control_plane.kubectl, *arguments, input=given)

    async def service(self, namespace: str, name: str, weights: dict[str, int], generation: int) -> None:
        """Create an InferenceService if need be, and write its status.traffic by hand."""
        body = inference_service(namespace, name, weights, traffic_generation=generation)
        model = {"uri": "http://models.test/a.onnx", "format": "onnx", "sha256": "a" * 64}
        metadata = {"namespace": namespace, "name": name}
        obj = {"apiVersion": API_VERSION, "kind": "InferenceService", "metadata": metadata}
        await self("apply", "--server-side", "-f", "-", stdin={**obj, "spec": {"model": model}})
        patch = json.dumps({"status": body["status"]})
        await self(
            *("patch", "inferenceservices", name, "-n", namespace),
            *("--subresource=status", "--type=merge", "-p", patch),
        )

    async def pods(self, namespace: str, service: str, revision: str, *addresses: str) -> None:
        """Write the EndpointSlice of a revision."""
        endpoints = [(address, "ready") for address in addresses]
        obj = dict(endpoint_slice(namespace, service, revision, endpoints, {"http": HTTP}))
        labels = obj["metadata"]["labels"]
        obj["metadata"] = {"namespace": namespace, "name": f"{revision}-slice", "labels": labels}
        head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}
        await self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin={**head, **obj})


@pytest.fixture(scope="session")
def kubectl(control_plane: ControlPlane) -> Kubectl:
    """kubectl, with our kind installed and the namespaces of these tests there."""
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=120s", "-f", str(CRD))
    for namespace in ("gw-risk", "gw-other", "tailbound-system"):
        namespace_body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(namespace_body))
    for account in ("tailbound-operator", "somebody"):
        body = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"namespace": "tailbound-system", "name": account},
        }
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))
    return Kubectl(control_plane)


@asynccontextmanager
async def real_gateway(
    directory: Path, control_plane: ControlPlane, *namespaces: str
) -> AsyncIterator[Gateway]:
    """A gateway pod that watches the real API server."""
    cluster = AioCluster(await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)}))
    try:
        async with gateway_pod(directory, cluster, namespaces) as gateway:  # type: ignore[arg-type]
            yield gateway
    finally:
        await cluster.close()


async def token(kubectl: Kubectl, account: str, audience: str) -> str:
    """A short-lived token of a ServiceAccount."""
    return (
        await kubectl("create", "token", account, "-n", "tailbound-system", f"--audience={audience}")
    ).strip()


async def test_follows_the_real_api(
    tmp_path: Path, control_plane: ControlPlane, kubectl: Kubectl, pods: Pods
) -> None:
    operator = await token(kubectl, "tailbound-operator", OBSERVED_AUDIENCE)
    address = own_address()
    await pods.http("r1", address, HTTP)
    await kubectl.service("gw-risk", "churn", {"r1": 100}, 1)
    async with real_gateway(tmp_path, control_plane, "gw-risk") as gateway:
        gateway.token = operator
        await gateway.until_applied("gw-risk/churn", 1)
        assert (await gateway.call("churn.gw-risk"))[0] == 503
        await kubectl.pods("gw-risk", "churn", "r1", address)
        await until("its pod answers", lambda: _status(gateway, "churn.gw-risk", 200))
        await kubectl.service("gw-risk", "churn", {"r1": 50, "r2": 50}, 2)
        await gateway.until_applied("gw-risk/churn", 2)
        await kubectl.service("gw-other", "hidden", {"r1": 100}, 1)
        await kubectl("delete", "inferenceservices", "churn", "-n", "gw-risk")
        await until("it is forgotten", lambda: _status(gateway, "churn.gw-risk", 421))
        # It is in a namespace that this gateway does not watch.
        assert (await gateway.call("hidden.gw-other"))[0] == 421
        assert (await gateway.observed())["services"] == {}


async def _status(gateway: Gateway, host: str, wanted: int) -> bool:
    return (await gateway.call(host))[0] == wanted


def own_address() -> str:
    """An address of this machine that EndpointSlices may hold: loopback ones are refused. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


async def test_tokens_are_reviewed_by_the_api_server(
    tmp_path: Path, control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    cases = [
        ("tailbound-operator", OBSERVED_AUDIENCE, 200),
        ("tailbound-operator", "somewhere-else", 401),
        ("somebody", OBSERVED_AUDIENCE, 403),
    ]
    async with real_gateway(tmp_path, control_plane) as gateway:
        await gateway.until_ready()
        for account, audience, status in cases:
            bearer = await token(kubectl, account, audience)
            found, body = await gateway.status_of_token(f"Bearer {bearer}")
            assert found == status, (account, audience, body)
