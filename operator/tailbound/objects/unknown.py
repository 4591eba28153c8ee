"""The value that is not known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unknown:
    """Stands for a value that is not known. It is neither zero nor empty, and nothing is computed from it."""

    reason: str
    """Why it is not known, for people; part of a sentence."""
