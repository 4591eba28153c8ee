"""The line that is printed for a decision comes out at the number that was decided."""

import re
from dataclasses import replace
from math import ceil
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.autoscale import model
from tailbound.autoscale.arithmetic import (
    CeilingOf,
    Figure,
    Highest,
    Lowest,
    Product,
    Quotient,
    Sum,
    Term,
    line,
)
from tailbound.autoscale.decide import decide
from tailbound.autoscale.decision import ReplicaDecision
from tailbound.autoscale.model import (
    Arrivals,
    BatchSums,
    Known,
    LatencyTarget,
    LearnedCapacity,
    Limit,
    Limits,
    Replicas,
    RevisionObservation,
    Service,
)
from tailbound.autoscale.state import State
from tailbound.objects.unknown import Unknown

from tests.unit.autoscale.observations import LEARNED, LIMITS, OBJECTIVE, SQUARE, ready, seen

NOT_READ: Final = Unknown("not read")
FUNCTIONS: Final = {"ceil": ceil, "max": max, "min": min}
_WORD: Final = re.compile(r"\b(?!(?:ceil|max|min)\()[A-Za-z][A-Za-z0-9 ]*(?= -?[0-9])")


def outcome(written: str) -> float:
    """What a printed line comes to, its words left out."""
    return float(eval(_WORD.sub("", written), {"__builtins__": {}}, FUNCTIONS))


@pytest.mark.parametrize(
    ("term", "written"),
    [
        (Figure(3, "ready"), "ready 3"),
        (
            CeilingOf(Quotient(Figure(41.2345, "rate"), Figure(16.02, "speed"))),
            "ceil(rate 41.2 / (speed 16))",
        ),
        (CeilingOf(Quotient(Figure(32.01), Figure(16))), "ceil(32.01 / (16))"),
        (Highest((Figure(1), Lowest((Figure(2), Figure(3))))), "max(1, min(2, 3))"),
        (Product((Figure(2), Sum((Figure(1), Figure(0.05, "caution"))))), "2 * (1 + caution 0.05)"),
        (Highest((Figure(7, "present"),)), "present 7"),
    ],
)
def test_figures_have_as_few_digits_as_leave_the_number_as_it_is(term: Term, written: str) -> None:
    assert line(term) == written
    assert outcome(written) == pytest.approx(term.number)


ticks = st.tuples(
    st.floats(0, 300),
    st.floats(0.05, 4),
    st.floats(0, 900),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ticks, min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 40), st.integers(2, 50))
def test_the_printed_line_comes_out_at_the_printed_number(
    seen: list[tuple[float, float, float, int, int, bool, bool]], least: int, more: int, room: int
) -> None:
    state, count = State(learned=LearnedCapacity(0.2, 0.05)), least
    limits = Limits(least, least + more, (model.Ceiling(Limit.HARDWARE, room),))
    for tick, (rate, p99, inside, pending, stuck, arrivals_known, known) in enumerate(seen):
        at, starting = tick * 10.0, min(pending, count)
        rates = Known(rate, at) if arrivals_known else NOT_READ
        batches: Service = Known(BatchSums(15.0, 60, 20, 60, 250, 7.0, 24.5), at) if known else NOT_READ
        observation = RevisionObservation(
            Arrivals(rates, rates, rates, rates),
            Known(p99, at),
            Known(inside, at) if known else NOT_READ,
            batches,
            Replicas(count, count - starting, starting, min(stuck, starting)),
            Known(60.0, at),
        )
        decision = decide(at, observation, LatencyTarget(2.0, 16, 0.05), limits, state)
        comes_out(decision)
        state, count = decision.state, decision.replicas


def comes_out(decision: ReplicaDecision) -> None:
    """The line of a decision, and what is written before and after it."""
    written = decision.explanation.account.line
    number, _, term = written.partition(" = ")
    assert int(number) == decision.replicas
    assert outcome(term.partition(";")[0]) == decision.replicas, written


def test_replicas_for_a_peak_that_returns_are_kept_and_the_line_says_so() -> None:
    state, count, lines, counts = State(learned=LEARNED), 10, [], []
    for tick, rate in enumerate(SQUARE):
        decision = decide(tick * 10.0, seen(tick * 10.0, rate, ready(count)), OBJECTIVE, LIMITS, state)
        comes_out(decision)
        state, count = decision.state, decision.replicas
        lines.append(decision.explanation.account.line)
        counts.append(count)
    assert all("ceil(returning peak 1" in each for each in lines[-48:])
    assert max(counts[-48:]) - min(counts[-48:]) <= 1


def test_the_line_names_what_decided_in_panic() -> None:
    known = Known(160.0, 0.0)
    flooded = RevisionObservation(
        Arrivals(known, known, known, known),
        Known(3.0, 0.0),
        Known(2000.0, 0.0),
        NOT_READ,
        Replicas(10, 10, 0),
        Known(60.0, 0.0),
    )
    state = State(learned=LearnedCapacity(0.2, 0.05, 0.9))
    decision = decide(0.0, flooded, LatencyTarget(2.0, 16, 0.05), Limits(1, 60), state)
    comes_out(decision)
    assert "queue foreseen" in decision.explanation.account.line
    assert decision.explanation.account.line.endswith("; P99 within margin 0.8 * 2 s at dispersion 2")
    quiet = replace(flooded, p99=Known(1.0, 0.0), in_flight=Known(80.0, 0.0))
    calm = decide(0.0, quiet, LatencyTarget(2.0, 16, 0.05), Limits(1, 60), state)
    comes_out(calm)
    assert "usage 0.88 * correction 0.9" in calm.explanation.account.line
