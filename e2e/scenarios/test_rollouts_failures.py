"""The operator dies or sees no counters in the middle of a rollout."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from e2e.scenarios.library import host
from e2e.scenarios.library.rollouts import ERRORS, Rollout, canary
from e2e.scenarios.library.scene import GATEWAY, OPERATOR, Scene, leader, workload
from e2e.scenarios.library.waiting import Unmet, stays

pytestmark = [pytest.mark.disturbs, pytest.mark.needs_own_cluster]

# With dataTimeout less than the half minute after which a gateway that lags behind is replaced.
NO_VERDICT_SECONDS = 8


def _requests(rollout: Rollout) -> float:
    """Judged requests of the candidate, as far as the status tells."""
    return float(sum(finding["requests"] for finding in rollout.status().get("findings", [])))


def _judged(rollout: Rollout, least: float) -> float | Unmet:
    found = _requests(rollout)
    return found if found >= least else Unmet(f"{found:g} requests are judged")


def test_operator_killed_in_the_middle_goes_on_without_losing_evidence(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "survivor", canary(50))
    with rollout.load(rate=12) as load:
        revision = rollout.introduce("second")
        began = rollout.analysed(revision)
        judged = scene.wait("evidence", partial(_judged, rollout, 20), 240)
        for pod in workload(scene.api, OPERATOR):  # the standby too: nobody takes over smoothly
            host.kill_container(pod, "operator")
        scene.wait("more evidence", partial(_judged, rollout, judged + 20), 240)
        again = rollout.status()
        assert (again["revision"], again["startedAt"]) == (revision, began["startedAt"]), again
        assert again["stepStartedAt"] == began["stepStartedAt"], again
        served = rollout.served(revision)["good"]
        assert _requests(rollout) <= 2 * served, "a request was counted twice"
        rollout.promoted(revision)
    load.assert_flawless(at_least=100)


def test_operator_killed_in_the_middle_still_rolls_a_bad_canary_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "condemned", canary(50), sla={"errorRate": "5%"})
    stable = rollout.stable()
    with rollout.load():
        revision = rollout.introduce("second")
        rollout.analysed(revision)
        for pod in workload(scene.api, OPERATOR):
            host.kill_container(pod, "operator")
        rollout.afflict(revision, ERRORS)
        rollout.rolled_back(revision, "Failing", stable=stable, within=120)
    rollout.assert_untouched(stable)


def test_unreadable_gateway_freezes_the_verdict_at_each_step_until_it_is_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "blind", canary(40, 60), sla={"errorRate": "2%"})
    stable = rollout.stable()
    with rollout.load() as load:  # to prove 2 % takes longer than to cut the connection
        revision = rollout.introduce("second")
        for step, weight in enumerate((40, 60)):
            rollout.analysed(revision, weight=weight)
            with _unreadable(scene):
                rollout.reaches("Paused", "NoData", revision=revision, weight=weight, within=60)
                stays("the freeze", partial(_frozen, rollout, step), NO_VERDICT_SECONDS)
            leader(scene.api)
        rollout.promoted(revision)
        assert rollout.status()["from"] == stable
    load.assert_flawless(at_least=100)


@contextmanager
def _unreadable(scene: Scene) -> Iterator[None]:
    """No operator reaches the first gateway."""
    with ExitStack() as cuts:
        gateway = workload(scene.api, GATEWAY)[0]["status"]["podIP"]
        for pod in workload(scene.api, OPERATOR):
            cuts.enter_context(host.cut_off(pod, "operator", gateway))
        yield


def _frozen(rollout: Rollout, step: int) -> bool | Unmet:
    status = rollout.status()
    return (status["state"], status.get("step", 0)) == ("Paused", step) or Unmet(str(status))
