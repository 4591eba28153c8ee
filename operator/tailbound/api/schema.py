"""What a model needs to be both a parser and a structural schema: rules, list types and the base class.

A `Rule` is written once and enforced twice: the API server evaluates `cel` when an object is written, and
Python evaluates `holds` when a stored object is read, because an object may be older than the rule. Both
refuse with the same sentence, which names the value and says what to do.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = ({"type": "integer"}, {"type": "string"})
"""The one `anyOf` that a structural schema may hold, beside x-kubernetes-int-or-string."""


def refusal(message: str) -> PydanticCustomError:
    """A validation error that carries our sentence and nothing of pydantic's own."""
    return PydanticCustomError("tailbound_rule", "{message}", {"message": message})


def cel_string(text: str) -> str:
    """A CEL string literal. CEL reads every escape that JSON writes."""
    return json.dumps(text)


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Rule:
    """One thing that must hold of a value.

    `message` may hold `{value}`: the offending value, given by `value_cel` there and by `value` here.
    `on_create_only` is for rules on the root: a root changes with every status write, so that the API server
    would otherwise refuse the status of an object that is older than the rule.
    """

    cel: str
    holds: Callable[[Any], object]
    """Gives something that is true."""
    message: str
    value_cel: str = "self"
    value: Callable[[Any], Any] = _itself
    quoted: str = ""
    """The field that is the offending value, by its name in Python: in place of `value_cel` and `value`."""
    on_create_only: bool = False

    def broken(self, value: Any, raw: Any) -> PydanticCustomError:
        """The validation error for a value of which this does not hold. `raw`: the value as written."""
        quoted = attrgetter(self.quoted) if self.quoted else self.value
        shown = raw if quoted is _itself else quoted(value)
        return refusal(self.message.replace("{value}", str(shown)))

    def to_schema(self) -> dict[str, Any]:
        """One entry of x-kubernetes-validations."""
        entry: dict[str, Any] = {"rule": self.cel, "message": _without_value(self.message)}
        if "{value}" in self.message:
            # Not a sum of strings: where the length of the value is unknown, its cost would be too.
            template = self.message.replace("%", "%%").replace("{value}", "%s")
            value = f"self.{to_camel(self.quoted)}" if self.quoted else self.value_cel
            entry["messageExpression"] = f"{cel_string(template)}.format([{value}])"
        if self.on_create_only:
            entry["rule"] = f"oldSelf.hasValue() || ({self.cel})"
            entry["optionalOldSelf"] = True
        return entry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _checked(handler(source), self)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return with_rules(handler(schema), self)


def _checked(schema: CoreSchema, *rules: Rule) -> CoreSchema:
    """The schema with rules on what it has parsed, the first that does not hold speaking."""

    def validate(raw: Any, parse: ValidatorFunctionWrapHandler) -> Any:
        value = parse(raw)
        for rule in rules:
            if not rule.holds(value):
                raise rule.broken(value, raw)
        return value

    return core_schema.no_info_wrap_validator_function(validate, schema)


def _without_value(message: str) -> str:
    """What the API server says if the value cannot be quoted, for example because it holds a line break."""
    return message.replace("'{value}'", "the value").replace("{value}", "the value")


def with_rules(schema: JsonSchemaValue, *rules: Rule) -> JsonSchemaValue:
    """The schema with these rules behind those that it has."""
    entries = [*schema.get(VALIDATIONS, []), *(rule.to_schema() for rule in rules)]
    return {**schema, VALIDATIONS: entries} if entries else schema


def matches(pattern: str, message: str) -> Rule:
    """A rule that the whole string matches `pattern`, which must mean the same to RE2 and to Python."""
    return Rule(
        cel=f"self.matches({cel_string(f'^(?:{pattern})$')})",
        holds=re.compile(pattern).fullmatch,
        message=message,
    )


def whole_number(field: str, lowest: int, highest: int, what: str) -> Rule:
    """A rule for an integer: from `lowest` to `highest`, both included; `what` it is a number of."""
    return Rule(
        cel=f"self >= {lowest} && self <= {highest}",
        holds=lambda value: lowest <= value <= highest,
        message=f"{field} is {{value}}: write {what} from {lowest} to {highest}",
    )


class InOrder:
    """Rules of which only the first that does not hold speaks: one mistake, one sentence."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _checked(handler(source), *self._rules)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        guarded: list[Rule] = []
        for position, rule in enumerate(self._rules):
            guards = [f"!({earlier.cel})" for earlier in self._rules[:position]]
            cel = " || ".join([*guards, f"({rule.cel})"]) if guards else rule.cel
            guarded.append(replace(rule, cel=cel))
        return with_rules(handler(schema), *guarded)


@dataclass(frozen=True)
class _ListType:
    """How server-side apply merges a list; for maps and sets also: no two items with the same key."""

    list_type: str
    key: str | None = None

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        identities = items if self.key is None else tuple(map(attrgetter(self.key), items))
        if len(set(identities)) < len(items):
            twice = next(each for place, each in enumerate(identities) if each in identities[:place])
            raise refusal(f"{twice!r} is listed twice: remove one of the two")
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.list_type == "atomic":
            return handler(source)
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        result = {**handler(schema), "x-kubernetes-list-type": self.list_type}
        if self.key is not None:
            result["x-kubernetes-list-map-keys"] = [self.key]
        return result


FREE_FORM: Final = WithJsonSchema({"type": "object", PRESERVE_UNKNOWN: True})
"""An object of which the API server knows nothing and keeps everything."""
ATOMIC: Final = _ListType("atomic")
SET: Final = _ListType("set")


def list_map(key: str) -> _ListType:
    """A list whose items are identified by the field `key` (a name without capitals, the same in Python)."""
    return _ListType("map", key)


def unreadable_as(empty: Callable[[], Any]) -> WrapValidator:
    """A validator for a part of a status: it replaces what does not validate, so that the rest is kept."""

    def read(raw: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(raw)
        except ValidationError:
            return empty()

    return WrapValidator(read)


def _hold_rules(model: "Model") -> "Model":
    for rule in model.rules:
        if not rule.holds(model):
            raise rule.broken(model, model)
    return model


class Model(BaseModel):
    """Base of everything stored in the API server: frozen, camelCase there and snake_case here.

    Fields that this version does not know are ignored: a newer CRD may have stored them.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """What must hold across fields."""

    _rules: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Checks for a class that declares some: without any, parsing it makes no call into Python."""
        super().__init_subclass__(**options)
        if cls.rules:
            cls._rules = model_validator(mode="after")(_hold_rules)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        result = handler.resolve_ref_schema(handler(schema))
        result.update(with_rules(result, *cls.rules))
        return result
