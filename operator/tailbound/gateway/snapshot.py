"""The routes that Envoy last acknowledged, on the pod's own disk: what to start with while the API is out."""

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tailbound.telemetry.logs import logger
from tailbound.traffic.model import Route

_log = logger(__name__)

# A sidecar that crashes during an outage returns to a state at most this old.
SNAPSHOT_EVERY_SECONDS = 3.0
_ROUTES = TypeAdapter(tuple[Route, ...])


def write_snapshot(path: Path, routes: Iterable[Route]) -> None:
    """Replace the file in one step, so that a reader sees the old or the new one. Raises OSError."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(_ROUTES.dump_json(tuple(routes)))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_snapshot(path: Path) -> tuple[Route, ...] | None:
    """The routes of a former life, or None if there are none to be trusted."""
    try:
        return _ROUTES.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError, json.JSONDecodeError):
        return None


class SnapshotWriter:
    """Writes the last acknowledged routes to disk, at most every SNAPSHOT_EVERY_SECONDS."""

    def __init__(self, path: Path, routes: Callable[[], list[Route]]) -> None:
        self._path = path
        self._routes = routes
        self._due = asyncio.Event()
        self._written: list[Route] | None = None

    def request(self) -> None:
        """Something was acknowledged."""
        self._due.set()

    async def run(self) -> None:
        """Write whenever something was acknowledged. A full disk is logged, and serving goes on."""
        while True:
            await self._due.wait()
            self._due.clear()
            routes = self._routes()
            if routes != self._written:
                try:
                    await asyncio.to_thread(write_snapshot, self._path, routes)
                    self._written = routes
                except OSError as error:
                    _log.warning("the snapshot cannot be written", path=str(self._path), error=str(error))
            await asyncio.sleep(SNAPSHOT_EVERY_SECONDS)
