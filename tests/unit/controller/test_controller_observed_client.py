"""The operator's token reaches gateways of the installation only."""

import asyncio
from pathlib import Path

import trustme
from tailbound.controller.observed_client import ObservedAccess, ObservedClient
from tailbound.gateway.certificate import ServerCertificate
from tailbound.objects.unknown import Unknown

from tests.support.certificates import write_certificate


async def test_token_is_not_sent_to_a_pod_with_another_certificate(tmp_path: Path) -> None:
    received: list[bytes] = []

    async def listen(stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await stream.read(4096))
        writer.close()

    for name in ("own", "foreign"):
        write_certificate(tmp_path / name, trustme.CA())
    (tmp_path / "token").write_text("secret")
    foreign = ServerCertificate(tmp_path / "foreign").context
    async with await asyncio.start_server(listen, "127.0.0.1", 0, ssl=foreign) as server:
        access = ObservedAccess(tmp_path / "token", tmp_path / "own" / "ca.crt")
        client = ObservedClient(access, server.sockets[0].getsockname()[1])
        answer = await client({"status": {"podIP": "127.0.0.1"}})
    await client.close()
    assert isinstance(answer, Unknown)
    assert "certificate verify failed" in answer.reason
    assert b"".join(received) == b""
