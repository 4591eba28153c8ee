"""Parts that every kind shares: object metadata, conditions, names, labels and environment variables."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, StrictInt, StringConstraints

from tailbound.api.conditions import ConditionStatus
from tailbound.api.names import GROUP, MANAGED_BY_LABEL
from tailbound.api.schema import Model, Rule, matches

DNS_LABEL: Final = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
DNS_SUBDOMAIN: Final = rf"{DNS_LABEL}(?:\.{DNS_LABEL})*"
_NAME_PART: Final = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED_NAME: Final = rf"(?:{DNS_SUBDOMAIN}/)?{_NAME_PART}"
_RESERVED_KEY: Final = rf"(?:[^/]*\.)?{GROUP.replace('.', '[.]')}/.*|{MANAGED_BY_LABEL.replace('.', '[.]')}"
_ENV_PREFIX: Final = "TAILBOUND_"

NamespaceName = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(DNS_LABEL, "'{value}' is not a namespace name: write lower-case letters, digits and dashes"),
]

ObjectName = Annotated[
    str,
    StringConstraints(max_length=253),
    matches(
        DNS_SUBDOMAIN,
        "'{value}' is not an object name: write lower-case letters, digits, dashes and dots, with a letter or a digit "
        "at both ends",
    ),
]

EnvName = Annotated[
    str,
    StringConstraints(max_length=253),
    matches(
        "[-._A-Za-z][-._A-Za-z0-9]*",
        "'{value}' is not a name of an environment variable: write letters, digits, '_', '-' and '.', and no digit in front",
    ),
    Rule(
        cel=f"!self.startsWith('{_ENV_PREFIX}')",
        holds=lambda name: not name.startswith(_ENV_PREFIX),
        message=f"'{{value}}' is set by Tailbound: names that begin with {_ENV_PREFIX} are reserved, choose another one",
    ),
]


class EnvVar(Model):
    """One environment variable of the server container."""

    name: EnvName
    """Name of the variable. Names that begin with TAILBOUND_ are set by Tailbound."""

    value: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Its value. Kubernetes expands $(NAME) in it."""


def _refused_keys(pattern: str, accept: bool) -> tuple[str, "_Keys"]:
    """The keys of a map that match (accept=False) or do not match (accept=True) `pattern`: in CEL and in Python."""
    test = f"k.matches('^(?:{pattern})$')".replace("\\", "\\\\")
    return f"self.filter(k, {'!' if accept else ''}{test})", _Keys(pattern, accept)


class _Keys:
    """Finds the keys of a map that a pattern refuses."""

    def __init__(self, pattern: str, accept: bool) -> None:
        import re

        self._pattern, self._accept = re.compile(pattern), accept

    def refused(self, items: Mapping[str, str]) -> list[str]:
        """The refused keys, sorted."""
        return sorted(key for key in items if bool(self._pattern.fullmatch(key)) is not self._accept)


def key_rule(pattern: str, message: str, *, accept: bool) -> Rule:
    """A rule for a map: every key matches `pattern` (accept=True), or none does."""
    found, keys = _refused_keys(pattern, accept)
    return Rule(
        cel=f"{found}.size() == 0",
        holds=lambda items: not keys.refused(items),
        message=message,
        value_cel=f"{found}.join(', ')",
        value=lambda items: ", ".join(keys.refused(items)),
    )


_RESERVED: Final = key_rule(
    _RESERVED_KEY,
    f"'{{value}}' is set by Tailbound: keys of {GROUP} and {MANAGED_BY_LABEL} are reserved, choose another key",
    accept=False,
)
_WELL_FORMED: Final = key_rule(
    _QUALIFIED_NAME,
    "'{value}' is not a valid key: write NAME or DOMAIN/NAME, where NAME has at most 63 letters, digits, '-', '_', '.'",
    accept=True,
)
LABEL_VALUE: Final = "(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"

LabelValue = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(
        LABEL_VALUE, "'{value}' is not a label value: write at most 63 letters, digits, '-', '_' and '.'"
    ),
]

PodLabels = Annotated[dict[str, LabelValue], Field(max_length=32), _RESERVED, _WELL_FORMED]
PodAnnotations = Annotated[
    dict[str, Annotated[str, StringConstraints(max_length=4096)]],
    Field(max_length=32),
    _RESERVED,
    _WELL_FORMED,
]


class ObjectMeta(Model):
    """The part of an object's metadata that Tailbound reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None


class Condition(Model):
    """One observation about the object: what, whether, since when and why."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """What it speaks about, for example Ready."""

    status: ConditionStatus
    """Whether it holds."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Why, in one CamelCase word for programs."""

    message: Annotated[str, StringConstraints(max_length=32768)] = ""
    """Why, in a sentence for people."""

    last_transition_time: AwareDatetime
    """When the status last changed."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] = 0
    """The metadata.generation that it was observed for."""
