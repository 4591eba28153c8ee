"""Settings come through one reader, whose errors name the variable, its value and the remedy."""

from pathlib import Path

import pytest
import tailbound
from tailbound.environment import Environment, SettingError, whole_number

ROOT = Path(tailbound.__file__).parent
SOURCE = Environment({"LIST": "a, b,", "BLANK": " ", "PORT": "80", "WORD": "w"}, "set it in the chart")


def test_nothing_else_reads_the_environment() -> None:
    readers = {file.name for file in ROOT.rglob("*.py") if {"environ[", "os.environ", "getenv"} & found(file)}
    assert readers == {"environment.py"}


def found(file: Path) -> set[str]:
    return {each for each in ("environ[", "os.environ", "getenv") if each in file.read_text()}


def test_types() -> None:
    assert SOURCE.texts("LIST") == SOURCE.required_texts("LIST") == ("a", "b")
    assert SOURCE.texts("NONE") == SOURCE.required_texts("BLANK") == ()
    assert (SOURCE.number("PORT", "ports", 80), SOURCE.path("WORD")) == (80, Path("w"))
    assert (SOURCE.optional("BLANK"), SOURCE.path("NONE"), SOURCE.in_any_case("word")) == (None, None, "w")
    assert SOURCE.text("BLANK", default="d") == "d"


@pytest.mark.parametrize("name", ["NONE", "BLANK"])
def test_a_missing_variable_is_named_with_the_remedy(name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} is not set: set it in the chart$"):
        SOURCE.text(name)


@pytest.mark.parametrize("value", ["0", "81", "-1", "1.5", "٣x"])
def test_a_wrong_number_is_named_with_its_value_and_what_it_has_to_be(value: str) -> None:
    with pytest.raises(SettingError, match=f"^N: '{value}' is not a number of ports from 1 to 80$"):
        Environment({"N": value}, "").text("N", whole_number("ports", 80))
