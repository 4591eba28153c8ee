"""Every rule by which many gateways' counters become one poll, and that no request is ever counted twice."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.judge.counters import FELL, Classes, Reading, increment
from tailbound.judge.polls import SETTLED, Arms, Counted, Readings, Round, baseline, poll
from tailbound.judge.windows import Span
from tailbound.objects.unknown import Unknown

UNREAD = Unknown("it does not answer")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(time: datetime) -> Round:
    return Round("candidate", "stable", time)


def reading(start: str = "t0", **by_revision: Classes) -> Reading:
    return Reading(start, by_revision)


def counted(found: Counted | Unknown) -> Counted:
    """A poll that was possible."""
    assert isinstance(found, Counted), found
    return found


def started(found: Readings | Unknown) -> Readings:
    """A baseline that was possible."""
    assert isinstance(found, Readings), found
    return found


BEFORE = reading(candidate=Classes(good=10, slow=3), stable=Classes(good=90))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(None, reading(candidate=Classes(7)), Classes(7), id="never-read-counts-all"),
        pytest.param(BEFORE, reading("t1", candidate=Classes(12, 4)), Classes(12, 4), id="restarted-higher"),
        pytest.param(BEFORE, reading("t1", candidate=Classes(2)), Classes(2), id="restarted-lower"),
        pytest.param(BEFORE, reading("t1"), Classes(), id="restarted-absent-is-zero"),
        pytest.param(BEFORE, reading(candidate=Classes(15, 4)), Classes(5, 1), id="same-process-difference"),
        pytest.param(BEFORE, reading(candidate=Classes(10, 3)), Classes(), id="nothing-happened"),
        pytest.param(BEFORE, reading(candidate=Classes(10, 3, 2)), Classes(timed_out=2), id="first-of-class"),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_increment(before: Reading | None, now: Reading, expected: Classes | Unknown, settled: bool) -> None:
    assert increment(before, now, "candidate", settled=settled) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(reading(candidate=Classes(500, 2)), Classes(490, 2), id="one-class-fell"),
        pytest.param(reading(), Classes(), id="all-absent"),
        pytest.param(reading(candidate=Classes(12)), Classes(2), id="one-class-absent"),
    ],
)
def test_what_fell_is_no_data_until_the_reading_before_is_settled(now: Reading, expected: Classes) -> None:
    assert increment(BEFORE, now, "candidate", settled=False) == FELL
    assert increment(BEFORE, now, "candidate", settled=True) == expected


def test_a_counter_that_envoy_dropped_is_counted_from_zero_after_two_minutes() -> None:
    before, dropped = Readings({"a": BEFORE}, NOON), reading(candidate=Classes(14), stable=Classes(95))
    early = poll(before, {"a": dropped}, {"a"}, at(NOON + SETTLED - timedelta(seconds=1)))
    assert isinstance(early, Unknown)
    assert early.reason == (
        "a counter of gateway pod a went down though its process did not restart;"
        " if it stays down for 2 minutes, it is counted from zero"
    )
    found = counted(poll(before, {"a": dropped}, {"a"}, at(NOON + SETTLED)))
    assert found.arms == Arms(Classes(4), Classes(5))
    assert found.readings == Readings({"a": dropped}, NOON + SETTLED)


def test_readings_are_as_old_as_the_last_request_that_was_counted() -> None:
    begun = Readings({"a": BEFORE}, NOON)
    other = replace(BEFORE, classes={**BEFORE.classes, "retired": Classes(1)})
    idle = counted(poll(begun, {"a": other}, {"a"}, at(NOON + SETTLED)))
    assert idle.readings == begun
    later = replace(BEFORE, classes={**BEFORE.classes, "candidate": Classes(11, 3)})
    busy = counted(poll(begun, {"a": later}, {"a"}, at(NOON + SETTLED)))
    assert busy.readings.since == NOON + SETTLED


def judged(
    answers: dict[str, Reading | Unknown], before: dict[str, Reading], *gone: str
) -> Counted | Unknown:
    existing = (set(before) | set(answers)) - set(gone)
    return poll(Readings(before, NOON), answers, existing, at(NOON))


def test_increments_of_all_gateways_add_up() -> None:
    other = reading("t5", candidate=Classes(1), stable=Classes(good=9))
    found = judged(
        {
            "a": reading(candidate=Classes(good=11, slow=3), stable=Classes(good=99)),
            "b": reading("t5", candidate=Classes(good=1, failed=1), stable=Classes(good=18)),
        },
        {"a": BEFORE, "b": other},
    )
    assert isinstance(found, Counted)
    assert found.arms == Arms(Classes(good=1, failed=1), Classes(good=18))


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        pytest.param({}, "no gateway", id="no-gateway"),
        pytest.param({"a": BEFORE, "b": UNREAD}, "pod b could not be read", id="one-unread"),
        pytest.param({"a": reading(stable=Classes(good=89))}, "pod a went down", id="querier-stepped-back"),
    ],
)
def test_poll_is_frozen(answers: dict[str, Reading | Unknown], reason: str) -> None:
    found = judged(answers, {"a": BEFORE})
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_vanished_pod_loses_only_what_it_counted_since_the_last_poll() -> None:
    found = counted(judged({"a": BEFORE}, {"a": BEFORE, "b": BEFORE}, "b"))
    assert found.arms == Arms(Classes(), Classes())
    assert set(found.readings.by_pod) == {"a"}


def test_baseline_counts_nothing_of_what_was_before() -> None:
    start = started(baseline({"a": BEFORE}, {"a"}, at(NOON)))
    assert start == Readings({"a": BEFORE}, NOON)
    found = counted(poll(start, {"a": BEFORE}, {"a"}, at(NOON)))
    assert found.arms == Arms(Classes(), Classes())


def test_pod_that_was_not_ready_at_the_baseline_starts_from_its_own_first_answer() -> None:
    start = started(baseline({"a": BEFORE}, {"a", "b", "c"}, at(NOON)))
    # It is still not asked, then it is, with all that it had counted before; c has gone; d is new.
    unasked = counted(poll(start, {"a": BEFORE}, {"a", "b"}, at(NOON)))
    answers: dict[str, Reading | Unknown] = {"a": BEFORE, "b": BEFORE, "d": reading(candidate=Classes(4))}
    back = counted(poll(unasked.readings, answers, set(answers), at(NOON)))
    assert back.arms == Arms(Classes(4), Classes())
    later = replace(BEFORE, classes={"candidate": Classes(11, 3), "stable": Classes(95)})
    found = counted(poll(back.readings, answers | {"b": later}, set(answers), at(NOON)))
    assert found.arms == Arms(Classes(1), Classes(5))


def test_poll_tells_of_the_time_since_a_pod_that_was_not_asked_was_read() -> None:
    start = started(baseline({"a": BEFORE, "b": BEFORE}, {"a", "b"}, at(NOON)))
    found, spans = Counted(Arms(Classes(), Classes()), start, Span(0, 0)), []
    for number, asked in enumerate((["a", "b"], ["a"], ["a"], ["a", "b"], ["a", "b"]), start=1):
        served = reading(candidate=Classes(good=10 + number, slow=3), stable=Classes(good=90))
        answers = dict.fromkeys(asked, served)
        found = counted(poll(found.readings, answers, {"a", "b"}, at(NOON + number * STEP)))
        spans.append((found.span.began - NOON.timestamp(), found.span.at - NOON.timestamp()))
    assert spans == [(0, 2), (2, 4), (4, 6), (2, 8), (8, 10)]


@pytest.mark.parametrize("answers", [{}, {"a": BEFORE, "b": UNREAD}])
def test_baseline_waits_until_every_gateway_is_read(answers: dict[str, Reading | Unknown]) -> None:
    assert isinstance(baseline(answers, set(answers), at(NOON)), Unknown)


STEP, DAY, STALE = timedelta(seconds=2), timedelta(days=1), timedelta(seconds=30)


@dataclass
class Pod:
    """One gateway pod, and what it really served."""

    generation: int = 0
    counted: Classes = field(default_factory=Classes)
    answered: list[tuple[datetime, Classes]] = field(default_factory=list)
    """What it could have answered, and when."""


@dataclass
class Fleet:
    """Gateway pods that serve, restart, vanish, go unread, answer stale and drop idle counters."""

    now: datetime = NOON
    pods: dict[str, Pod] = field(default_factory=dict)
    served: Classes = field(default_factory=Classes)
    lost: Classes = field(default_factory=Classes)
    """What is missing in the end: what processes counted between their last reading and their end."""
    dropped: Classes = field(default_factory=Classes)
    """At most this much more may be missing: what counters that were dropped had counted."""
    started: int = 0
    """Processes so far."""

    def answer(self, name: str) -> Reading:
        pod = self.pods[name]
        return Reading(f"t{pod.generation}", {"candidate": pod.counted})

    def at(self, slot: str) -> str:
        """The pod whose name begins so; a new one where there is none."""
        names = sorted(name for name in self.pods if name.startswith(slot))
        if names:
            return names[0]
        self.started += 1
        name = f"{slot}{self.started}"
        self.pods[name] = Pod(generation=self.started)
        return name

    def serve(self, name: str, amount: Classes) -> None:
        pod = self.pods[name]
        pod.answered.append((self.now, pod.counted))
        self.now += STEP
        pod.counted += amount
        self.served += amount

    def end(self, name: str, last: Reading | None, *, restarts: bool) -> None:
        """A process ends, and with it what it counted since its last reading."""
        gone = increment(last, self.answer(name), "candidate", settled=True)
        assert isinstance(gone, Classes)
        self.lost += gone
        self.started += 1
        if restarts:
            self.pods[name] = Pod(generation=self.started)
        else:
            del self.pods[name]

    def idle(self, name: str) -> None:
        """Nobody asks for a day, and one process drops its counters."""
        self.now += DAY
        self.dropped += self.pods[name].counted
        self.pods[name].counted = Classes()

    def answers(self, action: str, name: str) -> dict[str, Reading | Unknown]:
        """What the poll of an action gets to know."""
        self.now += STEP
        answers: dict[str, Reading | Unknown] = {each: self.answer(each) for each in self.pods}
        pod = self.pods[name]
        if action == "unread":
            answers[name] = UNREAD
        recent = [counted for time, counted in pod.answered if self.now - time <= STALE]
        if action == "stale" and recent:
            answers[name] = Reading(f"t{pod.generation}", {"candidate": recent[0]})
        if action == "unasked":
            del answers[name]
        return answers


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["serve", "restart", "vanish", "idle", "poll", "unread", "stale", "unasked", "crash"]
        ),
        st.sampled_from(["a", "b", "c"]),
        st.builds(Classes, *(st.integers(0, 5) for _ in range(5))),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_no_interleaving_counts_a_request_twice(actions: list[tuple[str, str, Classes]]) -> None:
    fleet = Fleet()
    readings = Readings({}, NOON)
    judged_so_far = Classes()
    for action, slot, amount in actions:
        name = fleet.at(slot)
        if action == "serve":
            fleet.serve(name, amount)
            continue
        if action in ("restart", "vanish"):
            fleet.end(name, readings.by_pod.get(name), restarts=action == "restart")
            continue
        if action == "idle":
            fleet.idle(name)
            continue
        found = poll(readings, fleet.answers(action, name), set(fleet.pods), at(fleet.now))
        if action == "crash" or isinstance(found, Unknown):
            continue
        readings = found.readings
        judged_so_far += found.arms.candidate
        assert not (fleet.served - judged_so_far).falls_anywhere
    fleet.now += DAY
    if fleet.pods:
        answers: dict[str, Reading | Unknown] = {name: fleet.answer(name) for name in fleet.pods}
        last = counted(poll(readings, answers, set(fleet.pods), at(fleet.now)))
        more_missing = fleet.served - judged_so_far - last.arms.candidate - fleet.lost
        assert not more_missing.falls_anywhere
        assert not (fleet.dropped - more_missing).falls_anywhere
