"""Why a fetch ends or is tried again."""

from tailbound.api.runtime_contract import TerminationReason


class FetchFailedError(Exception):
    """The fetch ends here; trying again would not help. The text is for a person."""

    def __init__(self, reason: TerminationReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TransientError(Exception):
    """A failure that may not happen again. retry_after_seconds: what the server asked for, or None."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NoRangesError(TransientError):
    """The source gives no ranges to several connections: what is here is right, and one goes on with it."""


class RangeRefusedError(TransientError):
    """The source has no such range: what is here already is not the start of what it has."""
