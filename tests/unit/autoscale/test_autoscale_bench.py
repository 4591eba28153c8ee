"""The benchmark is what it says: the product's own decisions, on a fleet that works as it should."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from e2e.bench.autoscale import oracle, peers, traces
from e2e.bench.autoscale.fleet import (
    FIRST_DECISION,
    Faults,
    Fleet,
    Floats,
    Plan,
    Policy,
    Server,
    draw,
    simulate,
)
from e2e.bench.autoscale.own import Own

SERVER = Server()


def rising() -> tuple[Floats, int]:
    """Arrivals of ten minutes that double, and their duration."""
    return draw(np.linspace(60, 120, 600), 1), 600


def test_enough_replicas_are_late_for_nobody_and_too_few_for_nearly_all() -> None:
    arrivals, seconds = rising()
    for count, fewest, most in ((12, 0.0, 0.0), (3, 50.0, 100.0)):
        outcome = simulate(arrivals, seconds, SERVER, Plan(np.array([count])), count)
        assert fewest <= outcome.late_pct <= most
        assert outcome.replica_hours == pytest.approx(count * 601 / 3600)


def test_foresight_keeps_a_replica_through_a_short_pause_and_starts_it_anew_after_a_long_one() -> None:
    short = np.array([2] * 10 + [1] * 20 + [2] * 10)
    assert oracle.paid_hours(short, 60.0) == pytest.approx(2 * 40 / 3600)
    long = np.array([2] * 10 + [1] * 100 + [2] * 10)
    assert oracle.paid_hours(long, 60.0) == pytest.approx((120 + 20 + 60) / 3600)


def test_the_product_holds_a_rise_for_little_more_than_a_rule_that_is_told_the_capacity() -> None:
    arrivals, seconds = rising()
    own = simulate(arrivals, seconds, SERVER, Own(), 6)
    hpa = simulate(arrivals, seconds, SERVER, peers.Hpa(peers.usage(0.7)), 6)
    assert own.late_pct <= 0.1
    assert own.replica_hours < 1.1 * hpa.replica_hours


@pytest.mark.parametrize(
    "policy",
    [
        peers.Hpa(peers.busy(0.7)),
        peers.Hpa(peers.latency, peers.Kind.VALUE),
        peers.Kpa(),
        peers.keda(),
        Own(),
    ],
    ids=["busy", "p99", "knative", "keda", "own"],
)
def test_a_run_can_be_repeated(policy: Policy) -> None:
    arrivals, seconds = rising()
    first = simulate(arrivals, seconds, SERVER, policy, 6)
    assert first.replica_hours > 0
    assert 0 <= first.late_pct <= 100


def fleet(ready: int, pending: int, in_flight: int = 0) -> Fleet:
    """At a policy's first decision."""
    seconds = FIRST_DECISION
    made = Fleet(SERVER, 60.0, Faults(), [0] * (seconds + 2), now=seconds)
    made.alive = dict(enumerate([0.0] * ready + [seconds + 30.0] * pending))
    made.in_flight = [in_flight] * (seconds + 1)
    return made


@pytest.mark.parametrize(
    ("kind", "ratio", "ready", "pending", "wanted"),
    [
        (peers.Kind.PODS, 1.09, 10, 0, 10),
        (peers.Kind.PODS, 1.2, 10, 0, 12),
        (peers.Kind.PODS, 3.0, 10, 0, 20),
        (peers.Kind.PODS, 3.0, 2, 0, 6),
        (peers.Kind.PODS, 1.3, 10, 2, 12),
        (peers.Kind.PODS, 1.5, 10, 2, 15),
        (peers.Kind.PODS, 0.5, 10, 0, 10),
        (peers.Kind.VALUE, 1.5, 10, 2, 15),
        (peers.Kind.SHARED, 1.5, 10, 2, 18),
    ],
)
def test_hpa_counts_what_its_kind_of_metric_counts(
    kind: peers.Kind, ratio: float, ready: int, pending: int, wanted: int
) -> None:
    assert peers.Hpa(lambda _: ratio, kind).replicas(fleet(ready, pending)) == wanted


def test_hpa_gives_up_after_five_minutes_what_none_of_them_asked_for() -> None:
    hpa, seen = peers.Hpa(lambda _: 0.5), fleet(10, 0)
    wanted = []
    for seen.now in range(FIRST_DECISION, FIRST_DECISION + 331, 15):
        wanted.append(hpa.replicas(seen))
    assert wanted == [10] * 20 + [5] * 3


@pytest.mark.parametrize(
    ("ready", "in_flight", "wanted"), [(4, 44, 4), (4, 10, 4), (4, 100, 9), (1, 5, 1), (1, 200, 18)]
)
def test_knative_follows_concurrency_and_starts_in_panic(ready: int, in_flight: int, wanted: int) -> None:
    assert peers.Kpa().replicas(fleet(ready, 0, in_flight)) == wanted


def test_lost_metrics_hold_the_product_and_take_keda_down() -> None:
    arrivals, seconds = rising()
    faults = Faults(outage=(200, 600))
    held = simulate(arrivals, seconds, SERVER, Own(), 9, faults=faults)
    lost = simulate(arrivals, seconds, SERVER, peers.keda(), 9, faults=faults)
    assert held.replicas[590] >= held.replicas[199]
    assert lost.replicas[590] == 1


def test_replicas_that_never_get_ready_cost_and_do_not_serve() -> None:
    arrivals, seconds = rising()
    faults = Faults(stuck=(0, 600), deaths=(300,))
    fine = simulate(arrivals, seconds, SERVER, Own(), 6)
    stuck = simulate(arrivals, seconds, SERVER, Own(), 6, faults=faults)
    assert stuck.replica_hours > fine.replica_hours


def test_a_file_of_rates_and_one_of_requests_are_read(tmp_path: Path) -> None:
    rates = tmp_path / "rates.txt"
    rates.write_text("1\n2\n3\n")
    assert traces.read(rates, 2.0).rates.tolist() == [2, 4, 6]
    requests = tmp_path / "requests.csv"
    stamps = [f"2023-11-16 18:15:{second:02d}.6805900,374,44" for second in range(30) for _ in range(4)]
    requests.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *stamps]))
    read = traces.read(requests, 1.0)
    assert read.rates[10] == pytest.approx(4)
    assert read.server == SERVER
    broken = tmp_path / "broken.txt"
    broken.write_text("many\n")
    with pytest.raises(ValueError, match="neither one rate per line"):
        traces.read(broken, 1.0)


def test_drawn_traces_differ_by_seed_and_repeat_with_it() -> None:
    first, again, other = traces.drawn(1), traces.drawn(1), traces.drawn(2)
    assert all(np.array_equal(one.rates, two.rates) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0].rates, other[0].rates)
    assert replace(first[0], seeds=1).seeds == 1
