"""Ids of parametrized tests."""

import pytest

from tests.conftest import LONGEST_ID, distinct, slug


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        pytest.param("closed before the response", "closed-before-the-response", id="blanks"),
        pytest.param(
            "at '/operator/replicas': minimum", "at-operator-replicas-minimum", id="quotes-and-slash"
        ),
        pytest.param("-1-0.5", "-1-0.5", id="numbers"),
        pytest.param("'a'", "a", id="ends"),
        pytest.param("x" * 200, "x" * LONGEST_ID, id="length"),
    ],
)
def test_an_id_becomes_a_slug(identifier: str, expected: str) -> None:
    assert slug(identifier) == expected


def test_ids_of_one_function_stay_distinct() -> None:
    taken: set[str] = set()
    assert [distinct(name, taken) for name in ("a", "a", "b", "a")] == ["a", "a-2", "b", "a-3"]


@pytest.mark.parametrize("value", [1, 2], ids=["id with 'quotes'", "id with <brackets>"])
def test_a_test_is_named_by_its_slug(value: int, request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.split("[")[1] == ["id-with-quotes]", "id-with-brackets]"][value - 1]
