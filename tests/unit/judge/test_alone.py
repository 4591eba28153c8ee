"""What a candidate with all requests is compared with: what stable showed before."""

import pytest
from tailbound.judge.alone import Recent
from tailbound.judge.evidence import Tally

ALLOWED, RATIO = 0.01, 1.5


def watched(*phases: tuple[float, float, float], poll_seconds: float = 2.0) -> Recent:
    """What is remembered of stable after phases of (seconds, requests per second, fraction bad)."""
    recent, at = Recent(), 0.0
    for seconds, rate, bad in phases:
        for _ in range(round(seconds / poll_seconds)):
            recent = recent.after(Tally(rate * poll_seconds, rate * poll_seconds * bad), at)
            at += poll_seconds
    return recent


@pytest.mark.parametrize(
    ("phases", "lowest", "highest"),
    [
        pytest.param([(600, 50, 0.0)], ALLOWED, ALLOWED, id="healthy-and-busy"),
        pytest.param([(600, 50, 0.02)], 0.03, 0.034, id="as-bad-as-twice-what-is-allowed"),
        pytest.param([(600, 50, 0.10)], 0.15, 0.16, id="breaching"),
        pytest.param([(600, 50, 1.0)], 0.9, 0.9, id="every-request-bad"),
        pytest.param([(3600, 50, 0.5), (700, 50, 0.0)], ALLOWED, ALLOWED, id="bad-long-ago"),
        pytest.param([(4 * 3600, 0.2, 0.0)], ALLOWED, 0.02, id="healthy-with-one-request-in-5-s"),
        pytest.param([(60, 1, 0.0)], 0.05, 0.09, id="hardly-any-requests"),
    ],
)
def test_the_bound_is_what_stable_may_have_been_times_the_ratio(
    phases: list[tuple[float, float, float]], lowest: float, highest: float
) -> None:
    assert lowest <= watched(*phases).bound(ALLOWED, RATIO, bursts=1.0) <= highest


def test_bursts_leave_more_doubt_about_stable() -> None:
    recent = watched((600, 5, 0.01))
    assert recent.bound(ALLOWED, RATIO, bursts=10.0) > recent.bound(ALLOWED, RATIO, bursts=1.0)


def test_without_a_request_nothing_is_remembered() -> None:
    assert Recent().after(Tally(), 10.0) == Recent()
