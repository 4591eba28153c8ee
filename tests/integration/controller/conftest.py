"""Fixtures of the operator's integration tests."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tailbound.api.names import API_VERSION, DEFAULT_CLASS_ANNOTATION
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration

from e2e.cluster import ControlPlane
from tests.integration.controller.environment import NAMESPACES, Environment

CRDS = Path(__file__).parents[3] / "crds"
CLUSTER_OBJECTS = f"""
apiVersion: {API_VERSION}
kind: HardwareClass
metadata: {{name: cpu, annotations: {{{DEFAULT_CLASS_ANNOTATION}: "true"}}}}
spec: {{}}
---
apiVersion: {API_VERSION}
kind: ClusterServingRuntime
metadata: {{name: onnxruntime}}
spec:
  formats: [{{name: onnx}}]
  server:
    image: runtime:test
    args: ["--model={{{{ model.path }}}}"]
    ports: [{{name: http, containerPort: 8080}}]
    readinessProbe: {{httpGet: {{path: /v2/health/ready, port: http}}}}
"""
_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our kinds, a default class and a runtime."""
    control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    control_plane.kubectl("apply", "-f", "-", input=CLUSTER_OBJECTS)
    return control_plane


@pytest.fixture
async def environment(api: ControlPlane) -> AsyncIterator[Environment]:
    """Two fresh namespaces, a connection, and two gateways that acknowledge everything."""
    configuration = await load_configuration({"KUBECONFIG": str(api.kubeconfig)})
    cluster = AioCluster(configuration, user_agent="test")
    number = next(_NUMBER)
    names = (f"services-{number}", f"system-{number}")
    for name in names:
        await cluster.insert(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    # A port that no environment of another process has: all of them listen at this address.
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    made = Environment(api, cluster, *names, port=port)
    runners = []
    for index in (2, 3):
        gateway = made.gateway(f"gateway-{index}", f"127.0.0.{index}")
        runners.append(await gateway.serve(port))
        await gateway.appear()
    yield made
    for runner in runners:
        await runner.cleanup()
    await cluster.close()
    # aiohttp ends TLS connections in the background; the event loop must not be gone before.
    await asyncio.sleep(0.25)
