"""How long each scenario took when it last passed: kept in the cache, so that the longest start first.

Without its set-up, in which it may wait for others to end.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.cluster.binaries import cache_folder


def kept(folder: Path) -> Mapping[str, float]:
    """Seconds by node id, from the durations in this cache; empty if nothing was kept."""
    try:
        found = json.loads(_file(folder).read_text())
    except (OSError, ValueError):  # never run here, or the file is only half written
        return {}
    return {str(name): float(seconds) for name, seconds in found.items()}


class Recorder:
    """A pytest plugin that keeps how long scenarios took: set-up, call and clean-up together."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder()
        self._took: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down the call of a scenario; what failed waited for something that did not come."""
        if report.when == "call":
            self._took[report.nodeid] = report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Keep what passed beside what was kept before."""
        passed = {name: round(took, 1) for name, took in self._took.items() if name not in self._failed}
        if passed:
            _file(self._folder).parent.mkdir(parents=True, exist_ok=True)
            _file(self._folder).write_text(json.dumps({**kept(self._folder), **passed}, indent=1))


def _file(folder: Path) -> Path:
    return folder / "durations" / "scenarios.json"
