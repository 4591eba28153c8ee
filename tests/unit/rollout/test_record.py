"""What is written to status is plain JSON, comes back as it was, and says what does not fit."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tailbound.rollout.bursts import Dispersion
from tailbound.rollout.counters import Classes, Reading
from tailbound.rollout.evidence import Tally
from tailbound.rollout.polls import Readings
from tailbound.rollout.record import History, Record, history_of, record_of, to_document
from tailbound.rollout.verdict import Evidence, Measure

READINGS = Readings({"uid": Reading("2026-01-01T00:00:00Z", {"churn-r7": Classes(1, 2, 3, 4, 5)})})
RECORD = Record(
    READINGS,
    {Measure.LATENCY: Evidence().after(Tally(10, 1), Tally(90, 2)).next_step()},
    {Measure.LATENCY: Dispersion().after(Tally(90, 2))},
)
HISTORY = History(READINGS, {Measure.ERRORS: Dispersion().after(Tally(70, 3))})


@pytest.mark.parametrize(("known", "parsed"), [(RECORD, record_of), (HISTORY, history_of)])
def test_document_is_plain_json_and_comes_back_bit_by_bit(
    known: History | Record, parsed: Callable[[Mapping[str, Any]], History | Record]
) -> None:
    text = json.dumps(to_document(known), allow_nan=False)
    assert parsed(json.loads(text)) == known
    assert '"timedOut": 3' in text


EMPTY: dict[str, Any] = {"readings": {"byPod": {}}, "evidence": {}, "dispersion": {}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "readings is {}: Field required; remove the evidence"),
        (EMPTY | {"evidence": {"latency": {"canary": 3}}}, "evidence.latency.canary is 3: "),
        (EMPTY | {"evidence": {"mood": {}}}, "evidence.mood"),
        (EMPTY | {"more": 1}, "more is 1: "),
    ],
)
def test_record_that_cannot_be_read_names_field_value_and_remedy(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="remove the evidence") as refusal:
        record_of(document)
    assert str(refusal.value).startswith(problem)
