"""Termination messages, which any container of a pod may have written, as the operator reads them."""

import json
from typing import Any

import pytest
from tailbound.api.runtime_contract import Resolution, Termination, TerminationReason

DIGEST = "0a" * 32
FOUND: dict[str, Any] = {"reason": "Fetched", "message": "fünf", "sha256": DIGEST, "size_bytes": 5}


def test_what_is_written_is_read() -> None:
    said = Termination(TerminationReason.NOT_A_MODEL, 'a "model" of Müller')
    assert Termination.read(said.written().encode()) == said
    for weights in (None, 0, 140 * 10**9):
        found = Resolution(TerminationReason.FETCHED, "fünf", DIGEST, 5, weights)
        assert Resolution.read(found.written()) == found
        assert Termination.read(found.written()) == Termination(TerminationReason.FETCHED, "fünf")
    assert Resolution.read(json.dumps(FOUND | {"later": "member"})).weight_bytes is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Killed",
        "[" * 4000,
        '["reason", "message"]',
        b"\xff\xfe",
        json.dumps({"reason": "Fetched"}),
        json.dumps({"reason": "Unheard", "message": "x"}),
        json.dumps({"reason": "Fetched", "message": None}),
        '{"reason": "Fetched", "message": "\\ud800"}',
    ],
)
def test_a_text_that_is_none_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        Termination.read(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sha256": "0A" * 32},
        {"sha256": DIGEST + "\n"},
        {"sha256": 5},
        {"size_bytes": -1},
        {"size_bytes": True},
        {"size_bytes": "5"},
        {"size_bytes": 5.0},
        {"weight_bytes": -1},
        {"weight_bytes": "5"},
        {"message": "\ud800"},
    ],
)
def test_a_resolution_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Resolution.read(json.dumps(FOUND | wrong))
