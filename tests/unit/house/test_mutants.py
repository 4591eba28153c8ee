"""`make mutants` takes minutes; that its edits can be made is seen in each run of the tests."""

from pathlib import Path

from tests.mutants import MUTANTS

OPERATOR = Path(__file__).parents[3] / "operator" / "tailbound"
UNIT_TESTS = Path(__file__).parents[1]


def test_the_text_that_a_mutant_replaces_is_there_once_and_its_tests_exist() -> None:
    for mutant in MUTANTS:
        assert (OPERATOR / mutant.file).read_text().count(mutant.old) == 1, mutant.guarantee
        assert (UNIT_TESTS / mutant.tests).exists(), mutant.guarantee
