"""When the deadline of a rollout runs, stands still and begins again: every row of its table."""

from datetime import datetime

import pytest
from tailbound.api.quantities import Duration
from tailbound.api.rollout import RolloutStatus
from tailbound.rollout.deadline import Pods, counted, overdue

from tests.unit.rollout.inputs import NOW, ago, rollout

MINUTE = Duration(60_000)


def begun(seconds: float, still: float | None = None, *, room: bool = True) -> RolloutStatus:
    """Its deadline began so long ago; one pod was ready once. `still`: since when it stands still."""
    since = None if still is None else ago(still)
    return rollout(progress_at=ago(seconds), still_since=since, no_room_since=None if room else since)


ROWS: dict[str, tuple[RolloutStatus, Pods, tuple[datetime | None, datetime | None]]] = {
    "more-ready-than-ever": (begun(50), Pods(2, True, False), (NOW, None)),
    "more-ready-than-ever-and-complete": (begun(50), Pods(2, False, False), (NOW, NOW)),
    "missing": (begun(50), Pods(1, True, False), (ago(50), None)),
    "without-room": (begun(50), Pods(0, True, True), (ago(50), NOW)),
    "still-without-room": (begun(50, 40, room=False), Pods(0, True, True), (ago(50), ago(40))),
    "room-came": (begun(50, 40, room=False), Pods(0, True, False), (ago(10), None)),
    "room-came-late": (begun(9000, 8990, room=False), Pods(0, True, False), (ago(10), None)),
    "complete": (begun(50), Pods(1, False, False), (ago(50), NOW)),
    "missing-again-soon": (begun(50, 20), Pods(0, True, False), (ago(30), None)),
    "missing-again-later": (begun(90, 60), Pods(0, True, False), (NOW, None)),
}


@pytest.mark.parametrize(("before", "pods", "after"), ROWS.values(), ids=ROWS)
def test_the_deadline(
    before: RolloutStatus, pods: Pods, after: tuple[datetime | None, datetime | None]
) -> None:
    now = counted(before, pods, MINUTE, NOW)
    assert (now.progress_at, now.still_since) == after
    assert counted(now, pods, MINUTE, NOW) == now


@pytest.mark.parametrize(("seconds", "still", "over"), [(60, None, True), (59, None, False), (90, 1, False)])
def test_it_is_over_only_while_it_runs(seconds: float, still: float | None, over: bool) -> None:
    assert overdue(begun(seconds, still), MINUTE, NOW) is over
