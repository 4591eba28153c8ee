"""What `make test T=NAME` runs."""

import pytest

from tests.one import selection, targets


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("tests/unit/house/test_one.py", ["tests/unit/house/test_one.py"], id="file"),
        pytest.param("tests/one.py::test_a[b]", ["tests/one.py::test_a[b]"], id="id"),
        pytest.param("kills", ["tests", "e2e/cluster", "e2e/scenarios", "-k", "kills"], id="part-of-a-name"),
    ],
)
def test_a_name_is_a_file_an_id_or_a_part_of_one(name: str, expected: list[str]) -> None:
    assert selection(name) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/unit/judge/test_a.py::test_b", []),
        ("tests/integration/cli/test_a.py::test_b", ["binaries", "servers"]),
        ("e2e/scenarios/test_a.py::test_b", ["cluster-up"]),
    ],
    ids=["unit", "integration", "scenario"],
)
def test_only_what_a_test_needs_is_built(test: str, expected: list[str]) -> None:
    assert targets([test]) == expected
