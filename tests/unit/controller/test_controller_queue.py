"""The key queue: once per key, never twice at a time, delays, backoff, and the rate of all retries."""

import pytest
from tailbound.controller.queue import FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS, KeyQueue, TokenBucket

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def drain(queue: KeyQueue, now: float) -> list[tuple[str, str]]:
    taken = []
    while (key := queue.take(now)) is not None:
        taken.append(key)
    return taken


def test_a_key_added_many_times_is_taken_once_in_order_of_arrival() -> None:
    queue = KeyQueue()
    for key in (A, B, A, C, A):
        queue.add(key)
    assert len(queue) == 3
    assert drain(queue, 0.0) == [A, B, C]


def test_keys_that_no_worker_had_yet_go_first() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert queue.take(0.0) == A
    queue.done(A)
    for key in (A, B, C):
        queue.add(key)
    assert len(queue) == 3
    assert queue.has_new()
    assert drain(queue, 0.0) == [B, C, A]
    assert not queue.has_new()


def test_a_service_that_is_created_again_is_new_again() -> None:
    queue = KeyQueue()
    for key in (A, B):
        queue.add(key)
        queue.take(0.0)
        queue.done(key)
    queue.forget(B)
    queue.add(A)
    queue.add(B)
    assert drain(queue, 0.0) == [B, A]


def test_a_key_added_while_taken_comes_back_once_it_is_done_and_not_before() -> None:
    queue = KeyQueue()
    queue.add(A)
    assert queue.take(0.0) == A
    queue.add(A)
    queue.add(A)
    assert queue.take(0.0) is None
    queue.done(A)
    assert drain(queue, 0.0) == [A]


def test_a_key_that_is_done_and_was_not_added_meanwhile_does_not_come_back() -> None:
    queue = KeyQueue()
    queue.add(A)
    queue.take(0.0)
    queue.done(A)
    assert drain(queue, 1e9) == []


def test_delayed_keys_come_when_due_and_in_order() -> None:
    queue = KeyQueue()
    queue.add_at(B, 20.0)
    queue.add_at(A, 10.0)
    assert queue.next_due() == 10.0
    assert drain(queue, 9.9) == []
    assert drain(queue, 10.0) == [A]
    assert queue.next_due() == 20.0
    assert drain(queue, 25.0) == [B]
    assert queue.next_due() is None


@pytest.mark.parametrize(("times", "due"), [((30.0, 10.0), 10.0), ((10.0, 30.0), 10.0)])
def test_the_earliest_delay_of_a_key_counts_and_only_once(times: tuple[float, ...], due: float) -> None:
    queue = KeyQueue()
    for when in times:
        queue.add_at(A, when)
    assert queue.next_due() == due
    assert drain(queue, due) == [A]
    queue.done(A)
    assert drain(queue, 1e9) == []


def test_adding_a_key_at_once_replaces_its_delay() -> None:
    queue = KeyQueue()
    queue.add_at(A, 10.0)
    queue.add(A)
    assert drain(queue, 0.0) == [A]
    queue.done(A)
    assert queue.next_due() is None


def test_backoff_doubles_up_to_its_limit_and_starts_again_after_success() -> None:
    queue = KeyQueue(TokenBucket(per_second=1e6, burst=1e6, tokens=1e6))
    delays = [queue.retry(A, 0.0) for _ in range(12)]
    assert delays[:4] == [FIRST_BACKOFF_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert delays[-1] == LAST_BACKOFF_SECONDS
    queue.succeeded(A)
    assert queue.retry(A, 0.0) == FIRST_BACKOFF_SECONDS


def test_backoff_of_one_key_leaves_others_alone() -> None:
    queue = KeyQueue()
    for _ in range(5):
        queue.retry(A, 0.0)
    assert queue.retry(B, 0.0) == FIRST_BACKOFF_SECONDS


def test_the_server_may_ask_for_a_longer_delay_than_the_backoff() -> None:
    assert KeyQueue().retry(A, 0.0, at_least_seconds=17.0) == 17.0


def test_retries_of_all_keys_together_keep_to_the_rate() -> None:
    queue = KeyQueue(TokenBucket(per_second=10.0, burst=5.0, tokens=5.0))
    delays = [queue.retry(("ns", str(index)), 0.0) for index in range(105)]
    assert delays[4] == FIRST_BACKOFF_SECONDS
    assert delays[-1] == pytest.approx(10.0)


def test_a_key_failing_for_days_stays_at_the_longest_backoff() -> None:
    queue = KeyQueue(TokenBucket(per_second=1e6, burst=1e6, tokens=1e6))
    assert [queue.retry(A, 0.0) for _ in range(5000)][-1] == LAST_BACKOFF_SECONDS


def test_a_forgotten_key_neither_comes_back_nor_keeps_its_backoff() -> None:
    queue = KeyQueue()
    queue.retry(A, 0.0)
    queue.retry(A, 0.0)
    queue.forget(A)
    assert drain(queue, 1e9) == []
    assert queue.retry(A, 0.0) == FIRST_BACKOFF_SECONDS
