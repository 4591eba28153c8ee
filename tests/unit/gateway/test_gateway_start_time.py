"""One Envoy process keeps one start time; two never share one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tailbound.gateway.envoy import read_start, settle_start, write_start

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@pytest.mark.parametrize(
    ("now", "uptime", "recorded", "fresh", "expected"),
    [
        pytest.param(NOON, seconds(60), None, False, NOON - seconds(60), id="nothing recorded"),
        pytest.param(NOON + seconds(0.9), seconds(60), None, False, NOON - seconds(60), id="whole seconds"),
        pytest.param(NOON, seconds(60), NOON - seconds(61), False, NOON - seconds(61), id="rounding"),
        pytest.param(NOON, seconds(1), NOON - seconds(60), False, NOON - seconds(1), id="another process"),
        pytest.param(NOON, seconds(1), NOON - seconds(60), True, NOON - seconds(1), id="another, and fresh"),
        pytest.param(NOON, seconds(0), NOON - seconds(1), True, NOON, id="died within a second of its start"),
        pytest.param(NOON, seconds(1), NOON, True, NOON + seconds(1), id="the same reading, but fresh"),
    ],
)
def test_settle(
    now: datetime, uptime: timedelta, recorded: datetime | None, fresh: bool, expected: datetime
) -> None:
    assert settle_start(now, uptime, recorded, fresh) == expected


def test_it_outlives_the_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "envoy-start"
    assert read_start(path) is None
    write_start(path, NOON)
    assert read_start(path) == NOON
    path.write_text("yesterday")
    assert read_start(path) is None
