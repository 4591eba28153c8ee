"""Durations, percentages and quantities: exact, ordered by value, one spelling each."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.api.quantities import Duration, Percentage, Quantity

QUANTITIES = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**6),
    st.sampled_from(["", ".", ".5", ".125", ".001"]),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "E-3"]),
)


@given(st.integers(0, 999_999_999), st.sampled_from(["ms", "s", "m", "h"]))
def test_duration_survives_its_spelling(number: int, unit: str) -> None:
    duration = Duration.parse(f"{number}{unit}")
    assert Duration.parse(str(duration)) == duration
    assert duration.timedelta == timedelta(milliseconds=duration.milliseconds)
    assert duration.seconds * 1000 == duration.milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds", "spelling"),
    [
        ("0ms", 0, "0s"),
        ("1ms", 1, "1ms"),
        ("1000ms", 1_000, "1s"),
        ("90s", 90_000, "90s"),
        ("120s", 120_000, "2m"),
        ("60m", 3_600_000, "1h"),
        ("007s", 7_000, "7s"),
    ],
)
def test_duration(text: str, milliseconds: int, spelling: str) -> None:
    duration = Duration.parse(text)
    assert (duration.milliseconds, str(duration)) == (milliseconds, spelling)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1.5s", "-1s", "1 s", "1S", "1d", "1s1ms", "1s\n", "\uff11s", "1" * 10 + "s"]
)
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a whole number and one of the units"):
        Duration.parse(text)


@given(st.decimals(0, 100, places=4))
def test_percentage_survives_its_spelling(percent: Decimal) -> None:
    percentage = Percentage.parse(f"{percent:f}%")
    assert percentage.percent == percent
    assert Percentage.parse(str(percentage)) == percentage
    assert percentage.fraction * 100 == percent


@pytest.mark.parametrize(
    ("text", "spelling"),
    [("0%", "0%"), ("0.10%", "0.1%"), ("5.000%", "5%"), ("100.0%", "100%"), ("10%", "10%")],
)
def test_percentage(text: str, spelling: str) -> None:
    assert str(Percentage.parse(text)) == spelling


@pytest.mark.parametrize(
    "text", ["", "%", "1", "101%", "100.1%", "-1%", "1.00001%", "1 %", "1e1%", ".5%", "1%\n"]
)
def test_not_a_percentage(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage from 0% to 100%: write a number"):
        Percentage.parse(text)


@given(QUANTITIES)
def test_quantity_survives_its_spelling(text: str) -> None:
    quantity = Quantity.parse(text)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(QUANTITIES, QUANTITIES)
def test_quantities_are_ordered_by_amount(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (a < b, a == b, a > b) == (a.amount < b.amount, a.amount == b.amount, a.amount > b.amount)
    assert (hash(a) == hash(b)) or a != b


@given(QUANTITIES)
def test_ceiling_is_the_next_whole_number(text: str) -> None:
    quantity = Quantity.parse(text)
    assert 0 <= quantity.ceil() - quantity.amount < 1


SPELLINGS = (
    "0=0 0Gi=0 1000m=1 0.5=500m .5=500m 1.=1 1500m=1500m 2000=2k 1024Mi=1Gi 1536Mi=1536Mi 0.5Gi=512Mi "
    "512=512 1Ki=1Ki 1.1Ki=1126400m 0.5Ki=512 203.125Ki=208k 1e3=1e3 1E3=1e3 15e2=1500 1e21=1e21 1E=1E "
    "0.1n=1m 0.0005=1m -0.5=-500m "
)


@pytest.mark.parametrize("spelling", SPELLINGS.split())
def test_canonical_spelling(spelling: str) -> None:
    text, _, canonical = spelling.partition("=")
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "Gi", "1gi", "1KI", "1 Gi", "1e", "--1", "1.2.3", "0x1", "1Gi\n", "one"]
)
def test_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: write a number and a unit"):
        Quantity.parse(text)
