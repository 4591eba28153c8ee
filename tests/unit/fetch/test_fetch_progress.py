"""When progress is reported, by an invented clock."""

import pytest
from tailbound.fetch.progress import Progress, human_bytes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_slow_download_reports_every_five_seconds() -> None:
    clock, lines = Clock(), []
    progress = Progress(0, 10**9, lambda event, **fields: lines.append(fields), clock)
    for second in range(1, 13):
        clock.now = 100.0 + second
        progress.update(second * 1000)
    assert lines == [
        {"bytes": 5000, "total_bytes": 10**9, "percent": 0, "seconds_left": 999995, "bytes_per_second": 1000},
        {
            "bytes": 10000,
            "total_bytes": 10**9,
            "percent": 0,
            "seconds_left": 999990,
            "bytes_per_second": 1000,
        },
    ]


def test_a_fast_download_reports_every_tenth_once() -> None:
    clock, lines = Clock(), []
    progress = Progress(250, 1000, lambda event, **fields: lines.append(fields["percent"]), clock)
    for done in range(250, 1001, 10):
        progress.update(done)
    assert lines == [30, 40, 50, 60, 70, 80, 90, 100]


def test_an_unknown_total_is_left_out() -> None:
    clock, lines = Clock(), []
    progress = Progress(0, None, lambda event, **fields: lines.append(fields), clock)
    clock.now += 5
    assert progress.update(500)
    assert lines == [{"bytes": 500, "bytes_per_second": 100}]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB (1000 bytes)"),
        (4_200_000_000, "4.2 GB (4200000000 bytes)"),
        (10**13, "10.0 TB (10000000000000 bytes)"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text
