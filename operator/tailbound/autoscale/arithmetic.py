"""A decision as arithmetic that a person can check: values, and the line that they are written in. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Final, Protocol

_DIGITS: Final = (3, 4, 6, 9)
_MOST_WRITTEN: Final = 10
"""More than any of `_DIGITS`, and too few to show what a binary fraction lacks."""
ALL_DIGITS: Final = 17
"""With so many a float is written as it is."""


class Term(Protocol):
    """Part of a line."""

    def value(self, digits: int) -> float:
        """What it comes to, with every figure rounded to `digits`."""
        ...

    def text(self, digits: int) -> str:
        """How it is written with figures rounded to `digits`."""
        ...


@dataclass(frozen=True)
class Figure:
    """A number, and a word for what it is."""

    number: float
    name: str = ""

    def value(self, digits: int) -> float:
        """Rounded; a whole number stays as it is."""
        return self.number if self.number == int(self.number) else float(f"{self.number:.{digits}g}")

    def text(self, digits: int) -> str:
        """The word before the number."""
        value = self.value(digits)
        written = repr(value) if digits == ALL_DIGITS else f"{value:.{_MOST_WRITTEN}g}"
        return f"{self.name} {written}".lstrip()


@dataclass(frozen=True)
class Highest:
    """The highest of its parts."""

    parts: Sequence[Term]

    def value(self, digits: int) -> float:
        """The value from the rounded values of its parts."""
        return max(part.value(digits) for part in self.parts)

    def text(self, digits: int) -> str:
        """The text as a function call; a single part is written alone."""
        return _function("max", self.parts, digits)


@dataclass(frozen=True)
class Lowest:
    """The lowest of its parts."""

    parts: Sequence[Term]

    def value(self, digits: int) -> float:
        """The value from the rounded values of its parts."""
        return min(part.value(digits) for part in self.parts)

    def text(self, digits: int) -> str:
        """The text as a function call; a single part is written alone."""
        return _function("min", self.parts, digits)


@dataclass(frozen=True)
class Sum:
    """Parts that are added up."""

    parts: Sequence[Term]

    def value(self, digits: int) -> float:
        """The value from the rounded values of its parts."""
        return sum(part.value(digits) for part in self.parts)

    def text(self, digits: int) -> str:
        """The text, in parentheses if it has several parts."""
        written = " + ".join(part.text(digits) for part in self.parts)
        return f"({written})" if len(self.parts) > 1 else written


@dataclass(frozen=True)
class Product:
    """Parts that are multiplied."""

    parts: Sequence[Term]

    def value(self, digits: int) -> float:
        """The value from the rounded values of its parts."""
        return prod(part.value(digits) for part in self.parts)

    def text(self, digits: int) -> str:
        """Factor by factor."""
        return " * ".join(part.text(digits) for part in self.parts)


@dataclass(frozen=True)
class Quotient:
    """One part over another."""

    over: Term
    under: Term

    def value(self, digits: int) -> float:
        """The value from the rounded values of its parts."""
        return self.over.value(digits) / self.under.value(digits)

    def text(self, digits: int) -> str:
        """The text, with the denominator in parentheses."""
        return f"{self.over.text(digits)} / ({self.under.text(digits)})"


@dataclass(frozen=True)
class CeilingOf:
    """The next whole number."""

    part: Term

    def value(self, digits: int) -> float:
        """The value from the rounded value of its part."""
        return float(ceil(self.part.value(digits)))

    def text(self, digits: int) -> str:
        """The text as a function call."""
        return f"ceil({self.part.text(digits)})"


def exact(term: Term) -> int:
    """The whole number that a term comes to without rounding."""
    return round(term.value(ALL_DIGITS))


def line(term: Term) -> str:
    """The term written with the fewest digits that leave what it comes to as it is."""
    exact = term.value(ALL_DIGITS)
    digits = next((each for each in _DIGITS if term.value(each) == exact), ALL_DIGITS)
    return term.text(digits)


def _function(name: str, parts: Sequence[Term], digits: int) -> str:
    written: Iterator[str] = (part.text(digits) for part in parts)
    return f"{name}({', '.join(written)})" if len(parts) > 1 else parts[0].text(digits)
