"""What is written to status is plain JSON, comes back as it was, and says what does not fit."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.judge.account import Account, account_of
from tailbound.judge.counters import Classes, Reading
from tailbound.judge.evidence import Tally
from tailbound.judge.means import Means, means_about
from tailbound.judge.metric_evidence import Counter, Events, Values, Watch
from tailbound.judge.polls import Readings
from tailbound.judge.record import EvidenceState, Record, packed, state_of, to_document, unpacked
from tailbound.judge.verdict import Measure
from tailbound.judge.windows import Span

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
READINGS = Readings(
    {"uid": Reading("2026-01-01T00:00:00Z", {"churn-r7": Classes(1, 2, 3, 4, 5)})},
    NOON,
    unasked=("other",),
    behind={"other": 2.0},
)


def counted(allowed: float) -> Account:
    """An account with something in every field."""
    account = account_of(allowed).with_pods(2, 3, 10)
    for at, serves in ((0.0, True), (2.0, True), (4.0, False)):
        of_stable, span = Tally(90 * serves, 2), Span(at - 2.0, at)
        account = account.after(Tally(100, 30), of_stable, span, stable_serves=serves).next_step()
    return account


def meant() -> Means:
    """A mean with something in every field."""
    means = means_about(0.1, 0.2).after(0.3, 0.1, Span(0.0, 30.0)).next_step()
    return means.after(0.2, None, Span(30.0, 60.0))


RECORD = Record(READINGS, {Measure.LATENCY: counted(0.01)})
VALUES = Values("up", meant(), 1.5)
EVENTS = Events(
    "up",
    counted(0.1),
    Counter({"total{}": 3.0}, 2.5),
    gathered=(Tally(3, 1), Tally(2, 0)),
    since=1.5,
    compared=3.0,
    seen=("total",),
)
WATCHES: dict[str, Watch] = {"accuracy": VALUES, "refused": EVENTS, "begun": Events("up", account_of(0.1))}


@pytest.mark.parametrize(
    "state",
    [
        EvidenceState(),
        EvidenceState(RECORD),
        EvidenceState(RECORD, unread_since=NOON, unread_why="gateway a"),
        EvidenceState(RECORD, passed_at=NOON, pods=("abcde", "fghij")),
        EvidenceState(RECORD, watches=WATCHES, blind_since=NOON, blind={"m": "it is down"}),
    ],
)
def test_document_is_plain_json_and_comes_back_bit_by_bit(state: EvidenceState) -> None:
    text = json.dumps(to_document(state), allow_nan=False)
    assert state_of(json.loads(text)) == state
    assert unpacked(json.loads(json.dumps(packed(state)))) == state
    assert ('"timedOut": 3' in text) == (state.record is not None)


def test_document_is_small_with_all_steps_begun() -> None:
    account = counted(0.01)
    for _ in range(16):
        account = account.next_step()
    both = {Measure.LATENCY: account, Measure.ERRORS: account}
    assert len(json.dumps(to_document(EvidenceState(Record(READINGS, both))))) < 20_000


EMPTY: dict[str, Any] = {"readings": {"byPod": {}}, "accounts": {}}
OLDER: dict[str, Any] = {"readings": {"byPod": {}}, "evidence": {}, "dispersion": {}, "polls": {}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "record.readings is {}: Field required; remove the evidence"),
        (EMPTY | {"accounts": {"latency": {"polls": 3}}}, "record.accounts.latency.polls is 3: "),
        (EMPTY | {"accounts": {"mood": {}}}, "record.accounts.mood"),
        (OLDER, "record."),
        (EMPTY | {"more": 1}, "record.more is 1: "),
    ],
)
def test_record_that_cannot_be_read_names_field_value_and_remedy(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="remove the evidence") as refusal:
        state_of({"record": document})
    assert str(refusal.value).startswith(problem)


def test_people_who_look_at_the_status_see_one_short_line() -> None:
    both = {Measure.LATENCY: counted(0.01), Measure.ERRORS: counted(0.01)}
    (line,) = packed(EvidenceState(Record(READINGS, both))).values()
    assert line.isascii()
    assert len(line) < 2_000


@pytest.mark.parametrize(
    "stored", [{}, {"record": None}, {"zlib": 1}, {"zlib": "e30="}, {"zlib": "?"}], ids=range(5)
)
def test_evidence_that_is_not_what_this_operator_writes_is_refused_whole(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the rollout is then judged from the beginning"):
        unpacked(stored)
