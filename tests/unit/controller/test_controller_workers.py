"""What becomes of a key after each way in which reconciling it can end, and how workers share the keys."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tailbound.controller.execute import NotLeaderError
from tailbound.controller.queue import FIRST_BACKOFF_SECONDS
from tailbound.controller.reconciler import PassOutcome
from tailbound.controller.workers import ENDING_SECONDS, TOLD_AT, TOLD_EVERY, Workers
from tailbound.kube.errors import Conflict, NamespaceEnds, Terminal, Transient
from tailbound.kube.objects import Key
from tailbound.telemetry.metrics import Metrics

A, B = ("ns", "a"), ("ns", "b")
NOW = 1000.0


async def ignore(*_: object) -> None:
    """Drop an Event."""


async def one_pass(ending: PassOutcome | Exception) -> tuple[Workers, Metrics]:
    """Reconcile one key that ends so."""
    metrics = Metrics()

    async def reconcile(_: Key) -> PassOutcome:
        workers.stop()
        if isinstance(ending, Exception):
            raise ending
        return ending

    workers = Workers(reconcile, metrics, lambda: NOW, ignore)
    workers.add(A)
    async with asyncio.timeout(5):
        await workers.run()
    return workers, metrics


@pytest.mark.parametrize(
    ("ending", "outcome", "delay"),
    [
        (PassOutcome(), "unchanged", None),
        (PassOutcome(wrote=True), "changed", None),
        (PassOutcome(requeue_after_seconds=7.0), "unchanged", 7.0),
        (PassOutcome(gone=True), "gone", None),
        (PassOutcome(obstructed=True, requeue_after_seconds=7.0), "obstructed", 7.0),
        (Conflict("changed"), "conflict", FIRST_BACKOFF_SECONDS),
        (Transient("away"), "transient", FIRST_BACKOFF_SECONDS),
        (Transient("busy", retry_after_seconds=9.0), "transient", 9.0),
        (NamespaceEnds("being terminated"), "ending", ENDING_SECONDS),
        (Terminal("refused"), "terminal", FIRST_BACKOFF_SECONDS),
        (KeyError("a bug of ours"), "error", FIRST_BACKOFF_SECONDS),
    ],
    ids=lambda each: None if isinstance(each, float) else str(each),
)
async def test_key_comes_back(ending: PassOutcome | Exception, outcome: str, delay: float | None) -> None:
    workers, metrics = await one_pass(ending)
    assert workers.queue.next_due() == (None if delay is None else NOW + delay)
    assert workers.queue.take(NOW) is None
    labels = {"outcome": outcome}
    assert metrics.registry.get_sample_value("tailbound_operator_reconcile_seconds_count", labels) == 1


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Terminal("no status today"), "no status today"),
        (Transient("no answer within 5 s"), "no answer within 5 s"),
        (KeyError("a"), "an error of Tailbound, see the operator's log: 'a'"),
    ],
    ids=["refused", "unanswered", "a-bug-of-ours"],
)
async def test_what_keeps_failing_is_told_and_told_again(ending: Exception, words: str) -> None:
    failed, told, clock = 0, list[tuple[int, Key, str]](), itertools.count(NOW, 1000.0)

    async def reconcile(_: Key) -> PassOutcome:
        nonlocal failed
        failed += 1
        if failed > TOLD_AT + TOLD_EVERY:
            workers.stop()
            return PassOutcome()
        raise ending

    async def tell(key: Key, why: str) -> None:
        told.append((failed, key, why))

    workers = Workers(reconcile, Metrics(), lambda: next(clock), tell)
    workers.add(A)
    async with asyncio.timeout(60):  # it logs a traceback each time
        await workers.run(1)
    assert told == [(TOLD_AT, A, words), (TOLD_AT + TOLD_EVERY, A, words)]


async def test_service_that_was_begun_comes_back_after_the_new_ones() -> None:
    workers, _ = await one_pass(PassOutcome(requeue_after_seconds=0.0, wrote=True))
    workers.add(B)
    assert [workers.queue.take(NOW) for _ in range(3)] == [B, A, None]


async def test_lost_lease_ends_the_work() -> None:
    async def reconcile(_: Key) -> PassOutcome:
        raise NotLeaderError

    workers = Workers(reconcile, Metrics(), lambda: NOW, ignore)
    workers.add(A)
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(5):
            await workers.run()
    assert ended.group_contains(NotLeaderError)


async def test_keys_are_worked_on_side_by_side_but_no_key_twice_at_a_time() -> None:
    running: set[Key] = set()
    most = 0
    passes = 0

    async def reconcile(key: Key) -> PassOutcome:
        nonlocal most, passes
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        workers.add(key)
        await asyncio.sleep(0.01)
        running.remove(key)
        passes += 1
        if passes >= 30:
            workers.stop()
        return PassOutcome()

    workers = Workers(reconcile, Metrics(), asyncio.get_running_loop().time, ignore)
    for number in range(6):
        workers.add(("ns", str(number)))
    async with asyncio.timeout(10):
        await workers.run(3)
    assert most == 3


async def test_delayed_key_is_taken_when_it_is_due_and_earlier_when_it_is_added() -> None:
    seen: list[tuple[Key, float]] = []
    loop = asyncio.get_running_loop()

    async def reconcile(key: Key) -> PassOutcome:
        seen.append((key, loop.time()))
        if len(seen) == 2:
            workers.stop()
        return PassOutcome(requeue_after_seconds=0.1)

    workers = Workers(reconcile, Metrics(), loop.time, ignore)
    workers.add(A)
    async with asyncio.timeout(5):
        await workers.run()
    assert [key for key, _ in seen] == [A, A]
    assert seen[1][1] - seen[0][1] >= 0.1


async def test_keys_under_way_are_finished_when_work_stops() -> None:
    finished: list[Key] = []

    async def reconcile(key: Key) -> PassOutcome:
        workers.stop()
        await asyncio.sleep(0.05)
        finished.append(key)
        return PassOutcome()

    workers = Workers(reconcile, Metrics(), asyncio.get_running_loop().time, ignore)
    workers.add(A)
    async with asyncio.timeout(5):
        await workers.run()
    assert finished == [A]


def test_metric_labels_do_not_grow_with_services() -> None:
    metrics = Metrics()
    read: Callable[[], Any] = lambda: {("Ready", "True"): 3.0}  # noqa: E731 - as it is given
    metrics.gauge("tailbound_operator_services", "by condition", ("condition", "status"), read)
    labels = {"condition": "Ready", "status": "True"}
    assert metrics.registry.get_sample_value("tailbound_operator_services", labels) == 3.0


async def test_a_service_of_a_namespace_that_ends_is_tried_at_intervals_and_logged_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now, tried = NOW, 0

    async def reconcile(_: Key) -> PassOutcome:
        nonlocal tried
        tried += 1
        raise NamespaceEnds("forbidden: namespace ns is being terminated")

    async def look() -> None:
        workers.add(A)
        assert workers.queue.take(now) == A
        await workers._work(A, asyncio.Semaphore())

    workers = Workers(reconcile, Metrics(), lambda: now, ignore)
    for _ in range(50):
        await look()
        now += 1.0
    assert tried == 2
    assert capsys.readouterr().out.count("the namespace is being deleted") == 1
