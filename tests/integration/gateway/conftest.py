"""Pods and gateways of one test, stopped when it ends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.integration.gateway.gateway_lab import Gateway, Pods, gateway_pod


@pytest_asyncio.fixture
async def pods() -> AsyncIterator[Pods]:
    """Small servers for pods."""
    running = Pods()
    yield running
    await running.close()


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway pod with an API that holds nothing yet."""
    async with gateway_pod(tmp_path) as running:
        yield running
