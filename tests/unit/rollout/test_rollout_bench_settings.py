"""Settings in which the promise once broke: what is drawn, and that few runs of the product keep it."""

import numpy as np
import pytest

from e2e.bench.rollout import gauges
from e2e.bench.rollout.settings import SETTINGS, Group, Setting
from e2e.bench.rollout.shares import Share
from e2e.bench.rollout.trials import run

RUNS = 6
SHORT = [each for each in SETTINGS if each.group not in (Group.SMALL, Group.EPISODES)]


@pytest.mark.parametrize("setting", SHORT, ids=lambda each: each.trial.name.replace(" ", "-"))
def test_healthy_canaries_stay_and_bad_ones_go(setting: Setting) -> None:
    ends = [run(setting.trial, seed).rolled_back for seed in range(RUNS)]
    back = sum(end is not None for end in ends)
    # Two of six by chance, at one in fifty each: once in hundreds.
    assert back <= 1 if setting.healthy else back == RUNS


def test_of_a_request_a_minute_a_canary_that_is_always_slow_is_found() -> None:
    (setting,) = (each for each in SETTINGS if each.trial.name == "1 request a minute, all slow")
    assert None not in [run(setting.trial, seed).rolled_back for seed in range(RUNS)]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.trial.name.replace(" ", "-"))
def test_every_setting_draws_whole_requests_of_its_own_seeds(setting: Setting) -> None:
    one, same, other = (setting.trial.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one.canary_bad <= one.canary).all()
    assert (one.stable_bad <= one.stable).all()
    assert (one.canary == same.canary).all()
    assert (one.canary != other.canary).any()
    assert len({each.trial.name for each in SETTINGS}) == len(SETTINGS)


def test_a_share_comes_with_what_it_says_about_the_chance() -> None:
    assert str(Share(0, 300)) == "0.000 [0.000, 0.013]"
    assert Share(3, 300).interval == pytest.approx((0.0034, 0.0289), abs=2e-4)
    assert Share(300, 300).interval[1] == pytest.approx(1.0)


def test_values_that_look_back_condemn_nobody_at_the_bound() -> None:
    assert not any(gauges.rolled_back(gauges.RANGE, seed) for seed in range(RUNS))
