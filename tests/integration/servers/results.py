"""The results of running real servers: a file, from which the table of docs/servers.md is made."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FILE: Final = Path(__file__).parent / "results.yaml"
CONSTRAINTS: Final = Path(__file__).parent / "constraints"
# Why a server of the chart is not run by `make test-servers`.
NOT_RUN: Final[Mapping[str, str]] = dict.fromkeys(
    ("nim", "openvino", "sglang", "tfserving", "tgi"), "no package registry has the server"
)


def stored() -> dict[str, dict[str, Any]]:
    """The results by server."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())
    return found


def store(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the results of these servers."""
    FILE.write_text(yaml.safe_dump({**stored(), **{name: dict(each) for name, each in results.items()}}))


def proven(server: str) -> str:
    """What the table of docs/servers.md says of this server."""
    result = stored().get(server)
    if result is None:
        return f"rendered, not run: {NOT_RUN[server]}"
    return (
        f"run here on {result['date']}, {result['package']}: batches of up to "
        f"{result['largest_batch']}; none of {result['held_answered']} calls lost in a drain, and "
        f"{result['cut_lost']} without the hold"
    )
