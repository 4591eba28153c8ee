"""Fixtures of the operator's integration tests."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration

from e2e.cluster import ControlPlane
from e2e.cluster.ports import free_port
from tests.integration.controller.environment import NAMESPACES, Environment
from tests.support.cluster_objects import install_kinds

_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our kinds, a default class and a runtime."""
    install_kinds(control_plane)
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
    port = free_port("127.0.0.2")
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
