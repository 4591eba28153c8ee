"""Every rule by which many gateways' counters become one poll, and that no request is ever counted twice."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.rollout.counters import Classes, Reading, Unknown, increment
from tailbound.rollout.polls import Arms, Counted, Frozen, Readings, baseline, poll

UNREAD = Unknown.UNKNOWN


def reading(start: str = "t0", **by_revision: Classes) -> Reading:
    return Reading(start, by_revision)


BEFORE = reading(canary=Classes(good=10, slow=3), stable=Classes(good=90))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(None, reading(canary=Classes(7)), Classes(7), id="never read: all of it"),
        pytest.param(
            BEFORE, reading("t1", canary=Classes(12, 4)), Classes(12, 4), id="restarted, counted more"
        ),
        pytest.param(BEFORE, reading("t1", canary=Classes(2)), Classes(2), id="restarted, counted less"),
        pytest.param(BEFORE, reading("t1"), Classes(), id="restarted, absent is zero"),
        pytest.param(
            BEFORE, reading(canary=Classes(15, 4)), Classes(5, 1), id="same process: the difference"
        ),
        pytest.param(BEFORE, reading(canary=Classes(10, 3)), Classes(), id="nothing happened"),
        pytest.param(BEFORE, reading(canary=Classes(10, 3, 2)), Classes(timed_out=2), id="first of a class"),
        pytest.param(BEFORE, reading(canary=Classes(500, 2)), UNREAD, id="one class fell: no data, no reset"),
        pytest.param(BEFORE, reading(), UNREAD, id="absent after it had counted: no data"),
    ],
)
def test_increment(before: Reading | None, now: Reading, expected: Classes | Unknown) -> None:
    assert increment(before, now, "canary") == expected


def judged(answers: dict[str, Reading | Unknown], before: dict[str, Reading], *gone: str) -> Counted | Frozen:
    return poll(Readings(before), answers, (set(before) | set(answers)) - set(gone), "canary", "stable")


def test_increments_of_all_gateways_add_up() -> None:
    other = reading("t5", canary=Classes(1), stable=Classes(good=9))
    found = judged(
        {
            "a": reading(canary=Classes(good=11, slow=3), stable=Classes(good=99)),
            "b": reading("t5", canary=Classes(good=1, failed=1), stable=Classes(good=18)),
        },
        {"a": BEFORE, "b": other},
    )
    assert isinstance(found, Counted)
    assert found.arms == Arms(Classes(good=1, failed=1), Classes(good=18))


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        pytest.param({}, "no gateway", id="no gateway at all"),
        pytest.param({"a": BEFORE, "b": UNREAD}, "pod b could not be read", id="one unread"),
        pytest.param({"a": reading(stable=Classes(good=89))}, "pod a went down", id="a querier stepped back"),
    ],
)
def test_poll_is_frozen(answers: dict[str, Reading | Unknown], reason: str) -> None:
    found = judged(answers, {"a": BEFORE})
    assert isinstance(found, Frozen)
    assert reason in found.reason


def test_next_complete_poll_makes_up_for_a_frozen_one() -> None:
    before = {"a": BEFORE, "b": BEFORE}
    later = replace(BEFORE, classes={"canary": Classes(20, 3), "stable": Classes(90)})
    assert isinstance(judged({"a": later, "b": UNREAD}, before), Frozen)
    found = judged({"a": later, "b": later}, before)
    assert isinstance(found, Counted)
    assert found.arms.canary == Classes(20)


def test_new_gateway_pod_counts_from_zero() -> None:
    found = judged({"a": BEFORE, "new": reading("t9", canary=Classes(slow=2))}, {"a": BEFORE})
    assert isinstance(found, Counted)
    assert found.arms.canary == Classes(slow=2)


def test_vanished_pod_loses_only_what_it_counted_since_the_last_poll() -> None:
    found = judged({"a": BEFORE}, {"a": BEFORE, "b": BEFORE}, "b")
    assert isinstance(found, Counted)
    assert found.arms == Arms(Classes(), Classes())
    assert set(found.readings.by_pod) == {"a"}


def test_pod_that_was_not_asked_for_a_while_counts_nothing_twice() -> None:
    first = judged({"a": BEFORE}, {"a": BEFORE, "b": BEFORE})
    assert isinstance(first, Counted)
    second = poll(first.readings, {"a": BEFORE, "b": BEFORE}, {"a", "b"}, "canary", "stable")
    assert isinstance(second, Counted)
    assert second.arms == Arms(Classes(), Classes())


def test_baseline_counts_nothing_of_what_was_before() -> None:
    start = baseline({"a": BEFORE}, {"a"})
    assert start == Readings({"a": BEFORE})
    assert isinstance(start, Readings)
    found = poll(start, {"a": BEFORE}, {"a"}, "canary", "stable")
    assert isinstance(found, Counted)
    assert found.arms == Arms(Classes(), Classes())


def test_pod_that_was_not_ready_at_the_baseline_starts_from_its_own_first_answer() -> None:
    start = baseline({"a": BEFORE}, {"a", "b", "c"})
    assert isinstance(start, Readings)
    # It is still not asked, then it is, with all that it had counted before; c has gone; d is new.
    unasked = poll(start, {"a": BEFORE}, {"a", "b"}, "canary", "stable")
    assert isinstance(unasked, Counted)
    answers: dict[str, Reading | Unknown] = {"a": BEFORE, "b": BEFORE, "d": reading(canary=Classes(4))}
    back = poll(unasked.readings, answers, set(answers), "canary", "stable")
    assert isinstance(back, Counted)
    assert back.arms == Arms(Classes(4), Classes())
    later = replace(BEFORE, classes={"canary": Classes(11, 3), "stable": Classes(95)})
    found = poll(back.readings, answers | {"b": later}, set(answers), "canary", "stable")
    assert isinstance(found, Counted)
    assert found.arms == Arms(Classes(1), Classes(5))


@pytest.mark.parametrize("answers", [{}, {"a": BEFORE, "b": UNREAD}])
def test_baseline_waits_until_every_gateway_is_read(answers: dict[str, Reading | Unknown]) -> None:
    assert isinstance(baseline(answers, set(answers)), Frozen)


@dataclass
class Pod:
    """One gateway pod, and what it really served."""

    generation: int = 0
    counted: Classes = field(default_factory=Classes)


@dataclass
class Fleet:
    """Gateway pods that serve, restart, vanish, go unread and answer stale."""

    pods: dict[str, Pod] = field(default_factory=dict)
    served: Classes = field(default_factory=Classes)
    lost: Classes = field(default_factory=Classes)
    """At most this much may be missing: what a process had counted when it ended."""
    started: int = 0
    """Processes so far."""

    def answer(self, name: str) -> Reading:
        pod = self.pods[name]
        return Reading(f"t{pod.generation}", {"canary": pod.counted})

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
        self.pods[name].counted += amount
        self.served += amount

    def end(self, name: str, last: Reading | None, *, restarts: bool) -> None:
        """A process ends, and with it what it counted since its last reading."""
        gone = increment(last, self.answer(name), "canary")
        assert isinstance(gone, Classes)
        self.lost += gone
        self.started += 1
        if restarts:
            self.pods[name] = Pod(generation=self.started)
        else:
            del self.pods[name]

    def answers(self, action: str, name: str) -> dict[str, Reading | Unknown]:
        """What the poll of an action gets to know."""
        answers: dict[str, Reading | Unknown] = {each: self.answer(each) for each in self.pods}
        pod = self.pods[name]
        if action == "unread":
            answers[name] = UNREAD
        if action == "stale" and pod.counted.good > 0:
            answers[name] = Reading(f"t{pod.generation}", {"canary": pod.counted - Classes(1)})
        if action == "unasked":
            del answers[name]
        return answers


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["serve", "restart", "vanish", "poll", "unread", "stale", "unasked", "crash"]),
        st.sampled_from(["a", "b", "c"]),
        st.builds(Classes, *(st.integers(0, 5) for _ in range(5))),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_no_interleaving_counts_a_request_twice(actions: list[tuple[str, str, Classes]]) -> None:
    fleet = Fleet()
    readings = Readings({})
    judged_so_far = Classes()
    for action, slot, amount in actions:
        name = fleet.at(slot)
        if action == "serve":
            fleet.serve(name, amount)
            continue
        if action in ("restart", "vanish"):
            fleet.end(name, readings.by_pod.get(name), restarts=action == "restart")
            continue
        found = poll(readings, fleet.answers(action, name), set(fleet.pods), "canary", "stable")
        if action == "crash" or isinstance(found, Frozen):
            continue
        readings = found.readings
        judged_so_far += found.arms.canary
        assert not (fleet.served - judged_so_far).falls_anywhere
    if fleet.pods:
        last_poll = poll(
            readings, {name: fleet.answer(name) for name in fleet.pods}, set(fleet.pods), "canary", "stable"
        )
        if isinstance(last_poll, Counted):
            judged_so_far += last_poll.arms.canary
            assert fleet.served - judged_so_far == fleet.lost
