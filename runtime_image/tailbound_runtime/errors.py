"""The errors that cross this package's module borders."""

from collections.abc import Sequence

Header = tuple[bytes, bytes]


class ApiError(Exception):
    """An answer other than success. `message` goes to the client as {"error": message}."""

    def __init__(self, status: int, message: str, headers: Sequence[Header] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


class CommandError(Exception):
    """A command cannot be carried out. The text says what is wrong and what to do."""


class SamplesError(CommandError):
    """The samples cannot be used; the text says which, why, and what to do."""


class ModelLoadError(Exception):
    """The model cannot be served at all. The text is one sentence for a person."""


class ModelBrokenError(Exception):
    """The model was served, and fails on everything now. The text is one sentence for a person."""


class ModelInputError(Exception):
    """The model refused this request's tensors: the client's fault."""


class ModelFailedError(Exception):
    """The model failed on tensors that agree with its signature: not the client's fault."""


class TooLargeError(ModelInputError):
    """A run of this request alone needs more memory than the device has for it."""


class MemoryShortError(ModelFailedError):
    """The memory of the device did not suffice for a run; whether others are to blame is not known."""
