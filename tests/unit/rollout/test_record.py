"""What is written to status is plain JSON, comes back as it was, and says what does not fit."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.rollout.betting import Against, that_polls_are_above
from tailbound.rollout.bursts import Dispersion
from tailbound.rollout.counters import Classes, Reading
from tailbound.rollout.evidence import Tally
from tailbound.rollout.means import means_about
from tailbound.rollout.polls import Readings
from tailbound.rollout.record import Memory, Record, memory_of, to_document
from tailbound.rollout.verdict import Evidence, Measure
from tailbound.rollout.watches import Counter, Events, Values, Watch

READINGS = Readings(
    {"uid": Reading("2026-01-01T00:00:00Z", {"churn-r7": Classes(1, 2, 3, 4, 5)})}, unasked=("other",)
)
RECORD = Record(
    READINGS,
    {Measure.LATENCY: Evidence().after(Tally(10, 1), Tally(90, 2)).next_step()},
    {Measure.LATENCY: Dispersion().after(Tally(90, 2))},
    {Measure.LATENCY: Against(that_polls_are_above(0.01)).after_poll(Tally(10, 1))},
)
VALUES = Values("up", means_about(0.1, 0.2).after(0.3, 0.1).next_step().after(0.2, None), 1.5)
BETS = Against(that_polls_are_above(0.1))
EVENTS = Events(
    "up",
    BETS.after_poll(Tally(10, 1)).next_step(),
    Counter({"total{}": 3.0}, 2.5),
    gathered=(Tally(3, 1), Tally(2, 0)),
    since=1.5,
    evidence=Evidence().after(Tally(10, 1), Tally(90, 2)).next_step(),
    dispersion=Dispersion().after(Tally(90, 2)),
)
WATCHES: dict[str, Watch] = {"accuracy": VALUES, "refused": EVENTS, "begun": Events("up", BETS)}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "memory",
    [
        Memory(),
        Memory(RECORD),
        Memory(RECORD, unread_since=NOON, unread_why="gateway a"),
        Memory(RECORD, passed_at=NOON),
        Memory(RECORD, watches=WATCHES, blind_since=NOON, blind_why="it is down"),
    ],
)
def test_document_is_plain_json_and_comes_back_bit_by_bit(memory: Memory) -> None:
    text = json.dumps(to_document(memory), allow_nan=False)
    assert memory_of(json.loads(text)) == memory
    assert ('"timedOut": 3' in text) == (memory.record is not None)


EMPTY: dict[str, Any] = {"readings": {"byPod": {}}, "evidence": {}, "dispersion": {}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "record.readings is {}: Field required; remove the evidence"),
        (EMPTY | {"evidence": {"latency": {"canary": 3}}}, "record.evidence.latency.canary is 3: "),
        (EMPTY | {"evidence": {"mood": {}}}, "record.evidence.mood"),
        (EMPTY | {"more": 1}, "record.more is 1: "),
    ],
)
def test_record_that_cannot_be_read_names_field_value_and_remedy(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="remove the evidence") as refusal:
        memory_of({"record": document})
    assert str(refusal.value).startswith(problem)
