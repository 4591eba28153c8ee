"""Why a revision is not on its way any more, as decided in a rollout and kept in its ControllerRevision."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rejection:
    """Why a revision is not tried again until a retry is asked for."""

    revision: str
    reason: str
    message: str
    by: str | None = None
    """The user who asked for it, where that is known; None after a verdict."""
    at: str = ""
    """When it was written to the ControllerRevision, in UTC; empty before that."""


@dataclass(frozen=True)
class Superseded:
    """A later spec came before there was a verdict on a revision."""

    revision: str
    by: str
    """The revision of that spec."""
    at: str = ""
    """When it was written to the ControllerRevision, in UTC; empty before that."""
