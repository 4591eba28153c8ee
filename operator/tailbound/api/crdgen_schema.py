"""Converts a pydantic model to the structural schema that the API server requires.

Pydantic's own JSON schema holds $ref, null branches and titles, all refused or useless there. What this
module does not know it refuses, so that no constraint is lost on the way.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from tailbound.api.quantities import Text
from tailbound.api.schema import PRESERVE_UNKNOWN, VALIDATIONS, Model

_KEPT: Final = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    PRESERVE_UNKNOWN,
    VALIDATIONS,
)
_TREATED: Final = ("properties", "items", "additionalProperties", "anyOf", "title")


class NotStructuralError(ValueError):
    """A model says something that a structural schema cannot; the message names the place."""


def structural(model: type[Model]) -> dict[str, Any]:
    """The structural schema of a whole object of this kind. Raises NotStructuralError.

    The API server validates metadata by itself, and allows no other schema for it than this one.
    """
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    schema["properties"]["metadata"] = {"type": "object"}
    return _Converter(schema.pop("$defs", {})).convert(schema, model.__name__)


class _Generator(GenerateJsonSchema):
    """Writes defaults as the API spells them."""

    def encode_default(self, dft: Any) -> Any:
        return str(dft) if isinstance(dft, Text) else super().encode_default(dft)


class _Converter:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def convert(self, schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        """One node, with everything below it."""
        node = self._flat(schema)
        if unknown := set(node) - {*_KEPT, *_TREATED}:
            raise NotStructuralError(
                f"{path}: {', '.join(sorted(unknown))} has no place in a structural schema"
            )
        result: dict[str, Any] = {key: node[key] for key in _KEPT if key in node}
        if "default" in node and (kept := _without_empty(node["default"])) is not None:
            result["default"] = kept
        else:
            result.pop("default", None)
        if "description" in result:
            result["description"] = " ".join(result["description"].split()) + _default_sentence(result, path)
        self._add_children(result, node, path)
        _demand(result, path)
        return result

    def _flat(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Resolve a reference and an optional branch. What is said nearer to the field wins; rules add up."""
        node = dict(schema)
        branches = [branch for branch in node.get("anyOf", ()) if branch != {"type": "null"}]
        if len(branches) == 1:
            del node["anyOf"]
            node = _merged(self._flat(branches[0]), node)
        if "$ref" in node:
            name = node.pop("$ref").rpartition("/")[2]
            node = _merged(self._flat(self._definitions[name]), node)
        return node

    def _add_children(self, result: dict[str, Any], node: Mapping[str, Any], path: str) -> None:
        if "anyOf" in node:
            if not node.get("x-kubernetes-int-or-string"):
                raise NotStructuralError(f"{path}: a union has no place in a structural schema")
            result["anyOf"] = [dict(branch) for branch in node["anyOf"]]
        if "properties" in node:
            result["properties"] = {
                name: self.convert(child, f"{path}.{name}") for name, child in node["properties"].items()
            }
        if "items" in node:
            result["items"] = self.convert(node["items"], f"{path}[]")
        if "additionalProperties" in node:
            if "properties" in node:
                raise NotStructuralError(f"{path}: additionalProperties beside properties is refused")
            values = self.convert(node["additionalProperties"], f"{path}{{}}")
            result["additionalProperties"] = values


def _merged(base: Mapping[str, Any], nearer: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**base, **nearer}
    rules = [*base.get(VALIDATIONS, ()), *nearer.get(VALIDATIONS, ())]
    return {**merged, VALIDATIONS: rules} if rules else merged


def _default_sentence(node: Mapping[str, Any], path: str) -> str:
    """The default as the end of a description, which is all that `kubectl explain` prints of a field.

    Empty without one, and in a status, where it is only what an absent field means.
    """
    default = node.get("default")
    if default is None or isinstance(default, Mapping | list) or ".status" in path:
        return ""
    return f" Default: {str(default).lower() if isinstance(default, bool) else default}."


def _without_empty(value: Any) -> Any:
    """A default without what says nothing; None if nothing is left. Stored objects stay short that way."""
    if isinstance(value, Mapping):
        kept = {key: inner for key, child in value.items() if (inner := _without_empty(child)) is not None}
        return kept or None
    return None if value in ("", []) else value


def _demand(result: Mapping[str, Any], path: str) -> None:
    """What every node must have: bounds, without which rules are refused for their cost, and list types."""
    kind = result.get("type")
    if kind is None and not result.get("x-kubernetes-int-or-string"):
        raise NotStructuralError(f"{path}: the type is missing")
    if kind == "array" and "x-kubernetes-list-type" not in result:
        raise NotStructuralError(f"{path}: a list needs ATOMIC, SET or list_map")
    for bounded, bound in (("array", "maxItems"), ("string", "maxLength")):
        if kind == bounded and bound not in result and "enum" not in result and "format" not in result:
            raise NotStructuralError(f"{path}: {bound} is missing")
    if "additionalProperties" in result and "maxProperties" not in result:
        raise NotStructuralError(f"{path}: maxProperties is missing")
