"""Which step a rollout is at after its plan was edited: every row of the table."""

import pytest
from tailbound.rollout.plan import number, weight

from tests.unit.rollout.inputs import ago, rollout

DEFAULT = (5, 25, 50)
# The plan; passed, the weight of the present step and the weight it has, whether observed; the step's weight.
ROWS: dict[str, tuple[tuple[int, ...], int, int, int, bool, int]] = {
    "the-first-step": (DEFAULT, 0, 0, 0, False, 5),
    "no-steps": ((), 0, 0, 0, False, 100),
    "at-a-step": (DEFAULT, 5, 25, 25, True, 25),
    "on-its-way-to-a-step": (DEFAULT, 5, 25, 5, False, 25),
    "in-place-on-its-way-to-a-step": ((5, 50), 5, 50, 33, False, 50),
    "in-place-on-its-way-to-all": ((), 0, 100, 33, False, 100),
    "all-passed": (DEFAULT, 50, 50, 50, True, 100),
    "all-requests": (DEFAULT, 50, 100, 100, True, 100),
    "its-step-is-gone": ((5,), 25, 50, 50, True, 50),
    "its-step-is-gone-and-so-are-its-pods": ((5,), 25, 50, 0, True, 50),
    "its-step-is-gone-before-it-was-reached": ((5, 25), 25, 50, 25, False, 100),
    "all-steps-are-gone": ((), 0, 5, 5, True, 5),
    "a-lower-step-is-added": ((5, 10, 30, 75), 25, 50, 50, True, 50),
    "its-step-is-raised": ((25,), 0, 5, 5, True, 25),
    "a-step-between-is-added": ((5, 10, 25), 5, 25, 5, False, 10),
    "steps-are-added-with-all-requests": (DEFAULT, 0, 100, 100, True, 100),
    "steps-are-added-in-place": ((5, 50), 0, 100, 33, False, 33),
    "steps-are-added-before-any-weight": (DEFAULT, 0, 100, 0, False, 5),
    "a-higher-step-is-added-at-the-end": ((5, 25, 50, 75), 50, 100, 50, False, 75),
}


@pytest.mark.parametrize(("plan", "passed", "present", "has", "seen", "expected"), ROWS.values(), ids=ROWS)
def test_the_present_step(
    plan: tuple[int, ...], passed: int, present: int, has: int, seen: bool, expected: int
) -> None:
    at = rollout(passed=passed, step_weight=present, weight=has, step_started_at=ago(5) if seen else None)
    assert weight(plan, at, manual=False) == expected
    assert weight(plan, at, manual=True) == 100
    assert expected >= has


@pytest.mark.parametrize(("percent", "expected"), [(5, 0), (25, 1), (33, 2), (50, 2), (99, 3), (100, 3)])
def test_the_number_of_a_step_is_found_by_its_weight(percent: int, expected: int) -> None:
    assert number(DEFAULT, percent) == expected
