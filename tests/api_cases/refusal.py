"""One case of a refusal, and the sentences that are said of several kinds."""

from dataclasses import dataclass
from typing import Any

from tests.api_cases.objects import SERVICE, changed

KEY_MALFORMED = (
    "is not a valid key: write NAME or DOMAIN/NAME, where NAME has at most 63 letters, digits, '-', "
    "'_' and '.'"
)
LABEL_VALUE = (
    "is not a label value: write at most 63 letters, digits, '-', '_' and '.', with a letter or a digit at "
    "both ends"
)
OBJECT_NAME = (
    "is not an object name: write lower-case letters, digits, dashes and dots, with a letter or a digit at "
    "both ends"
)
DURATION = (
    "is not a duration: write a whole number and one of the units ms, s, m, h, for example 100ms, 2s or 5m"
)
FORMAT = "is not a model format: write lower-case letters, digits and dashes, for example onnx"
ENV_RESERVED = "is reserved: variables that begin with TAILBOUND_ are set by Tailbound, choose another name"


@dataclass(frozen=True)
class Refusal:
    """One change that makes a good object a bad one, and the sentence that says so."""

    name: str
    base: dict[str, Any]
    path: str
    value: Any
    field: str
    message: str

    @property
    def object(self) -> dict[str, Any]:
        """The refused object."""
        return changed(self.base, self.path, self.value)


def service(name: str, path: str, value: Any, message: str, field: str = "") -> Refusal:
    """A wrong value at this path of an InferenceService; `field` is where it is reported, if elsewhere."""
    return Refusal(name, SERVICE, path, value, field or path, message)


def quoted(name: str, path: str, value: str, message: str) -> Refusal:
    """A wrong string at this path of an InferenceService; the sentence begins with it."""
    return service(name, path, value, f"'{value}' {message}")
