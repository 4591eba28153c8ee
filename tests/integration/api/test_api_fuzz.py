"""The first objects of the fuzzer of CRDs; `make fuzz` sends many more, and others each time."""

from collections.abc import Mapping
from typing import Any

from tests.fuzz import definitions
from tests.integration.api.conftest import Api


def test_a_generated_object_is_refused_with_its_field_or_decided_on(api: Api) -> None:
    def create(body: Mapping[str, Any]) -> tuple[int, Any]:
        answer = api.create(body, dryRun="All")
        return answer.code, answer.body

    outcome = definitions.fuzz(1, 250, create)
    assert outcome.faults == []
    assert outcome.answers["decided Starting"] > 0
