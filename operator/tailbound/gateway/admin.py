"""Envoy's admin interface, over the Unix socket in the run directory."""

import errno
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=5.0)
# They are in the address of the request, whose length is bounded.
_MOST_VALUES = 64
# Characters of an answer that an error shows.
_SHOWN = 200


class NoAnswerError(Exception):
    """Envoy gave no usable answer. Whether it runs is not known: it may be busy, or have just ended."""


class EnvoyAwayError(NoAnswerError):
    """No process listens on the socket: Envoy has not started yet, or it is gone."""


@dataclass(frozen=True)
class ServerInfo:
    """State and age of one Envoy process."""

    live: bool
    """Whether it has a first configuration and listens."""
    uptime: timedelta
    """In whole seconds."""


class EnvoyAdmin:
    """A client; calls have a time-out. They raise NoAnswerError, or EnvoyAwayError if Envoy does not run."""

    def __init__(self, socket: Path) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(socket), force_close=True), timeout=TIMEOUT
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def server_info(self) -> ServerInfo:
        """State and uptime."""
        text = await self._ask("GET", "/server_info")
        try:
            body = json.loads(text)
            seconds = int(str(body["uptime_current_epoch"]).removesuffix("s"))
            return ServerInfo(live=body["state"] in ("LIVE", "DRAINING"), uptime=timedelta(seconds=seconds))
        except (ValueError, LookupError, TypeError) as error:
            raise NoAnswerError(f"GET /server_info: {error!r} in {text[:_SHOWN]!r}") from error

    async def prometheus(self) -> str:
        """The allow-listed metrics in Prometheus' text format."""
        return await self._ask("GET", "/stats/prometheus")

    async def counters(self, pattern: str) -> str:
        """Counters whose name matches a regular expression, as lines of `NAME: VALUE`."""
        return await self._ask("GET", "/stats", {"filter": pattern, "type": "Counters"})

    async def gauges(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose name matches a regular expression."""
        text = await self._ask("GET", "/stats", {"filter": pattern})
        return {name: int(value) for name, value in re.findall(r"^(\S+): (\d+)$", text, re.MULTILINE)}

    async def runtime_keys(self) -> list[str]:
        """Names of the runtime values that are set."""
        text = await self._ask("GET", "/runtime")
        try:
            return list(json.loads(text)["entries"])
        except (ValueError, LookupError, TypeError) as error:
            raise NoAnswerError(f"GET /runtime: {error!r} in {text[:_SHOWN]!r}") from error

    async def modify_runtime(self, values: Mapping[str, str]) -> None:
        """Set runtime values; an empty one is removed."""
        items = sorted(values.items())
        for first in range(0, len(items), _MOST_VALUES):
            await self._ask("POST", "/runtime_modify", dict(items[first : first + _MOST_VALUES]))

    async def fail_health(self) -> None:
        """Makes every response ask its client to open its next connection elsewhere."""
        await self._ask("POST", "/healthcheck/fail")

    async def _ask(self, method: str, path: str, query: Mapping[str, str] | None = None) -> str:
        try:
            async with self._session.request(method, f"http://envoy{path}", params=query) as response:
                response.raise_for_status()
                return await response.text()
        except aiohttp.ClientConnectorError as error:
            gone = error.os_error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            raise (EnvoyAwayError if gone else NoAnswerError)(f"{method} {path}: {error}") from error
        except (aiohttp.ClientError, OSError, UnicodeDecodeError) as error:
            raise NoAnswerError(f"{method} {path}: {error or type(error).__name__}") from error
