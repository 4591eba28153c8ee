"""The downloads that kubectl tailbound status shows."""

import json
from typing import Any

import pytest
from tailbound.cli.downloads import FetchLog, downloads, fetches
from tailbound.cli.status import status

from tests.unit.cli.cli_objects import subject
from tests.unit.cli.test_cli_texts import NOW


def line(**fields: Any) -> str:
    return json.dumps({"event": "fetching", **fields})


def test_each_download_has_a_bar_bytes_rate_and_time_left() -> None:
    old = line(bytes=1, total_bytes=4 * 10**9, bytes_per_second=1, seconds_left=10**6)
    new = line(bytes=10**9, total_bytes=4 * 10**9, bytes_per_second=35 * 10**6, seconds_left=86)
    unknown = line(bytes=12_000, bytes_per_second=900)
    logs = [
        FetchLog("a", f'cut"}}\n{old}\n{new}\n{json.dumps({"event": "trying again"})}\nnot JSON'),
        FetchLog("b", unknown),
        FetchLog("c", ""),
        FetchLog("d", line(bytes=10**400, total_bytes=10**401)),
        FetchLog("e", "[" * 100_000),
    ]
    assert downloads(logs).splitlines() == [
        "DOWNLOAD OF POD   DONE                       BYTES          RATE      LEFT",
        "a                 #####............... 25%   1 GB of 4 GB   35 MB/s   1m26s",
        "b                 -                          12 kB          900 B/s   -",
        *(f"{pod}                 begins                     -              -         -" for pod in "cde"),
    ]
    assert "#####..." in status(subject(), NOW, logs)
    assert "DOWNLOAD" not in status(subject(), NOW)


@pytest.mark.parametrize("kind", ["initContainerStatuses", "containerStatuses"])
def test_a_pod_downloads_while_its_fetch_container_runs(kind: str) -> None:
    def pod(name: str, state: str) -> dict[str, Any]:
        return {"metadata": {"name": "p"}, "status": {kind: [{"name": name, "state": {state: {}}}]}}

    assert fetches(pod("fetch", "running"))
    assert not fetches(pod("fetch", "terminated"))
    assert not fetches(pod("server", "running"))
