"""The demo's figures are read from the audit log as they are meant."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.demo import speed


def event(resource: str, name: str, received: str, done: str, **changes: Any) -> dict[str, Any]:
    target = {"resource": resource, "name": name, "namespace": speed.NAMESPACE}
    return {
        "stage": "ResponseComplete",
        "verb": "create",
        "objectRef": target,
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{received}Z",
        "stageTimestamp": f"2026-01-01T00:00:{done}Z",
        **changes,
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with something in it from before."""
    path = tmp_path / "audit.log"
    append(path, event("inferenceservices", "old", "01.0", "01.1"))
    return path


def append(path: Path, *events: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)


def test_the_delay_is_from_the_services_arrival_to_the_deployments_being_stored(log: Path) -> None:
    journal = speed.Journal(log)
    append(
        log,
        event("inferenceservices", "single-000", "01.000000", "01.010000"),
        event("deployments", "single-000-r1-abcd", "01.050000", "01.080000", verb="patch"),
    )
    assert journal.delays() == pytest.approx({"single-000": 0.08})


@pytest.mark.parametrize(
    "changes",
    [
        {"responseStatus": {"code": 409}},
        {"stage": "Panic"},
        {"verb": "update"},
        {"objectRef": {"resource": "deployments", "name": "single-000-r1-abcd", "namespace": "demo"}},
        {"objectRef": {"resource": "deployments", "namespace": speed.NAMESPACE}},
        {
            "objectRef": {
                "resource": "deployments",
                "name": "single-000-r1-abcd",
                "namespace": speed.NAMESPACE,
                "subresource": "status",
            }
        },
    ],
)
def test_other_entries_are_no_writes_of_ours(log: Path, changes: dict[str, Any]) -> None:
    journal = speed.Journal(log)
    append(
        log,
        event("inferenceservices", "single-000", "01.0", "01.1"),
        event("deployments", "single-000-r1-abcd", "01.2", "01.3", **changes),
    )
    assert journal.delays() == {}


def test_only_the_first_write_counts(log: Path) -> None:
    journal = speed.Journal(log)
    append(
        log,
        event("inferenceservices", "single-000", "01.000000", "01.010000"),
        event("deployments", "single-000-r1-abcd", "01.050000", "01.080000"),
        event("deployments", "single-000-r1-abcd", "09.000000", "09.100000", verb="patch"),
    )
    assert journal.delays() == pytest.approx({"single-000": 0.08})


def test_reading_starts_at_the_end_and_stops_before_half_a_line(log: Path) -> None:
    journal = speed.Journal(log)
    append(log, event("inferenceservices", "new", "02.0", "02.1"))
    line = json.dumps(event("inferenceservices", "newest", "03.0", "03.1")) + "\n"
    with log.open("a") as file:
        file.write(line[:20])
    assert set(journal.arrivals()) == {"new"}
    with log.open("a") as file:
        file.write(line[20:])
    assert set(journal.arrivals()) == {"new", "newest"}


@pytest.mark.parametrize(("q", "expected"), [(0.5, 2.0), (0.99, 4.0), (0.25, 1.0)])
def test_a_quantile_is_a_sample(q: float, expected: float) -> None:
    figures = speed.Figures(present=0, one_by_one=(4.0, 1.0, 3.0, 2.0), burst=0, burst_seconds=0)
    assert figures.quantile(q) == expected
