"""The order in which scenarios start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.scenarios.library.durations import Recorder, kept
from e2e.scenarios.library.selection import ordered


class Item:
    """What the order asks of a collected scenario."""

    def __init__(self, name: str, **markers: float) -> None:
        self.nodeid, self.markers = name, markers

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=[self.markers[name]]) if name in self.markers else None


ITEMS = [
    Item("short"),
    Item("last", runs_last=1),
    Item("long", lasts=200),
    Item("brief"),
    Item("longest", lasts=300),
]


@pytest.mark.parametrize(
    ("workers", "known", "names"),
    [
        (1, {}, ["longest", "long", "short", "brief", "last"]),
        (2, {}, ["longest", "short", "long", "brief", "last"]),
        (3, {}, ["longest", "long", "short", "brief", "last"]),
        (1, {"brief": 250.0, "last": 999.0}, ["longest", "brief", "long", "short", "last"]),
        (1, {"longest": 100.0}, ["long", "longest", "short", "brief", "last"]),
    ],
    ids=[
        "alone",
        "each-worker-begins-with-a-long-one",
        "too-few-for-two-each",
        "a-known-duration-counts",
        "a-known-duration-replaces-a-guess",
    ],
)
def test_the_longest_start_first_and_what_runs_last_does(
    workers: int, known: dict[str, float], names: list[str]
) -> None:
    items: Any = ITEMS
    assert [item.nodeid for item in ordered(items, workers, known)] == names


def test_durations_of_what_passed_are_kept_for_the_next_run(tmp_path: Path) -> None:
    for run in ({"a": "passed", "b": "failed"}, {"b": "passed", "c": "passed"}):
        recorder = Recorder(tmp_path)
        for name, outcome in run.items():
            for phase in ("setup", "call", "teardown"):
                recorder.pytest_runtest_logreport(_report(name, phase, outcome))
        recorder.pytest_sessionfinish()
    assert kept(tmp_path) == {"a": 2.0, "b": 2.0, "c": 2.0}
    (tmp_path / "durations" / "scenarios.json").write_text('{"a": ')
    assert kept(tmp_path) == {}


def _report(name: str, phase: Any, outcome: Any) -> pytest.TestReport:
    return pytest.TestReport(name, ("", None, ""), {}, outcome, None, phase, duration=2.0)
