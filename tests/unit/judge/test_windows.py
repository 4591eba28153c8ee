"""What touches fewer than three separate windows condemns nobody, whenever polls come."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.account import Account, account_about, judge
from tailbound.judge.betting import BoundTest, that_above, that_polls_are_above
from tailbound.judge.evidence import Tally
from tailbound.judge.means import means_about
from tailbound.judge.verdict import Outcome, latency_objective, thresholds
from tailbound.judge.windows import (
    WINDOW_NATS,
    WINDOW_NATS_LATER,
    WINDOW_SECONDS,
    Sides,
    Span,
    Window,
)

P99 = latency_objective(0.99)
ALONE = Sides(stable=False)


@pytest.mark.parametrize(
    ("share", "first", "sides", "failures", "limited"),
    [
        pytest.param(0.95, True, ALONE, True, False, id="broken-from-the-first-request-on"),
        pytest.param(0.95, True, ALONE, False, True, id="slow-from-the-first-request-on-and-nothing-beside"),
        pytest.param(0.85, True, ALONE, True, True, id="some-of-it-works"),
        pytest.param(0.95, False, ALONE, True, True, id="broken-later"),
        pytest.param(0.01, False, ALONE, False, True, id="anything-with-nothing-beside"),
        pytest.param(0.2, True, Sides(pods=1), False, False, id="a-single-pod-from-the-first-request-on"),
        pytest.param(0.2, True, Sides(pods=5), False, True, id="one-pod-of-five-from-the-first-request-on"),
        pytest.param(0.4, True, Sides(pods=5), False, False, id="two-pods-of-five-from-the-first-request-on"),
        pytest.param(0.1, False, Sides(pods=1), False, False, id="a-tenth-of-one-pod"),
        pytest.param(0.1, False, Sides(pods=10), False, True, id="one-pod-of-ten"),
        pytest.param(0.02, False, Sides(pods=10), False, False, id="a-fifth-of-one-pod-of-ten"),
        pytest.param(0.2, False, Sides(pods=0), False, True, id="no-pod-is-ready"),
    ],
)
def test_what_may_be_a_bad_moment_is_limited(
    share: float, first: bool, sides: Sides, failures: bool, limited: bool
) -> None:
    window = Window(0.0, 2.0, ((0.0,),), first, polls=4, bad=4 * share)
    assert window.limited(sides, failures=failures) is limited


SPANS = st.lists(
    st.tuples(st.floats(0.1, 40), st.floats(0, 40) | st.just(0.0), st.floats(0, 1) | st.just(1.0)),
    max_size=40,
)
"""Seconds since the last poll, how much further back this one reaches, and how much of it is bad."""


def polls(drawn: list[tuple[float, float, float]]) -> list[tuple[Span, float]]:
    """Polls of a number of gateways, of which some were not asked for a while."""
    found, last = [], 1000.0
    for seconds, behind, share in drawn:
        found.append((Span(last - behind, last + seconds), share))
        last += seconds
    return found


@settings(max_examples=60, deadline=None)
@given(SPANS, st.sets(st.integers(0, 25), max_size=4), st.booleans(), st.floats(1, 30))
def test_evidence_grows_by_no_more_than_its_windows_and_those_are_apart(
    drawn: list[tuple[float, float, float]], steps: set[int], whole: bool, factor: float
) -> None:
    known = BoundTest(that_polls_are_above(0.01) if whole else that_above(0.01))
    windows: list[Window] = []
    for number, (span, share) in enumerate(polls(drawn)):
        known = known.next_step() if number in steps else known
        known = known.divided(factor) if number % 17 == 16 else known
        after = known.after_poll if whole else known.after_counts
        known = after(Tally(100, 100 * share), span, ALONE)
        assert known.window is not None
        if windows and known.window.since == windows[-1].since:
            windows.pop()
        windows.append(known.window)
        assert known.absolute <= len(windows) * WINDOW_NATS + 1e-9
        assert known.late <= len(windows) * WINDOW_NATS_LATER + 1e-9
    for earlier, later in pairwise(windows):
        assert later.since >= max(earlier.since + WINDOW_SECONDS, earlier.until)


def condemned(account: Account, tests: int) -> bool:
    """Whether the candidate is rolled back, under any policy."""
    return any(
        judge(P99, account, policy, tests, stable_serves=False).outcome is Outcome.ROLL_BACK
        for policy in AnalysisPolicy
    )


@settings(max_examples=60, deadline=None)
@given(
    SPANS, st.floats(0, 100), st.sets(st.integers(0, 25), max_size=4), st.integers(1, 4), st.integers(1, 300)
)
def test_ten_bad_seconds_with_all_requests_condemn_nobody(
    drawn: list[tuple[float, float, float]], begins: float, steps: set[int], tests: int, requests: int
) -> None:
    """The candidate is alone from its first request on, and nothing is bad but within ten seconds."""
    account = account_about(P99)
    for number in range(30):
        span = Span(900 + 2.0 * number, 902 + 2.0 * number)
        account = account.after(Tally(), Tally(100, 0), span, stable_serves=True)
    for number, (span, share) in enumerate(polls(drawn)):
        touched = span.at > 1000 + begins and span.began < 1000 + begins + WINDOW_SECONDS
        bad = requests * share if touched else 0.0
        account = account.next_step() if number in steps else account
        account = account.after(Tally(requests, bad), Tally(), span, stable_serves=False)
        assert not bad or not condemned(account, tests)


@pytest.mark.parametrize("interval", [1.0, 2.5, 5.0, 30.0])
def test_ten_bad_seconds_of_a_mean_with_nothing_beside_condemn_nobody(interval: float) -> None:
    """One that stays bad is found."""
    for lasts, found in ((WINDOW_SECONDS, False), (10 * interval + 60.0, True)):
        means, at = means_about(0.1, 0.2), 0.0
        while at < 200 + lasts:
            bad = 60 <= at < 60 + lasts
            means = means.after(0.9 if bad else 0.05, None, Span(at - interval, at))
            at += interval
            if means.numbers().beyond(thresholds(0.1, 1, AnalysisPolicy.BOTH, independent=False)):
                break
        assert (at < 200 + lasts) is found
