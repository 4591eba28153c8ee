"""Durations, percentages and Kubernetes quantities: strings in the API, exact numbers here.

Each type parses a string, compares by value, and writes itself in one canonical form, so that `1000ms` and
`1s` are the same spec. (A Quantity keeps to binary or decimal suffixes, as Kubernetes does.) Parse errors are
ValueErrors whose message names the value and the remedy. As a field of a model each is what `quantity_fields`
says; that module, and pydantic, are loaded only by processes that have models.
"""

import math
import re
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import total_ordering
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
DURATION_PATTERN: Final = "([0-9]{1,9})(ms|s|m|h)"
"""Means the same to RE2 and to Python."""
_DURATION: Final = re.compile(DURATION_PATTERN)
DURATION_MESSAGE: Final = (
    "'{value}' is not a duration: write a whole number and one of the units ms, s, m, h, "
    "for example 100ms, 2s or 5m"
)

PERCENTAGE_PATTERN: Final = r"(?:100(?:\.0{1,4})?|[0-9]{1,2}(?:\.[0-9]{1,4})?)%"
_PERCENTAGE: Final = re.compile(PERCENTAGE_PATTERN)
PERCENTAGE_MESSAGE: Final = (
    "'{value}' is not a percentage from 0% to 100%: write a number with at most four decimals and a percent "
    "sign, for example 0.1%"
)

_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([KMGTPE]i)|([numkMGTPE]?))"
)
_DECIMAL_SUFFIXES: Final = {
    -9: "n",
    -6: "u",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENTS: Final = {suffix: exponent for exponent, suffix in _DECIMAL_SUFFIXES.items()}
_MILLI: Final = Decimal("1e-3")
LONGEST_QUANTITY: Final = 32
# Enough for 32 digits times 10 to the 99th.
_EXACT: Final = Context(prec=160)
QUANTITY_MESSAGE: Final = "'{value}' is not a quantity: write a number and a unit, for example 500m or 4Gi"


class Text:
    """Base of the types that are strings in the API."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The value that `text` spells. Raises ValueError."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from tailbound.api.quantity_fields import parser

        return parser(cls)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        from tailbound.api.quantity_fields import SCHEMAS

        return {**SCHEMAS[cls]}


@dataclass(frozen=True, order=True)
class Duration(Text):
    """A length of time in whole milliseconds; `90s` in the API."""

    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """The duration that e.g. `100ms`, `2s`, `5m` or `1h` spells. Raises ValueError."""
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError(DURATION_MESSAGE.replace("{value}", text))
        return cls(int(match[1]) * _UNITS_MS[match[2]])

    @property
    def timedelta(self) -> timedelta:
        """The duration as a timedelta of the standard library."""
        return timedelta(milliseconds=self.milliseconds)

    @property
    def seconds(self) -> Decimal:
        """The duration in seconds, exact."""
        return Decimal(self.milliseconds) / 1000

    def __str__(self) -> str:
        """The shortest spelling: the largest unit that divides it."""
        if self.milliseconds == 0:
            return "0s"
        unit = next(unit for unit in ("h", "m", "s", "ms") if self.milliseconds % _UNITS_MS[unit] == 0)
        return f"{self.milliseconds // _UNITS_MS[unit]}{unit}"


@dataclass(frozen=True, order=True)
class Percentage(Text):
    """A share from 0 to 100 percent, exact; `0.1%` in the API."""

    percent: Decimal

    @classmethod
    def parse(cls, text: str) -> "Percentage":
        """The share that e.g. `0.1%` spells. Raises ValueError."""
        if _PERCENTAGE.fullmatch(text) is None:
            raise ValueError(PERCENTAGE_MESSAGE.replace("{value}", text))
        return cls(Decimal(text[:-1]))

    @property
    def fraction(self) -> Decimal:
        """The percentage as a fraction from 0 to 1."""
        return self.percent / 100

    def __str__(self) -> str:
        """The quantity as text, without trailing zeros."""
        text = f"{self.percent:f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text) + "%"


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity(Text):
    """A Kubernetes resource quantity: `500m`, `4Gi`. Equal amounts are equal however they were spelt."""

    amount: Decimal
    binary: bool = field(default=False)
    """Written with a binary suffix."""
    exponent: bool = field(default=False)
    """Written with a decimal exponent, as in 1e3."""

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """The quantity that `text` spells, rounded away from zero to thousandths as in a pod.

        Raises ValueError.
        """
        match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
        if match is None:
            raise ValueError(QUANTITY_MESSAGE.replace("{value}", text))
        number, exponent, binary, suffix = match.groups()
        if exponent is not None:
            factor = Decimal(10) ** int(exponent[1:])
        elif binary is not None:
            factor = Decimal(1024) ** _BINARY_SUFFIXES.index(binary)
        else:
            factor = Decimal(10) ** _EXPONENTS[suffix]
        exact = _EXACT.multiply(Decimal(number), factor)
        rounding = ROUND_CEILING if exact >= 0 else ROUND_FLOOR
        amount = exact.quantize(_MILLI, rounding=rounding, context=_EXACT)
        return cls(amount, binary=binary is not None, exponent=exponent is not None)

    def ceil(self) -> int:
        """The smallest whole number that is not below it: whole CPUs, whole bytes."""
        return math.ceil(self.amount)

    def __eq__(self, other: object) -> bool:
        return self.amount == other.amount if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.amount < other.amount

    def __hash__(self) -> int:
        return hash(self.amount)

    def __str__(self) -> str:
        """A form that the API server stores unchanged, so that a comparison with a stored object is exact."""
        if self.binary and self.amount and self.amount % 1024 == 0:
            return self._binary_form(int(self.amount))
        return self._decimal_form()

    @staticmethod
    def _binary_form(amount: int) -> str:
        power = 0
        while power < len(_BINARY_SUFFIXES) - 1 and amount % 1024 == 0:
            amount //= 1024
            power += 1
        return f"{amount}{_BINARY_SUFFIXES[power]}"

    def _decimal_form(self) -> str:
        number = int(self.amount.scaleb(3, _EXACT))
        if number == 0:
            return "0"
        power = -3
        while (power < 18 or self.exponent) and number % 1000 == 0:
            number //= 1000
            power += 3
        if self.exponent:
            return f"{number}e{power}" if power else f"{number}"
        return f"{number}{_DECIMAL_SUFFIXES[power]}"
