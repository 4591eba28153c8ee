"""Learned capacity on ControllerRevisions: rarely written, read with care, shared within a namespace."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound.autoscale.model import LearnedCapacity
from tailbound.reconcile import capacity
from tailbound.revisions.marks import Marks

from tests.support.simulated.objects import model, service
from tests.support.simulated.simulator import Simulator

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEARNED = LearnedCapacity(base=0.2, per_row=0.05, correction=1.0, cold_start=20.0)


def written(learned: LearnedCapacity = LEARNED, at: datetime = NOW) -> str:
    text = capacity.to_write(None, learned, at)
    assert text is not None
    return text


def test_what_is_written_is_read_again() -> None:
    note = capacity.note_of(Marks(capacity=written()))
    assert note == capacity.Note(LEARNED, NOW)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "fast",
        "[]",
        "7",
        "{}",
        json.dumps({"at": "yesterday", "base": 1, "per_row": 1}),
        json.dumps({"at": "2026-01-01T12:00:00Z", "base": "much", "per_row": 1}),
        json.dumps({"at": "2026-01-01T12:00:00Z", "base": 1}),
    ],
)
def test_what_cannot_be_read_is_not_known(text: str | None) -> None:
    assert capacity.note_of(Marks(capacity=text)) is None


@pytest.mark.parametrize(
    ("change", "minutes", "writes"),
    [
        ({}, 60, False),
        ({"per_row": 0.052}, 60, False),
        ({"per_row": 0.053}, 60, True),
        ({"per_row": 0.047}, 60, True),
        ({"correction": 0.9}, 10, True),
        ({"correction": 0.9}, 9, False),
        ({"cold_start": 40.0}, 11, True),
    ],
)
def test_it_is_written_after_ten_minutes_and_a_change_of_five_percent(
    change: dict[str, Any], minutes: int, writes: bool
) -> None:
    note = capacity.note_of(Marks(capacity=written()))
    later = NOW + timedelta(minutes=minutes)
    assert (capacity.to_write(note, replace(LEARNED, **change), later) is not None) is writes


def record(letter: str = "a", note: str | None = None, **fields: Any) -> dict[str, Any]:
    """The ControllerRevision of a service with this model."""
    simulator = Simulator(service=service(model=model(letter), **fields))
    simulator.settle()
    (stored,) = simulator.of("ControllerRevision")
    if note is not None:
        stored["metadata"]["annotations"]["tailbound.dev/capacity"] = note
    return stored


def test_a_revision_that_knows_nothing_takes_the_newest_of_its_model_and_class() -> None:
    older, newer = LEARNED, replace(LEARNED, base=0.3)
    neighbours = [
        record(note=written(newer, NOW)),
        record(note=written(older, NOW - timedelta(hours=1))),
        record("b", note=written(replace(LEARNED, base=9.0), NOW + timedelta(hours=1))),
        record(),
    ]
    assert capacity.remembered(record(), neighbours) == newer
    assert capacity.remembered(record("c"), neighbours) is None
    own = replace(LEARNED, base=0.7)
    assert capacity.remembered(record(note=written(own, NOW - timedelta(days=1))), neighbours) == own


def test_a_corrupt_record_shares_nothing() -> None:
    corrupt = record(note=written())
    corrupt["data"] = {}
    assert capacity.remembered(record(), [corrupt]) is None
    assert capacity.key_of(corrupt) is None
