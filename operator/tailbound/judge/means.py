"""Evidence about the mean of bounded values, of a candidate and beside it of stable.

The counterpart of `verdict.Evidence`, which is about counts; the numbers of both are decided upon alike.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from tailbound.judge.betting import Bets, BoundTest, PairedTest, that_above, that_below
from tailbound.judge.verdict import EValues
from tailbound.judge.windows import Sides, Span

LEAST_VALUES: Final = 5
"""No candidate is rejected by fewer values."""


@dataclass(frozen=True)
class Means:
    """All that is known about one mean of badness, which is 0 at best and 1 at worst."""

    against: BoundTest
    passing: Bets
    relative: PairedTest = field(default_factory=PairedTest)
    """Evidence that the candidate's mean is worse than stable's."""
    improves: PairedTest = field(default_factory=PairedTest)
    """Evidence that stable's is the worse one."""
    values: int = 0
    total: float = 0.0
    """Sum of the values."""
    pairs: int = 0
    """Values of the candidate that came with one of stable."""

    def after(self, value: float, stable: float | None, span: Span) -> "Means":
        """What is known after a value of the candidate, and that of stable if there was one."""
        known = replace(
            self,
            against=self.against.after_value(value, span, Sides(stable=stable is not None)),
            passing=self.passing.after(value),
            values=self.values + 1,
            total=self.total + value,
        )
        if stable is None:
            return known
        return replace(
            known,
            relative=self.relative.after(value, stable),
            improves=self.improves.after(stable, value),
            pairs=self.pairs + 1,
        )

    def next_step(self) -> "Means":
        """The means as a step begins: proof for passing starts again, what speaks against it stays."""
        return replace(self, passing=that_below(self.passing.null), against=self.against.next_step())

    def numbers(self) -> EValues:
        """What it says about the bound."""
        return EValues(
            absolute=self.against.absolute,
            late=self.against.late,
            relative=self.relative.log_fortune,
            improves=self.improves.log_fortune,
            passing=self.passing.log_fortune,
            enough=self.values >= LEAST_VALUES,
        )


def means_about(allowed: float, unacceptable: float) -> Means:
    """Nothing yet, about a mean that must be at most `allowed` and passes below `unacceptable`."""
    return Means(BoundTest(that_above(allowed)), that_below(unacceptable))
