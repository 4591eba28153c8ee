"""Reads /observed of a gateway pod, by its address, with the operator's projected token and over TLS."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import ValidationError

from tailbound.api.names import GATEWAY_OBSERVED_PORT, OBSERVED_TLS_NAME
from tailbound.api.traffic import Observed, ObservedQuestion
from tailbound.kube.objects import Key
from tailbound.objects.fields import Object
from tailbound.objects.pod import Pod
from tailbound.objects.unknown import Unknown

TIMEOUT_SECONDS = 2.0
_LONGEST_REASON = 300


@dataclass(frozen=True)
class ObservedAccess:
    """Files with the token to send, and with the authorities whose certificate a gateway must have."""

    token_file: Path
    ca_file: Path


class ObservedClient:
    """Reads gateway pods. The files are read every time: the kubelet replaces them.

    `access`: None sends no token, over plain HTTP.
    """

    def __init__(self, access: ObservedAccess | None, port: int = GATEWAY_OBSERVED_PORT) -> None:
        self._access = access
        self._port = port
        self._trusted = ("", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        """The authorities of the last request, and the context made of them."""
        self._session: aiohttp.ClientSession | None = None

    async def __call__(
        self, pod: Object, services: Sequence[Key] = (), *, counters: bool = False
    ) -> Observed | Unknown:
        """What the pod reports of at most MOST_ASKED services, or of all if none is named.

        `counters`: with the requests that Envoy has counted of the named services.
        """
        method, body = ("POST", _question(services, counters)) if services else ("GET", None)
        try:
            scheme = "http" if self._access is None else "https"
            security = {} if self._access is None else await asyncio.to_thread(self._secured, self._access)
            async with self._open().request(
                method, f"{scheme}://{Pod(pod).host}:{self._port}/observed", data=body, **security
            ) as response:
                if response.status != 200:
                    return Unknown(f"/observed answers {response.status}{_why(await response.read())}")
                return Observed.model_validate_json(await response.read())
        except ValidationError as error:
            return Unknown(f"/observed is not understood: {error.error_count()} fields are wrong")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unknown(f"/observed is not reached: {str(error) or type(error).__name__}")

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    def _secured(self, access: ObservedAccess) -> Mapping[str, Any]:
        """Arguments of a request. Raises OSError for files that cannot be used."""
        authorities, token = access.ca_file.read_text("ascii"), access.token_file.read_text("utf-8")
        if authorities != self._trusted[0]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=authorities)
            self._trusted = (authorities, context)
        return {
            "headers": {"Authorization": f"Bearer {token.strip()}"},
            "ssl": self._trusted[1],
            "server_hostname": OBSERVED_TLS_NAME,
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


def _question(services: Sequence[Key], counters: bool) -> bytes:
    question = ObservedQuestion(services=tuple("/".join(key) for key in services), counters=counters)
    return question.model_dump_json(by_alias=True).encode()


def _why(body: bytes) -> str:
    """What the gateway says is wrong, if it says it."""
    try:
        return f": {json.loads(body)['error']}"[:_LONGEST_REASON]
    except (ValueError, KeyError, TypeError):
        return ""
