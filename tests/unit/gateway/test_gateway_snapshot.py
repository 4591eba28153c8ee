"""The routes on the pod's own disk."""

from pathlib import Path

import pytest
from tailbound.gateway.snapshot import read_snapshot, write_snapshot

from tests.unit.gateway.delta_routes import route


def test_what_was_written_is_read(tmp_path: Path) -> None:
    routes = (route("churn", {"r1": 95, "r2": 5}, hosts=("a.example.com",)), route("fraud"))
    write_snapshot(tmp_path / "snapshot.json", routes)
    assert read_snapshot(tmp_path / "snapshot.json") == routes
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot.json"]


@pytest.mark.parametrize("content", ["", "[", "{}", '[{"service": ["risk"]}]'])
def test_what_cannot_be_trusted_is_no_snapshot(tmp_path: Path, content: str) -> None:
    (tmp_path / "snapshot.json").write_text(content)
    assert read_snapshot(tmp_path / "snapshot.json") is None


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    assert read_snapshot(tmp_path / "snapshot.json") is None
