"""The warm-up excuses what cold pods may have done, and nothing more."""

import pytest
from tailbound.judge.evidence import Tally
from tailbound.judge.warmup import JudgedCounts, Warmup


def test_the_first_requests_of_the_only_pod_are_not_judged() -> None:
    warmup = Warmup().with_pods(1, 1, 50)
    for poll in (Tally(30, 9), Tally(20, 3)):
        warmup, judged = warmup.after(poll)
        assert judged == JudgedCounts(Tally(), against_only=True)
    assert warmup.after(Tally(10, 1)) == (Warmup(), JudgedCounts(Tally(10, 1)))


@pytest.mark.parametrize(
    ("poll", "judged"),
    [
        pytest.param(Tally(60, 0), Tally(50, 0), id="nothing-bad"),
        pytest.param(Tally(60, 8), Tally(50, 0), id="no-more-bad-ones-than-the-warm-up-may-have-had"),
        pytest.param(Tally(60, 30), Tally(50, 20), id="more-bad-ones-than-that"),
    ],
)
def test_poll_in_which_the_warmup_ends_speaks_against_the_candidate_and_never_for_it(
    poll: Tally, judged: Tally
) -> None:
    assert Warmup().with_pods(1, 1, 10).after(poll) == (Warmup(), JudgedCounts(judged, against_only=True))


def test_new_pods_beside_warm_ones_excuse_only_their_own_requests() -> None:
    warmup = Warmup().with_pods(1, 20, 10)
    assert warmup.excused == 10
    warmup, judged = warmup.after(Tally(40, 4))
    assert judged.poll == Tally()
    warmup, judged = warmup.after(Tally(40, 20))
    assert (warmup, judged) == (Warmup(), JudgedCounts(Tally(34, 14), against_only=True))


def test_pods_that_come_one_after_the_other_never_excuse_more_than_all_of_them() -> None:
    warmup = Warmup()
    for ready in range(1, 6):
        warmup = warmup.with_pods(1, ready, 10)
    assert warmup == Warmup(100, 50)
    assert warmup.with_pods(0, 5, 10) == warmup.with_pods(5, 5, 0) == warmup
