"""The runtime image's own copy of the runtime contract equals the original."""

import json
from dataclasses import fields

import pytest
from pydantic import TypeAdapter, ValidationError
from tailbound.api import runtime_contract as original
from tailbound.api.meta import EnvName
from tailbound_runtime import contract as copy
from tailbound_runtime.config import Option


def test_environment_is_the_same() -> None:
    assert {e.name: e.value for e in copy.Env} == {e.name: e.value for e in original.Env}


NOT_FOR_PODS = {"MODELS", "MODEL_REPOSITORY", "MODEL_CONTROL", "MODEL_MEMORY_BYTES", "TERMINATION_LOG"}
"""Options that would change what the operator sets: the models of a pod, and where it says why it ends."""


def test_every_other_option_of_the_server_may_be_set_in_a_pod() -> None:
    options = {option.name: option.value for option in Option if option.name not in NOT_FOR_PODS}
    assert {option.name: option.value for option in original.ServerOption} == options
    names = TypeAdapter(EnvName)
    assert [names.validate_python(name) for name in options.values()] == list(options.values())
    for name in ("TAILBOUND_MODEL_PATH", *(Option[each] for each in NOT_FOR_PODS)):
        with pytest.raises(ValidationError, match="is reserved"):
            names.validate_python(str(name))


def test_headers_are_the_same() -> None:
    assert (copy.LATENCY_BOUND_HEADER, copy.SHED_HEADER) == (
        original.LATENCY_BOUND_HEADER,
        original.SHED_HEADER,
    )


def test_termination_reasons_exist_in_the_original() -> None:
    for reason in copy.TerminationReason:
        assert original.TerminationReason[reason.name].value == reason.value


@pytest.mark.parametrize("message", ["short", "ä" * 5000, "x" * 100_000, '"' * 9000, ""])
def test_termination_message_parses_and_fits(message: str) -> None:
    body = copy.termination(copy.TerminationReason.MODEL_LOAD_FAILED, message)
    assert len(body) <= copy.TERMINATION_LIMIT_BYTES
    parsed = original.Termination.read(body)
    assert parsed.reason is original.TerminationReason.MODEL_LOAD_FAILED
    assert parsed.message == message or (parsed.message.endswith("…") and len(parsed.message) > 600)
    assert set(json.loads(body)) == {each.name for each in fields(original.Termination)}
