"""What a fuzzer found."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

MOST_FAULTS: Final = 20
"""Faults that are kept in full; a fuzzer goes on after them, and counts."""


@dataclass
class Outcome:
    """How the cases of one fuzzer ended. Equal seeds make equal cases."""

    seed: int
    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def ended(self, answer: str) -> None:
        """Count a case."""
        self.cases += 1
        self.answers[answer] += 1

    def fault(self, text: str) -> None:
        """Keep what must not happen."""
        self.answers["fault"] += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)

    def as_json(self) -> dict[str, Any]:
        """Everything but the text of the faults."""
        return {
            "seed": self.seed,
            "cases": self.cases,
            "faults": self.answers["fault"],
            "answers": {key: count for key, count in sorted(self.answers.items()) if key != "fault"},
        }
