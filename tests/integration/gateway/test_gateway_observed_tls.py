"""The operator's token reaches gateways of the installation only, and never in clear text."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import trustme
from tailbound.api.traffic import Observed
from tailbound.controller.observed_client import ObservedAccess, ObservedClient
from tailbound.gateway.certificate import ServerCertificate
from tailbound.objects.unknown import Unknown

from tests.integration.gateway.gateway_lab import Gateway, free_port, until, write_certificate
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


async def test_token_is_not_sent_to_a_pod_with_another_certificate(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def listen(stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await stream.read(4096))
        writer.close()

    for name in ("own", "foreign"):
        write_certificate(tmp_path / name, trustme.CA())
    (tmp_path / "token").write_text("secret")
    port = free_port()
    foreign = ServerCertificate(tmp_path / "foreign").context
    client = ObservedClient(ObservedAccess(tmp_path / "token", tmp_path / "own" / "ca.crt"), port)
    async with await asyncio.start_server(listen, "127.0.0.1", port, ssl=foreign):
        answer = await client(POD)
    await client.close()
    assert isinstance(answer, Unknown)
    assert "certificate verify failed" in answer.reason
    assert b"".join(received) == b""


async def test_replaced_certificate_is_served_and_trusted_without_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    write_certificate(folder, trustme.CA())
    served = ServerCertificate(folder)
    follow = asyncio.create_task(served.run(every_seconds=0.01))

    def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    port = free_port()

    async def trusted() -> bool:
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.check_hostname = False
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except ssl.SSLError:
            return False
        writer.close()
        return True

    async with await asyncio.start_server(end, "127.0.0.1", port, ssl=served.context):
        assert await trusted()
        (folder / "tls.key").write_text("half written")
        await asyncio.sleep(0.05)
        write_certificate(folder, trustme.CA())
        await until("the new certificate is served", trusted)
    follow.cancel()
