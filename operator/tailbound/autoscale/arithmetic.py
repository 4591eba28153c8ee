"""A decision as arithmetic that a person can check: values, and the line that they are written in. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Final, Protocol

_DIGITS: Final = (3, 4, 6, 9)
_MOST_WRITTEN: Final = 10
"""More than any of `_DIGITS`, and too few to show what a binary fraction lacks."""
ALL_DIGITS: Final = 17
"""Significant digits with which a float is written as it is."""


class Term(Protocol):
    """Part of a line."""

    @property
    def number(self) -> float:
        """What it comes to, without rounding."""
        ...

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


class Combination(ABC):
    """Several terms that come to one number."""

    @property
    @abstractmethod
    def terms(self) -> Sequence[Term]:
        """What is combined."""

    @abstractmethod
    def combined(self, values: Sequence[float]) -> float:
        """What values of `terms` come to together."""

    @cached_property
    def number(self) -> float:
        """The number from the numbers of its terms: of a decision most are asked for several times."""
        return self.combined([term.number for term in self.terms])

    def value(self, digits: int) -> float:
        """The value from the rounded values of its terms."""
        return self.combined([term.value(digits) for term in self.terms])


@dataclass(frozen=True)
class _Parts(Combination):
    """Any number of parts."""

    parts: Sequence[Term]

    @property
    def terms(self) -> Sequence[Term]:
        """The parts."""
        return self.parts


@dataclass(frozen=True)
class Highest(_Parts):
    """The highest of its parts."""

    def combined(self, values: Sequence[float]) -> float:
        """The highest of them."""
        return max(values)

    def text(self, digits: int) -> str:
        """The text as a function call; a single part is written alone."""
        return _function("max", self.parts, digits)


@dataclass(frozen=True)
class Lowest(_Parts):
    """The lowest of its parts."""

    def combined(self, values: Sequence[float]) -> float:
        """The lowest of them."""
        return min(values)

    def text(self, digits: int) -> str:
        """The text as a function call; a single part is written alone."""
        return _function("min", self.parts, digits)


@dataclass(frozen=True)
class Sum(_Parts):
    """Parts that are added up."""

    def combined(self, values: Sequence[float]) -> float:
        """Their sum."""
        return sum(values)

    def text(self, digits: int) -> str:
        """The text, in parentheses if it has several parts."""
        written = " + ".join(part.text(digits) for part in self.parts)
        return f"({written})" if len(self.parts) > 1 else written


@dataclass(frozen=True)
class Product(_Parts):
    """Parts that are multiplied."""

    def combined(self, values: Sequence[float]) -> float:
        """Their product."""
        return prod(values)

    def text(self, digits: int) -> str:
        """Factor by factor."""
        return " * ".join(part.text(digits) for part in self.parts)


@dataclass(frozen=True)
class Quotient(Combination):
    """One part over another."""

    over: Term
    under: Term

    @property
    def terms(self) -> Sequence[Term]:
        """Both."""
        return (self.over, self.under)

    def combined(self, values: Sequence[float]) -> float:
        """The first over the second."""
        over, under = values
        return over / under

    def text(self, digits: int) -> str:
        """The text, with the denominator in parentheses."""
        return f"{self.over.text(digits)} / ({self.under.text(digits)})"


@dataclass(frozen=True)
class CeilingOf(Combination):
    """The next whole number."""

    part: Term

    @property
    def terms(self) -> Sequence[Term]:
        """The part."""
        return (self.part,)

    def combined(self, values: Sequence[float]) -> float:
        """The next whole number of the one value."""
        return float(ceil(values[0]))

    def text(self, digits: int) -> str:
        """The text as a function call."""
        return f"ceil({self.part.text(digits)})"


def exact(term: Term) -> int:
    """The whole number that a term comes to without rounding."""
    return round(term.number)


def line(term: Term) -> str:
    """The term written with the fewest digits that leave what it comes to as it is."""
    digits = next((each for each in _DIGITS if term.value(each) == term.number), ALL_DIGITS)
    return term.text(digits)


def _function(name: str, parts: Sequence[Term], digits: int) -> str:
    written: Iterator[str] = (part.text(digits) for part in parts)
    return f"{name}({', '.join(written)})" if len(parts) > 1 else parts[0].text(digits)
