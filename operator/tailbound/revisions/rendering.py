"""The question and the answers of rendering: what crosses into the child process and back."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class RenderRequest:
    """A structured pod template and the values its leaf strings may use. Equal requests render equally."""

    runtime: str
    template_json: str
    context_json: str


@dataclass(frozen=True)
class Rendered:
    """The template with every leaf string expanded, as canonical JSON."""

    template_json: str


@dataclass(frozen=True)
class RenderFailed:
    """The template could not be expanded; the message names the field and the remedy."""

    message: str


Rendering: TypeAlias = Rendered | RenderFailed | None
"""None: nothing was asked for."""
