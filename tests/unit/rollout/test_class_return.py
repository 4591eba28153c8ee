"""When a service returns to a preferred hardware class: room, patience, and returns that did not last."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.objects.unknown import Unknown
from tailbound.rollout.class_return import (
    LONGEST_PATIENCE,
    ReturnCase,
    ReturnDecision,
    ReturnHold,
    ReturnStart,
    decide,
    patience,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
UNKNOWN = Unknown("nobody counts")


def case(**changes: Any) -> ReturnCase:
    values: dict[str, Any] = {
        "room": {"a": 2},
        "pods": 2,
        "obstacle": "",
        "room_since": NOW - 10 * MINUTE,
        "last": NOW - 10 * MINUTE,
        "vain": 0,
        "after": 10 * MINUTE,
        **changes,
    }
    return ReturnCase(**values)


CASES: dict[str, tuple[ReturnCase, ReturnDecision]] = {
    "room-for-long": (case(), ReturnStart("a")),
    "room-in-another": (case(room={"a": 1, "b": 2}), ReturnStart("b")),
    "nobody-knows": (case(room={"a": UNKNOWN}), ReturnStart("a")),
    "obstacle": (case(obstacle="no pod is ready"), ReturnHold("no pod is ready")),
    "too-little-room": (
        case(room={"a": 1, "b": 0}),
        ReturnHold("there is no room for its 2 pods in HardwareClass a, HardwareClass b"),
    ),
    "room-since-now": (
        case(room_since=None),
        ReturnHold("HardwareClass a has room for its 2 pods", NOW, NOW + 10 * MINUTE),
    ),
    "moved-lately": (
        case(last=NOW - MINUTE, room={"a": UNKNOWN}),
        ReturnHold("there may be room in HardwareClass a", NOW - 10 * MINUTE, NOW + 9 * MINUTE),
    ),
    "vain": (
        case(vain=2, failure="r3: slow"),
        ReturnHold(
            "HardwareClass a has room for its 2 pods, and returns that did not last: 2 (the last one, r3: "
            "slow)",
            NOW - 10 * MINUTE,
            NOW + 30 * MINUTE,
        ),
    ),
    "times-of-the-future": (
        case(room_since=NOW + MINUTE, last=datetime.max.replace(tzinfo=UTC)),
        ReturnHold("HardwareClass a has room for its 2 pods", NOW, NOW + 10 * MINUTE),
    ),
    "times-of-long-ago": (case(last=datetime.min.replace(tzinfo=UTC)), ReturnStart("a")),
}


@pytest.mark.parametrize(("asked", "answer"), CASES.values(), ids=CASES)
def test_the_decision(asked: ReturnCase, answer: ReturnDecision) -> None:
    assert decide(asked, NOW) == answer


rooms = st.one_of(st.integers(0, 4), st.just(UNKNOWN))


@given(st.lists(st.tuples(rooms, st.booleans()), min_size=1, max_size=400), st.integers(1, 30))
def test_room_that_appears_and_vanishes_causes_few_returns(
    looks: list[tuple[int | Unknown, bool]], after_minutes: int
) -> None:
    """Each minute one look; a return that begins fails at once, or is lost at the next look."""
    after, last, vain, since, began = after_minutes * MINUTE, NOW, 0, None, list[datetime]()
    stretch = 0
    for index, (room, _) in enumerate(looks):
        now = NOW + index * MINUTE
        stretch = stretch + 1 if isinstance(room, Unknown) or room >= 2 else 0
        mapping: Mapping[str, int | Unknown] = {"a": room}
        asked = case(room=mapping, room_since=since, last=last, vain=vain, after=after)
        answer = decide(asked, now)
        if isinstance(answer, ReturnStart):
            assert stretch > after_minutes, "there has been room at each look"
            began.append(now)
            last, vain, since = now, vain + 1, None
        else:
            since = answer.room_since
            assert answer.until is None or answer.until > now
    waits = [later - earlier for earlier, later in pairwise(began)]
    assert all(wait >= patience(after, count + 1) for count, wait in enumerate(waits))
    assert patience(after, 10**9) == max(LONGEST_PATIENCE, after)
