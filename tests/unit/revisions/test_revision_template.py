"""Expansion of leaf strings: what works, what is refused, and in which words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailbound.revisions.rendering import Rendered, RenderFailed, RenderRequest
from tailbound.revisions.template import LEAF_LIMIT_BYTES, TOTAL_LIMIT_BYTES, expand

CONTEXT = {
    "model": {"path": "/mnt/models/model.onnx", "uri": "https://x\nprivileged: true"},
    "revision": {"name": "r1"},
}


def expanded(template: Any) -> Any:
    outcome = expand(RenderRequest("ServingRuntime x", json.dumps(template), json.dumps(CONTEXT), "risk"))
    assert isinstance(outcome, Rendered), outcome
    return json.loads(outcome.template_json)


def refused(template: Any) -> str:
    outcome = expand(RenderRequest("ServingRuntime x", json.dumps(template), json.dumps(CONTEXT), "risk"))
    assert isinstance(outcome, RenderFailed), outcome
    return outcome.message


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ({"args": ["--model={{ model.path }}"]}, {"args": ["--model=/mnt/models/model.onnx"]}),
        ({"a": {"b": [{"c": "{{ revision.name }}"}]}}, {"a": {"b": [{"c": "r1"}]}}),
        (
            {"plain": "no braces", "n": 1, "f": False, "none": None},
            {"plain": "no braces", "n": 1, "f": False, "none": None},
        ),
        ({"json": '{"a": 1}'}, {"json": '{"a": 1}'}),
        ({"tail": "{{ revision.name }}\n"}, {"tail": "r1\n"}),
        ({"html": "{{ '<&>' }}"}, {"html": "<&>"}),
        ({"{{ key }}": "keys are not expanded"}, {"{{ key }}": "keys are not expanded"}),
        ({"if": "{% if model.path %}yes{% endif %}"}, {"if": "yes"}),
    ],
)
def test_expands(template: Any, result: Any) -> None:
    assert expanded(template) == result


def test_a_value_cannot_add_a_field() -> None:
    assert expanded({"uri": "{{ model.uri }}"}) == {"uri": "https://x\nprivileged: true"}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_values_are_taken_literally(value: str) -> None:
    request = RenderRequest("x", json.dumps({"a": "{{ v.x }}"}), json.dumps({"v": {"x": value}}), "risk")
    outcome = expand(request)
    assert isinstance(outcome, Rendered)
    assert json.loads(outcome.template_json) == {"a": value}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            {"server": {"args": ["ok", "{{ model.size }}"]}},
            "spec.server.args[1] is '{{ model.size }}', which cannot be expanded",
        ),
        ({"a": "{{ nothing }}"}, "'nothing' is undefined"),
        ({"a": "{{ nothing }}"}, "Known variables are model.path, model.uri, revision.name"),
        ({"a": "{{ unclosed"}, "cannot be expanded"),
        ({"a": "{{ ''.__class__.__mro__ }}"}, "unsafe"),
        ({"a": "{{ 1 / 0 }}"}, "division by zero"),
        ({"a": "{{ model.path | nosuch }}"}, "nosuch"),
        ({"a": "{{ 1 + 'a' }}"}, "unsupported operand"),
        ({"a": "{% include '/etc/passwd' %}"}, "no loader"),
        ({"a": "{{ 'x' * 20000 }}"}, f"expands to 20000 bytes; shorten it to at most {LEAF_LIMIT_BYTES}"),
        ({"a": ["{{ 'x' * 16000 }}"] * 9}, f"shorten them to at most {TOTAL_LIMIT_BYTES}"),
        ({"a": "{{ '\\x00' }}"}, "NUL"),
        ({"a": "{{ ['a'] | map('upper') }}"}, "end filters such as map and select with |list or |join(' ')"),
        ({"a": "{{ [cycler('a')] ~ '' }}"}, "the address of an object in memory"),
        ({"a": "{{ '\\ud800' }}"}, "surrogates not allowed"),
        ({"a": "{% for i in [1] %}" * 21 + "{% endfor %}" * 21}, "too many statically nested blocks"),
        ({"a": "{% if 1 %}" * 100 + "{% endif %}" * 100}, "too many levels of indentation"),
        ({"a": "{{ dict(a=1, a=2) }}"}, "keyword argument repeated"),
        ({"a": "{{ cycler().next() }}"}, "at least one item has to be provided"),
        ({"a": "{{ 1e999 | int }}"}, "name 'inf' is not defined"),
        ({"a": "{{ [1, 2] | random }}"}, "No filter named 'random'"),
        ({"a": "{{ lipsum() }}"}, "'lipsum' is undefined"),
    ],
)
def test_refuses_in_words(template: Any, words: str) -> None:
    message = refused(template)
    assert message.startswith("ServingRuntime x: ")
    assert words in message
    assert len(message) < 700


def test_equal_requests_render_equally() -> None:
    assert expanded({"b": "{{ revision.name }}", "a": "1"}) == expanded(
        {"a": "1", "b": "{{ revision.name }}"}
    )
