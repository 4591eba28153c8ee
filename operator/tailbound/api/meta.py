"""Parts that every kind shares: object metadata, conditions, names, labels and environment variables."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, StrictInt, StringConstraints

from tailbound.api.conditions import ConditionStatus
from tailbound.api.names import GROUP, MANAGED_BY_LABEL, PROFILE_ANNOTATIONS
from tailbound.api.plugin_keys import DEVICE_VARIABLES, OPT_OUTS, PLUGIN_KEYS, is_acted_on
from tailbound.api.runtime_contract import ServerOption
from tailbound.api.schema import InOrder, Model, Rule, cel_string, matches

DNS_LABEL: Final = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
DNS_SUBDOMAIN: Final = rf"{DNS_LABEL}(?:\.{DNS_LABEL})*"
NAME_PART: Final = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""The part of a label key behind the slash, and a label value that is not empty."""
_RESERVED_ENV: Final = "TAILBOUND_"
_SERVER_OPTIONS: Final = [str(option) for option in ServerOption]

NamespaceName = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(DNS_LABEL, "'{value}' is not a namespace: write lower-case letters, digits and dashes"),
]

ObjectName = Annotated[
    str,
    StringConstraints(max_length=253),
    matches(
        DNS_SUBDOMAIN,
        "'{value}' is not an object name: write lower-case letters, digits, dashes and dots, with a letter "
        "or a digit at both ends",
    ),
]

EnvName = Annotated[
    str,
    StringConstraints(max_length=253),
    matches(
        "[-._A-Za-z][-._A-Za-z0-9]*",
        "'{value}' is not the name of an environment variable: write letters, digits, '_', '-' and '.', "
        "beginning with no digit",
    ),
    Rule(
        cel=f"!self.startsWith('{_RESERVED_ENV}') || self in {_SERVER_OPTIONS}",
        holds=lambda name: not name.startswith(_RESERVED_ENV) or name in _SERVER_OPTIONS,
        message="'{value}' is reserved: variables that begin with TAILBOUND_ are set by Tailbound, choose "
        "another name",
    ),
    Rule(
        cel=f"!(self in {DEVICE_VARIABLES})",
        holds=lambda name: name not in DEVICE_VARIABLES,
        message="'{value}' is reserved: the device plugin sets it, ask for devices by spec.hardware",
    ),
]

LabelValue = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(
        f"(?:{NAME_PART})?",
        "'{value}' is not a label value: write at most 63 letters, digits, '-', '_' and '.', with a letter "
        "or a digit at both ends",
    ),
]


class KeySelector(Model):
    """One key of a ConfigMap or a Secret in the namespace of the service."""

    name: ObjectName
    """Name of the object."""

    key: Annotated[
        str,
        StringConstraints(max_length=253),
        matches("[-._a-zA-Z0-9]+", "'{value}' is not a key: write letters, digits, '-', '_' and '.'"),
    ]
    """The key."""


class EnvVarSource(Model):
    """The place of the value of an environment variable: exactly one source."""

    rules = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            holds=lambda source: (source.secret_key_ref is None) != (source.config_map_key_ref is None),
            message="write exactly one of secretKeyRef and configMapKeyRef",
        ),
    )

    secret_key_ref: KeySelector | None = None
    """A key of a Secret. Who names it must be allowed to get the Secret."""

    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""


class EnvVar(Model):
    """One environment variable of the server container."""

    rules = (
        Rule(
            cel="!has(self.valueFrom) || !has(self.value) || self.value == ''",
            holds=lambda variable: variable.value_from is None or not variable.value,
            message="{value} has both value and valueFrom: remove one of the two",
            quoted="name",
        ),
    )

    name: EnvName
    """Name of the variable. Names that begin with TAILBOUND_ are set by Tailbound, but for options of its
    model server, such as TAILBOUND_ENGINE."""

    value: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Its value. Kubernetes expands $(NAME) in it."""

    value_from: EnvVarSource | None = None
    """Where its value is, instead of value."""

    def in_pod(self) -> dict[str, Any]:
        """The variable as a pod template has it."""
        if self.value_from is None:
            return {"name": self.name, "value": self.value}
        source = self.value_from.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"name": self.name, "valueFrom": source}


def _no_key(pattern: str, message: str, *, but: bool = False) -> Rule:
    """A rule for a map: no key matches `pattern`, or with `but`, every key does. It names one wrong key."""
    compiled = re.compile(pattern)
    unwanted = f"self.filter(k, {'!' if but else ''}k.matches({cel_string(f'^(?:{pattern})$')}))"

    def found(items: Mapping[str, str]) -> list[str]:
        return [key for key in items if (compiled.fullmatch(key) is not None) is not but]

    return Rule(
        cel=f"{unwanted}.size() == 0",
        holds=lambda items: not found(items),
        message=message,
        value_cel=f"{unwanted}[0]",
        value=lambda items: min(found(items)),
    )


WELL_FORMED_KEYS: Final = _no_key(
    f"(?:{DNS_SUBDOMAIN}/)?{NAME_PART}",
    "'{value}' is not a valid key: write NAME or DOMAIN/NAME, where NAME has at most 63 letters, digits, "
    "'-', '_' and '.'",
    but=True,
)
_NO_RESERVED_KEYS: Final = _no_key(
    rf"(?:[^/]+\.)?{re.escape(GROUP)}/.*|{re.escape(MANAGED_BY_LABEL)}",
    f"'{{value}}' is reserved: {MANAGED_BY_LABEL} and keys of {GROUP} are set by Tailbound, choose another "
    f"key",
)
_NO_PROFILE_KEYS: Final = _no_key(
    "|".join(f"{re.escape(prefix)}.*" for prefix in PROFILE_ANNOTATIONS),
    "'{value}' is not allowed: AppArmor and seccomp profiles of serving pods are those of the Pod Security "
    "profile restricted, remove it",
)
_ACTED_ON: Final = (
    f"self.filter(k, k.matches({cel_string(f'^(?:{PLUGIN_KEYS})$')}) && "
    f"!(k in {OPT_OUTS} && self[k] == {OPT_OUTS}[k]))"
)


def _acted_on(items: Mapping[str, str]) -> list[str]:
    return [key for key, value in items.items() if is_acted_on(key, value)]


_NO_PLUGIN_KEYS: Final = Rule(
    cel=f"{_ACTED_ON}.size() == 0",
    holds=lambda items: not _acted_on(items),
    message="'{value}' is not allowed: a plugin or webhook of the cluster that acts on it could give the "
    "pods another network, sandbox, identity or container than those that Tailbound checks, remove it; "
    "administrators set such things for the namespace or in the plugin",
    value_cel=f"{_ACTED_ON}[0]",
    value=lambda items: min(_acted_on(items)),
)
_POD_KEYS: Final = InOrder(_NO_RESERVED_KEYS, _NO_PLUGIN_KEYS, WELL_FORMED_KEYS)

NodeLabels = Annotated[dict[str, LabelValue], Field(max_length=32), WELL_FORMED_KEYS]
PodLabels = Annotated[dict[str, LabelValue], Field(max_length=32), _POD_KEYS]
PodAnnotations = Annotated[
    dict[str, Annotated[str, StringConstraints(max_length=4096)]],
    Field(max_length=32),
    InOrder(_NO_RESERVED_KEYS, _NO_PROFILE_KEYS, _NO_PLUGIN_KEYS, WELL_FORMED_KEYS),
]


class ObjectMeta(Model):
    """The part of an object's metadata that Tailbound reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    finalizers: tuple[str, ...] = ()


class Condition(Model):
    """One condition of the object, as in the Kubernetes API conventions."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """Type of the condition, for example Ready."""

    status: ConditionStatus
    """True, False or Unknown."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Cause as one CamelCase word, for programs."""

    message: Annotated[str, StringConstraints(max_length=32768)] = ""
    """Cause as a sentence."""

    last_transition_time: AwareDatetime
    """When the status last changed."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] = 0
    """The metadata.generation that the condition describes."""
