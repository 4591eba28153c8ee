"""The routes that Envoy last acknowledged, on the pod's own disk: what to start with while the API is out."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tailbound.traffic.model import Route

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
