"""The question and the answers of rendering: what crosses into the child process and back."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class RenderRequest:
    """A structured pod template and the values its leaf strings may use. Equal requests render equally."""

    runtime: str
    template_json: str
    context_json: str
    namespace: str
    """Whose rendering it is, and whose share of the time for it."""
    further_contexts: tuple[str, ...] = ()
    """The values for further hardware classes."""


@dataclass(frozen=True)
class Rendered:
    """The template with every leaf string expanded, as canonical JSON."""

    template_json: str
    further: tuple[str, ...] = ()
    """The rendered text of each further context."""

    @property
    def all(self) -> tuple[str, ...]:
        """The template of every context, in their order."""
        return (self.template_json, *self.further)


@dataclass(frozen=True)
class RenderFailed:
    """The template could not be expanded; the message names the field and the remedy."""

    message: str


Rendering: TypeAlias = Rendered | RenderFailed | None
"""None: nothing was asked for."""
