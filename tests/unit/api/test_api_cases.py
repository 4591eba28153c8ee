"""The table of refusals that our parser and the API server are held to is complete."""

from typing import Any

from tailbound.api.crdgen import RESOURCES, crd
from tailbound.api.schema import VALIDATIONS

from tests.api_cases import REFUSALS


def _rules(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [entry["message"] for entry in schema.get(VALIDATIONS, [])]
        return own + [rule for child in schema.values() for rule in _rules(child)]
    return [rule for child in schema for rule in _rules(child)] if isinstance(schema, list) else []


def test_no_rule_is_without_a_case() -> None:
    """The static message of each rule is the sentence of a case, with its value taken out."""
    written = {rule for resource in RESOURCES for rule in _rules(crd(resource))}
    told = [case.message for case in REFUSALS]
    untested = {
        rule
        for rule in written
        if not any(all(part in case for part in rule.split("the value")) for case in told)
    }
    assert untested == set()
