"""A gateway tells what it has applied over TLS only."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from tailbound.api.traffic import Observed
from tailbound.controller.observed_client import ObservedAccess, ObservedClient

from tests.integration.gateway.gateway_lab import Gateway
from tests.integration.gateway.scripted_cluster import OPERATOR_TOKEN

POD = {"status": {"podIP": "127.0.0.1"}}


@pytest_asyncio.fixture
async def reader(gateway: Gateway, tmp_path: Path) -> AsyncIterator[ObservedClient]:
    """The operator's client of this gateway."""
    token = tmp_path / "token"
    token.write_text(OPERATOR_TOKEN)
    client = ObservedClient(ObservedAccess(token, gateway.tls / "ca.crt"), gateway.observed_port)
    yield client
    await client.close()


async def test_gateway_is_read_over_tls_only(gateway: Gateway, reader: ObservedClient) -> None:
    await gateway.until_ready()
    assert isinstance(await reader(POD), Observed)
    with pytest.raises(aiohttp.ClientError):
        await gateway.client.get(f"http://127.0.0.1:{gateway.observed_port}/observed")
