"""GET /observed of a gateway pod, by its address, with the operator's projected token."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from tailbound.api.names import GATEWAY_OBSERVED_PORT
from tailbound.api.traffic import Observed
from tailbound.kube.objects import Key
from tailbound.kube.protocol import Object
from tailbound.reconcile.model import Unread

TIMEOUT_SECONDS = 2.0


class ObservedClient:
    """Reads gateway pods. The token file is read every time: the kubelet rotates it."""

    def __init__(self, token_file: Path | None, port: int = GATEWAY_OBSERVED_PORT) -> None:
        self._token_file = token_file
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, pod: Object, services: Iterable[Key]) -> Observed | Unread:
        """What the pod reports, or why it could not be read."""
        address = str(pod["status"]["podIP"])
        host = f"[{address}]" if ":" in address else address
        query = [("service", f"{namespace}/{name}") for namespace, name in services]
        try:
            headers = {} if self._token_file is None else await self._authorization(self._token_file)
            async with self._open().get(
                f"http://{host}:{self._port}/observed", params=query, headers=headers
            ) as response:
                if response.status != 200:
                    return Unread(f"/observed answers {response.status}")
                return Observed.model_validate_json(await response.read())
        except ValidationError as error:
            return Unread(f"/observed is not understood: {error.error_count()} fields are wrong")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unread(f"/observed is not reached: {str(error) or type(error).__name__}")

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    @staticmethod
    async def _authorization(token_file: Path) -> dict[str, str]:
        token = await asyncio.to_thread(token_file.read_text, "utf-8")
        return {"Authorization": f"Bearer {token.strip()}"}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session
