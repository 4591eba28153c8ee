"""`make mutants` takes minutes; that its edits can be made is seen in each run of the tests."""

from pathlib import Path

import pytest

from tests.mutants import MUTANTS, Mutant

OPERATOR = Path(__file__).parents[3] / "operator" / "tailbound"
UNIT_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.guarantee for each in MUTANTS])
def test_the_text_that_a_mutant_replaces_is_there_once_and_its_tests_exist(mutant: Mutant) -> None:
    assert (OPERATOR / mutant.file).read_text().count(mutant.old) == 1
    assert (UNIT_TESTS / mutant.tests).exists()
