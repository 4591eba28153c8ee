"""Durations, percentages and quantities as fields of models: parser, schema, and rules of ranges."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from tailbound.api.quantities import (
    DURATION_MESSAGE,
    DURATION_PATTERN,
    LONGEST_QUANTITY,
    PERCENTAGE_MESSAGE,
    PERCENTAGE_PATTERN,
    QUANTITY_MESSAGE,
    Duration,
    Percentage,
    Quantity,
    Text,
)
from tailbound.api.schema import INT_OR_STRING, Rule, cel_string, matches, refusal, with_rules

SCHEMAS: Final[Mapping[type[Text], JsonSchemaValue]] = {
    Duration: with_rules({"type": "string", "maxLength": 32}, matches(DURATION_PATTERN, DURATION_MESSAGE)),
    Percentage: with_rules(
        {"type": "string", "maxLength": 32}, matches(PERCENTAGE_PATTERN, PERCENTAGE_MESSAGE)
    ),
    Quantity: with_rules(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": list(INT_OR_STRING),
            "maxLength": LONGEST_QUANTITY,
        },
        Rule(cel="isQuantity(string(self))", holds=lambda _: True, message=QUANTITY_MESSAGE),
    ),
}
"""The schema of a field of each type."""


def parser(kind: type[Text]) -> CoreSchema:
    """The schema that parses a field of this type, and writes it as text."""

    def validate(raw: Any) -> Text:
        if isinstance(raw, kind):
            return raw
        if kind is Quantity and isinstance(raw, int) and not isinstance(raw, bool):
            return Quantity(Decimal(raw))
        if not isinstance(raw, str):
            raise refusal(f"{raw!r} must be a string: put it in quotes")
        try:
            return kind.parse(raw)
        except ValueError as error:
            raise refusal(str(error)) from error

    return core_schema.no_info_plain_validator_function(
        validate, serialization=core_schema.to_string_ser_schema()
    )


def duration_between(lowest: str, highest: str, why: str) -> Rule:
    """A rule for a Duration: from `lowest` to `highest`, both included; `why` ends the sentence."""
    low, high = Duration.parse(lowest), Duration.parse(highest)
    malformed = f"!self.matches('^{DURATION_PATTERN}$')"
    return Rule(
        cel=f"{malformed} || (duration(self) >= duration('{low}') && duration(self) <= duration('{high}'))",
        holds=lambda value: low <= value <= high,
        message=f"'{{value}}' is out of range: write a duration from {low} to {high}, {why}",
    )


def percentage_within(above: str, highest: str, why: str) -> Rule:
    """A rule for a Percentage: greater than `above`, at most `highest`; `why` ends the sentence."""
    low, high = Percentage.parse(above), Percentage.parse(highest)
    malformed = f"!self.matches({cel_string(f'^{PERCENTAGE_PATTERN}$')})"
    number = "double(self.replace('%', ''))"
    return Rule(
        cel=f"{malformed} || ({number} > {float(low.percent)} && {number} <= {float(high.percent)})",
        holds=lambda value: low < value <= high,
        message=f"'{{value}}' is out of range: write a percentage above {low} and at most {high}, {why}",
    )


def quantity_between(lowest: str, highest: str, remedy: str) -> Rule:
    """A rule for a Quantity: from `lowest` to `highest`, both included; `remedy` ends the sentence."""
    low, high = Quantity.parse(lowest), Quantity.parse(highest)
    in_cel = "quantity(string(self)).compareTo(quantity('{}')) {} 0"
    return Rule(
        cel=f"!isQuantity(string(self)) || ({in_cel.format(low, '>=')} && {in_cel.format(high, '<=')})",
        holds=lambda value: low <= value <= high,
        message=f"'{{value}}' is out of range: write {remedy}, from {low} to {high}",
    )


Cpu = Annotated[Quantity, quantity_between("1m", "1k", "a number of CPUs, for example 2 or 500m")]
EphemeralStorage = Annotated[
    Quantity, quantity_between("64Mi", "1Pi", "an amount of disk with its unit, for example 50Gi")
]
Memory = Annotated[
    Quantity, quantity_between("1Mi", "1Pi", "an amount of memory with its unit, for example 4Gi")
]
