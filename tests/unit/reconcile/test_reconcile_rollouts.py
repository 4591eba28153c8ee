"""Rollouts in the simulated cluster: good ones get through, and bad ones do not."""

import copy
from dataclasses import replace

import pytest
from tailbound.reconcile.model import Plan

from tests.support.simulated.rollouts import (
    around,
    begun,
    judged,
    judging,
    promoted_and_alone,
    replicas,
    state,
    until,
)


def test_a_good_canary_goes_through_its_steps() -> None:
    simulator = begun()
    seen: list[tuple[dict[str, int], dict[str, int]]] = []
    for _ in range(200):
        around(simulator)
        now = (simulator.weights(), replicas(simulator))
        if not seen or seen[-1] != now:
            seen.append(now)
        if simulator.rollout["state"] == "Promoted" and simulator.rollout["from"]:
            break
    assert seen == [
        ({"r1": 100}, {"r1": 4, "r2": 1}),
        ({"r1": 90, "r2": 10}, {"r1": 4, "r2": 1}),
        ({"r1": 90, "r2": 10}, {"r1": 4, "r2": 2}),
        ({"r1": 50, "r2": 50}, {"r1": 4, "r2": 2}),
        ({"r1": 50, "r2": 50}, {"r1": 4, "r2": 4}),
        ({"r2": 100}, {"r1": 4, "r2": 4}),
    ]
    simulator.settle()
    assert replicas(simulator) == {"r2": 4}
    assert simulator.condition("Promoted") == ("True", "Promoted")
    assert simulator.condition("Ready") == ("True", "Serving")
    assert "evidence" not in simulator.rollout
    assert replace(simulator.plan(), scalable=None) == Plan()


def test_a_slow_canary_is_rolled_back_and_stable_is_untouched() -> None:
    simulator = begun()
    before = copy.deepcopy(simulator.of("Deployment")[0]["spec"])
    until(simulator, state("RolledBack"), r2=0.1)
    assert simulator.weights() == {"r1": 100}
    assert simulator.rollout["reason"] == "Slow"
    assert "requests were slow, and the SLA allows 1 % (" in simulator.rollout["message"]
    simulator.settle()
    assert replicas(simulator) == {"r1": 4}
    assert simulator.of("Deployment")[0]["spec"] == before
    old, new = simulator.names("ControllerRevision")
    marks = simulator.objects["ControllerRevision", new]["metadata"]["annotations"]
    assert marks["tailbound.dev/rejected-reason"] == "Slow"
    assert simulator.condition("Ready") == ("False", "RolledBack")
    assert simulator.message("Ready").startswith(f"{old} serves; ")
    assert simulator.condition("Stalled") == ("True", "RolledBack")
    assert simulator.condition("Promoted") == ("False", "RolledBack")
    assert replace(simulator.plan(), scalable=None) == Plan()


def test_a_rejected_revision_stays_out_even_when_the_status_is_lost() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.settle()
    del simulator.service["status"]
    for _ in range(10):
        around(simulator)
        assert simulator.weights() == {"r1": 100}
        assert replicas(simulator) == {"r1": 4}
    assert simulator.condition("Promoted") == ("False", "RolledBack")
    simulator.edit(hosts=["churn.example.com"])
    simulator.settle()
    assert simulator.weights() == {"r1": 100}


def test_an_unread_gateway_freezes_the_verdict_and_its_return_resumes_it() -> None:
    simulator = judging()
    simulator.gateways["gateway-b"].readable = False
    until(simulator, lambda rollout: rollout["reason"] == "NoData")
    assert "gateway-b could not be read" in simulator.rollout["message"]
    assert simulator.condition("Promoted") == ("Unknown", "NoData")
    for _ in range(100):
        around(simulator)
    assert (simulator.rollout["state"], simulator.rollout["step"]) == ("Paused", 0)
    simulator.gateways["gateway-b"].readable = True
    until(simulator, state("Promoted"))


def test_a_gateway_that_is_unread_before_it_applies_a_weight_is_told() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.gateways["gateway-b"].readable = False
    until(simulator, lambda rollout: rollout["reason"] == "NoData")
    assert "stepStartedAt" not in simulator.rollout


def test_slow_requests_of_an_unread_time_count_when_it_is_over() -> None:
    simulator = judging()
    simulator.gateways["gateway-a"].readable = False
    for _ in range(10):
        around(simulator, r2=0.2)
    assert simulator.rollout["state"] != "RolledBack"
    simulator.gateways["gateway-a"].readable = True
    until(simulator, lambda rollout: rollout["state"] == "RolledBack", rounds=30, r2=0.2)


def test_a_restarted_gateway_counts_nothing_twice() -> None:
    simulator = judging()
    before = judged(simulator)
    simulator.gateways["gateway-a"].restart()
    around(simulator)
    assert judged(simulator) - before == 200


@pytest.mark.parametrize("crash_after", [0, 1, 2, 3])
def test_dying_between_writes_neither_loses_nor_doubles_evidence(crash_after: int) -> None:
    calm, troubled = begun(), begun()
    for _ in range(14):
        around(calm)
        troubled.work()
        troubled.traffic()
        troubled.reconcile(crash_after=crash_after)
        troubled.polls = calm.polls
        troubled.reconcile()
    assert calm.weights() == troubled.weights() == {"r1": 90, "r2": 10}
    assert judged(calm) == judged(troubled) > 0


def test_one_that_dies_later_returns_by_scaling_the_old_one_up_first() -> None:
    simulator = promoted_and_alone()
    dead = set(simulator.pods)
    for pod in dead:
        simulator.make_ready(pod, ready=False)
    plan = simulator.reconcile()
    assert plan.requeue_after is not None
    assert replicas(simulator) == {"r2": 4}
    simulator.now += plan.requeue_after
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 4, "r2": 4}
    assert simulator.weights() == {"r2": 100}
    for _ in range(10):
        simulator.run_controllers()
        for pod in simulator.pods.keys() - dead:
            simulator.make_ready(pod)
        for name in simulator.gateways:
            simulator.sync(name)
        simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4})
    assert simulator.rollout["reason"] == "Lost"
    assert simulator.condition("Ready") == ("False", "RolledBack")
