"""When the deadline of a rollout runs, stands still and begins again: every row of its table."""

from datetime import datetime

import pytest
from tailbound.api.quantities import Duration
from tailbound.rollout.deadline import DeadlinePods, counted, overdue
from tailbound.rollout.progress import RolloutProgress

from tests.unit.rollout.inputs import NOW, ago, rollout

MINUTE = Duration(60_000)


def begun(seconds: float, still: float | None = None, *, fits: bool = True) -> RolloutProgress:
    """Its deadline began so long ago; one pod was ready once. `still`: since when it stands still."""
    since = None if still is None else ago(still)
    return rollout(progress_at=ago(seconds), still_since=since, no_capacity_since=None if fits else since)


ROWS: dict[str, tuple[RolloutProgress, DeadlinePods, tuple[datetime | None, datetime | None]]] = {
    "more-ready-than-ever": (begun(50), DeadlinePods(2, True, False), (NOW, None)),
    "more-ready-than-ever-and-complete": (begun(50), DeadlinePods(2, False, False), (NOW, NOW)),
    "missing": (begun(50), DeadlinePods(1, True, False), (ago(50), None)),
    "without-capacity": (begun(50), DeadlinePods(0, True, True), (ago(50), NOW)),
    "still-without-capacity": (
        begun(50, 40, fits=False),
        DeadlinePods(0, True, True),
        (ago(50), ago(40)),
    ),
    "capacity-came": (begun(50, 40, fits=False), DeadlinePods(0, True, False), (ago(10), None)),
    "capacity-came-late": (begun(9000, 8990, fits=False), DeadlinePods(0, True, False), (ago(10), None)),
    "complete": (begun(50), DeadlinePods(1, False, False), (ago(50), NOW)),
    "missing-again-soon": (begun(50, 20), DeadlinePods(0, True, False), (ago(30), None)),
    "missing-again-later": (begun(90, 60), DeadlinePods(0, True, False), (NOW, None)),
}


@pytest.mark.parametrize(("before", "pods", "after"), ROWS.values(), ids=ROWS)
def test_the_deadline(
    before: RolloutProgress, pods: DeadlinePods, after: tuple[datetime | None, datetime | None]
) -> None:
    now = counted(before, pods, MINUTE, NOW)
    assert (now.progress_at, now.still_since) == after
    assert counted(now, pods, MINUTE, NOW) == now


@pytest.mark.parametrize(("seconds", "still", "over"), [(60, None, True), (59, None, False), (90, 1, False)])
def test_it_is_over_only_while_it_runs(seconds: float, still: float | None, over: bool) -> None:
    assert overdue(begun(seconds, still), MINUTE, NOW) is over
