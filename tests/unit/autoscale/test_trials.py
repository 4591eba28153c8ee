"""Rows of the benchmark that no rule was tuned on: beside the HPA and the floor, with one seed."""

from dataclasses import replace

import pytest

from e2e.bench.autoscale import peers, trials
from e2e.bench.autoscale.fleet import Outcome
from e2e.bench.autoscale.own import Own

SEED = 3


def outcomes(name: str, seconds: int) -> tuple[Outcome, Outcome, Outcome]:
    """Outcomes of the product, an HPA at 0.7 and the floor, in the first part of a row."""
    trial = trials.drawn(name, SEED)
    scenario = replace(trial, rates=trial.rates[:seconds]).scenario(name, SEED)
    own = scenario.run(Own(tells_batches=trial.tells_batches))
    return own, scenario.run(peers.Hpa(peers.usage(0.7))), scenario.run(trials.Known(trial.rates))


@pytest.mark.parametrize("name", ["steady 8/s", "steady 12/s", "steady 120/s"])
def test_a_steady_load_starts_next_to_nothing_and_nothing_in_vain(name: str) -> None:
    own, hpa, _ = outcomes(name, 1200)
    assert own.late_pct <= 0.1
    assert own.in_vain == 0
    assert own.starts <= max(2, 2 * hpa.starts)
    assert own.replica_hours <= 1.1 * hpa.replica_hours


def test_a_target_that_no_replica_meets_is_not_paid_for() -> None:
    own, hpa, _ = outcomes("no target holds", 1200)
    assert own.replica_hours <= 1.1 * hpa.replica_hours


def test_what_an_overload_taught_the_gateways_is_not_paid_for_ever() -> None:
    own, hpa, _ = outcomes("overload mute", 2400)
    assert own.late_pct < hpa.late_pct
    assert own.replica_hours <= 1.1 * hpa.replica_hours


@pytest.mark.parametrize("name", ["step to double", "half dies"])
def test_a_shock_is_met_nearly_as_if_it_were_known_at_once(name: str) -> None:
    own, _, floor = outcomes(name, 1500)
    assert own.in_vain == 0
    assert own.late_pct <= 1.7 * floor.late_pct
