"""The numbers that a service is sized by, from the answers of Prometheus."""

import asyncio
from typing import Any

import pytest
from tailbound.autoscale.model import BATCH_WINDOW, BatchSums, GatewayLoad, Known
from tailbound.controller.signals import (
    HISTORY_BATCH,
    QUERIES,
    SIGNALS,
    FleetSnapshot,
    Past,
    history,
    limit_seconds,
    take,
)
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.signals import Signals
from tailbound.telemetry.prometheus import (
    TIMEOUT_SECONDS,
    FleetSignal,
    RevisionName,
    Series,
    Value,
)

KEY = ("risk", "churn")
AT = 1_000_000.0
BATCHES = {
    "batch_requests": 20.0,
    "batches": 10.0,
    "batch_rows": 40.0,
    "batch_rows_squared": 200.0,
    "batch_seconds": 4.0,
    "batch_row_seconds": 18.0,
}


def fleet(**revisions: float) -> FleetSignal:
    return FleetSignal({RevisionName(*KEY, name): Value(AT, number) for name, number in revisions.items()})


def snapshot(**answers: Any) -> FleetSnapshot:
    """Two gateways that report; whatever is not named has no series."""
    named = {name.replace("_", " "): answer for name, answer in answers.items()}
    known = dict.fromkeys(SIGNALS, FleetSignal()) | {"gateways": fleet(r1=2, r2=2)}
    return FleetSnapshot(known | named | {name: answers[name] for name in BATCHES if name in answers}, 2)


def signals(taken: FleetSnapshot) -> Signals:
    return taken.of(KEY, ("r1", "r2"), 0.2)


def test_arrivals_are_those_of_all_revisions_together() -> None:
    seen = signals(snapshot(arrivals_10=fleet(r1=3.0, r2=1.0), arrivals_60=fleet(r1=5.0)))
    assert seen.arrivals.over_10s == Known(4.0, AT)
    assert seen.arrivals.over_60s == Known(5.0, AT)
    assert isinstance(seen.arrivals.over_30s, Unknown), "no series is no zero"


@pytest.mark.parametrize(
    ("reporting", "known"),
    [(fleet(r1=2), True), (fleet(r1=1), False), (FleetSignal(), False), (Unknown("refused"), False)],
)
def test_arrivals_are_unknown_unless_every_gateway_reports(reporting: Any, known: bool) -> None:
    seen = signals(snapshot(gateways=reporting, arrivals_10=fleet(r1=3.0)))
    assert isinstance(seen.arrivals.over_10s, Known) is known


def test_arrivals_are_unknown_where_prometheus_has_them_twice_and_the_remedy_is_told() -> None:
    taken = snapshot(copies=fleet(r2=2), arrivals_10=fleet(r1=3.0), arrivals_60=fleet(r1=3.0))
    for unknown in (signals(taken).arrivals.over_10s, taken.watched(KEY, ("r1", "r2")).arrivals):
        assert isinstance(unknown, Unknown)
        assert "each counter of the gateways 2 times" in unknown.reason
        assert "set prometheus.url to one replica" in unknown.reason
    assert isinstance(signals(snapshot(copies=Unknown("slow"))).arrivals.over_10s, Unknown)


@pytest.mark.parametrize(
    ("judged", "late", "share", "p99"),
    [
        (100.0, 0.0, 0.0, 0.1),
        (100.0, None, 0.0, 0.1),
        (1000.0, 10.0, 0.01, 0.2),
        (1000.0, 5.0, 0.005, 0.15),
        (100.0, 100.0, 1.0, 0.8),
        (0.0, 0.0, None, None),
        (None, None, None, None),
    ],
)
def test_the_latency_lies_on_the_side_of_the_target_that_was_counted(
    judged: float | None, late: float | None, share: float | None, p99: float | None
) -> None:
    answers = {
        name: fleet(r1=number) for name, number in (("judged", judged), ("late", late)) if number is not None
    }
    seen = signals(snapshot(**answers))
    assert seen.late == share
    assert seen.p99 == (Known(pytest.approx(p99), AT) if p99 is not None else seen.p99)
    assert isinstance(seen.p99, Known) is (p99 is not None)
    assert seen.revisions["r1"].p99 == seen.p99
    assert isinstance(seen.revisions["r2"].p99, Unknown)


def test_batches_of_the_runtime_are_what_is_learned_from() -> None:
    batches = {name: fleet(r1=number) for name, number in BATCHES.items()}
    seen = signals(snapshot(**batches))
    sums = BatchSums(BATCH_WINDOW, 20.0, 10.0, 40.0, 200.0, 4.0, 18.0)
    assert seen.revisions["r1"].service == Known(sums, AT)
    assert isinstance(seen.revisions["r2"].service, Unknown)


LOAD = {
    "answered": 20.0,
    "inside": 6.0,
    "least inside": 1.0,
    "most inside": 15.0,
    "replicas": 2.5,
    "fewest replicas": 2.0,
}


def test_without_batches_the_gateway_tells() -> None:
    load = {name.replace(" ", "_"): fleet(r1=number) for name, number in LOAD.items()}
    seen = signals(snapshot(**load)).revisions["r1"].service
    assert seen == Known(
        GatewayLoad(
            answered=20.0,
            inside=6.0,
            least_inside=1.0,
            most_inside=15.0,
            replicas=2.5,
            fewest_replicas=2.0,
        ),
        AT,
    )
    for missing in load:
        rest = {name: each for name, each in load.items() if name != missing}
        assert isinstance(signals(snapshot(**rest)).revisions["r1"].service, Unknown)


class Prometheus:
    """Answers every query with what each of its signals is, and remembers what it was asked."""

    def __init__(self, **values: float) -> None:
        self.values = {name.replace("_", " "): value for name, value in values.items()}
        self.asked: list[str] = []
        self.limits: list[float | None] = []

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        self.asked.append(expression)
        self.limits.append(timeout_seconds)
        names = {"namespace": KEY[0], "service": KEY[1], "revision": "r1"}
        return tuple(
            Series(names | {"signal": signal}, (Value(AT, self.values[signal]),))
            for signal in QUERIES.get(expression, ())
            if signal in self.values
        )


def test_what_was_in_flight_for_a_moment_says_nothing_of_the_speed() -> None:
    """A service's first requests: one is in flight, and hardly any were counted in the last minute."""
    seen = signals(snapshot(arrivals_60=fleet(r1=0.24), in_flight=fleet(r1=1.0)))
    assert isinstance(seen.revisions["r1"].service, Unknown)


def test_few_queries_tell_every_signal_of_every_service() -> None:
    prometheus = Prometheus(judged=100.0, late=1.0, shed=0.5, gateways=2.0, arrivals_10=7.0)
    taken = asyncio.run(take(prometheus, 2, 9))
    seen = [taken.of(("risk", name), ("r1",), 0.2) for name in ("churn", *"abcdefgh")]
    assert seen[0].arrivals.over_10s == Known(7.0, AT)
    assert [(each.late, each.shed) for each in seen[:2]] == [(0.01, 0.005), (None, 0.0)]
    assert len(prometheus.asked) == len(set(prometheus.asked)) == 4
    assert sorted(name for names in QUERIES.values() for name in names) == sorted(SIGNALS)


def test_what_batches_are_reckoned_from_is_of_one_moment() -> None:
    """Two queries have a scrape between them: then a pod seems to answer a request in minutes."""
    assert tuple(BATCHES) in QUERIES.values()
    assert {("judged", "late", "shed"), tuple(LOAD)} <= set(QUERIES.values())


def test_no_traffic_is_looked_back_at_where_there_is_no_knowing() -> None:
    class Refusing:
        async def query(
            self, expression: str, *, timeout_seconds: float | None = None
        ) -> tuple[Series, ...] | Unknown:
            return Unknown("told to")

    assert asyncio.run(history(Refusing(), [KEY], 1)) == Past({}, {KEY: "told to"})
    assert asyncio.run(history(None, [KEY], 1)) == Past({}, {})


def test_the_past_is_asked_for_in_batches_and_what_one_loses_is_named() -> None:
    keys = [("n" * 63, f"{number:04}" + "s" * 59) for number in range(5 * HISTORY_BATCH // 2)]

    class Half(Prometheus):
        async def query(
            self, expression: str, *, timeout_seconds: float | None = None
        ) -> tuple[Series, ...] | Unknown:
            await super().query(expression, timeout_seconds=timeout_seconds)
            if "/".join(keys[0]) in expression:
                return Unknown("too slow")
            names = dict(zip(("namespace", "service"), keys[-1], strict=True))
            values = (Value(AT, 1.0), Value(AT + 10, 2.0))
            return tuple(Series({**names, "revision": each}, values) for each in ("r1", "r2"))[:2]

    prometheus = Half()
    past = asyncio.run(history(prometheus, keys[: HISTORY_BATCH + 1], 5000))
    assert past.rates == {keys[-1]: (Known(2.0, AT), Known(4.0, AT + 10))}
    assert past.lost == dict.fromkeys(keys[:HISTORY_BATCH], "too slow")
    assert prometheus.limits == [limit_seconds(5000)] * 2
    assert all(len(expression) < 16_384 for expression in prometheus.asked)
    asyncio.run(history(prometheus, [], 5000))
    assert len(prometheus.asked) == 2


def test_answers_about_a_large_fleet_may_take_longer() -> None:
    prometheus = Prometheus()
    asyncio.run(take(prometheus, 2, 5000))
    assert set(prometheus.limits) == {limit_seconds(5000)}
    assert limit_seconds(0) == TIMEOUT_SECONDS
    assert limit_seconds(5000) > 4 * TIMEOUT_SECONDS


def test_without_a_prometheus_everything_is_unknown_and_the_remedy_is_told() -> None:
    seen = signals(asyncio.run(take(None, 2, 9)))
    assert isinstance(seen.arrivals.over_10s, Unknown)
    assert "prometheus.url" in seen.arrivals.over_10s.reason
