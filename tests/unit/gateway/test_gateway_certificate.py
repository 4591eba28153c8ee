"""The sidecar's certificate is replaced without a restart."""

import asyncio
import ssl
from pathlib import Path

import trustme
from tailbound.gateway.certificate import ServerCertificate

from tests.support.certificates import write_certificate


async def test_replaced_certificate_is_served_and_trusted_without_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    write_certificate(folder, trustme.CA())
    served = ServerCertificate(folder)
    follow = asyncio.create_task(served.run(every_seconds=0.01))

    def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def trusted() -> bool:
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.check_hostname = False
        try:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=context)
        except ssl.SSLError:
            return False
        writer.close()
        return True

    async with await asyncio.start_server(end, "127.0.0.1", 0, ssl=served.context) as server:
        assert await trusted()
        (folder / "tls.key").write_text("half written")
        await asyncio.sleep(0.05)
        write_certificate(folder, trustme.CA())
        async with asyncio.timeout(60):
            while not await trusted():  # noqa: ASYNC110 - the files are looked at every 10 ms
                await asyncio.sleep(0.01)
    follow.cancel()
