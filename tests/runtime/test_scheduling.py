"""The parameters `priority` and `timeout` of a request."""

from typing import Any

import pytest
from tailbound_runtime.errors import ApiError
from tailbound_runtime.scheduling import Scheduling, level_of, scheduling_of


@pytest.mark.parametrize(
    ("parameters", "scheduling"),
    [
        ({}, Scheduling(0, None)),
        ({"priority": None, "timeout": None}, Scheduling(0, None)),
        ({"timeout": 0, "priority": 0}, Scheduling(0, None)),
        ({"timeout": 1500}, Scheduling(0, 0.0015)),
        ({"priority": 3, "timeout": 2**64 - 1}, Scheduling(3, (2**64 - 1) / 1e6)),
    ],
)
def test_what_a_request_asks_for(parameters: dict[str, Any], scheduling: Scheduling) -> None:
    assert scheduling_of(parameters) == scheduling


@pytest.mark.parametrize("name", ["priority", "timeout"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "1", [1], 2**64])
def test_anything_but_a_whole_number_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ApiError, match=f"parameter '{name}' is .*: send a whole number") as refused:
        scheduling_of({name: value})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("levels", "priority", "level"),
    [(0, 0, 1), (0, 7, 1), (1, 1, 1), (3, 1, 1), (3, 3, 3), (3, 0, 3), (3, 4, 3)],
)
def test_the_level_that_a_request_waits_in(levels: int, priority: int, level: int) -> None:
    assert level_of(priority, levels) == level
