"""Rollouts in the simulated cluster: good ones get through, bad ones do not, and hands win."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.unit.reconcile.simulator import Simulator, service, spec

SLA = {"latency": {"p99": "100ms"}, "errorRate": "1%"}
CANARY: dict[str, Any] = {"strategy": "canary", "steps": [{"weight": 10}, {"weight": 50}]}


def model(letter: str) -> dict[str, Any]:
    return {**spec()["model"], "sha256": letter * 64}


def begun(rollout: dict[str, Any] | None = None, *, replicas: int = 4, sla: Any = SLA) -> Simulator:
    """A service that serves, whose spec was just changed."""
    simulator = Simulator(
        service=service(
            sla=sla or {}, rollout=CANARY if rollout is None else rollout, scaling={"min": replicas}
        )
    )
    simulator.settle()
    simulator.edit(model=model("b"))
    return simulator


def around(simulator: Simulator, **slow: float) -> Plan:
    """Two seconds in a cluster where everything works."""
    simulator.run_controllers()
    for pod in list(simulator.pods):
        simulator.make_ready(pod)
    for name in simulator.gateways:
        simulator.sync(name)
    simulator.traffic(1000, **slow)
    simulator.now += timedelta(seconds=1)
    return simulator.reconcile()


def until(
    simulator: Simulator, holds: Callable[[dict[str, Any]], bool], rounds: int = 200, **slow: float
) -> None:
    """Until status.rollout is so."""
    for _ in range(rounds):
        around(simulator, **slow)
        if holds(simulator.rollout):
            return
    raise AssertionError(simulator.rollout)


def state(*wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda rollout: rollout["state"] in wanted


def judged(simulator: Simulator) -> float:
    """Requests of the canary that were judged."""
    return float(simulator.rollout["findings"][0]["requests"])


def judging(**fields: Any) -> Simulator:
    """At the first step, with some requests judged already."""
    simulator = begun(**fields)
    for _ in range(10):
        around(simulator)
    assert simulator.weights() == {"r1": 90, "r2": 10}
    assert judged(simulator) > 0
    return simulator


def replicas(simulator: Simulator) -> dict[str, int]:
    return {
        name.split("-")[1]: stored["spec"]["replicas"]
        for (kind, name), stored in simulator.objects.items()
        if kind == "Deployment"
    }


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
    assert simulator.plan() == Plan()


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
    assert f"{old} still serves" in simulator.message("Ready")
    assert simulator.condition("Stalled") == ("True", "RolledBack")
    assert simulator.condition("Promoted") == ("False", "RolledBack")
    assert simulator.plan() == Plan()


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


def test_a_retry_tries_again_once() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    new = simulator.names("ControllerRevision")[1]
    simulator.annotate(retry=new)
    until(simulator, state("Analysing"))
    until(simulator, state("RolledBack"), r2=0.1)
    del simulator.service["status"]
    for _ in range(5):
        around(simulator)
    assert simulator.weights() == {"r1": 100}, "the same value asks for one try"
    simulator.annotate(retry=f"{new}/again")
    simulator.settle()
    assert simulator.rollout["state"] != "RolledBack"


def test_both_slow_holds_and_goes_on_when_it_is_over() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["reason"] == "SharedBreach", r1=0.1, r2=0.1)
    for _ in range(20):
        around(simulator, r1=0.1, r2=0.1)
    assert simulator.rollout["state"] == "Analysing"
    assert simulator.rollout["step"] == 0


def test_one_that_turns_slow_at_a_later_step_is_rolled_back() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["step"] == 1 and rollout["weight"] == 50)
    until(simulator, state("RolledBack"), r2=0.2)
    assert simulator.weights() == {"r1": 100}


def test_without_an_sla_time_alone_decides_and_nobody_counts() -> None:
    simulator = begun(sla=None)
    for _ in range(100):
        assert not around(simulator).poll_counters
        if simulator.rollout["state"] == "Promoted":
            break
    simulator.settle()
    assert simulator.weights() == {"r2": 100}


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
    around(simulator)
    assert simulator.rollout["state"] == "RolledBack"


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
        troubled.run_controllers()
        for pod in list(troubled.pods):
            troubled.make_ready(pod)
        for name in troubled.gateways:
            troubled.sync(name)
        troubled.traffic()
        troubled.reconcile(crash_after=crash_after)
        troubled.polls = calm.polls
        troubled.reconcile()
    assert calm.weights() == troubled.weights() == {"r1": 90, "r2": 10}
    assert judged(calm) == judged(troubled) > 0


def test_abort_wins_over_everything() -> None:
    simulator = begun(CANARY | {"promotion": "manual"})
    until(simulator, lambda rollout: rollout["weight"] == 10)
    new = simulator.rollout["revision"]
    simulator.annotate(promote=new, pause=new, abort=new)
    around(simulator)
    assert simulator.weights() == {"r1": 100}
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "AbortedByHand")
    simulator.settle()
    assert replicas(simulator) == {"r1": 4}


def test_promote_goes_straight_to_everything_once_its_endpoints_are_ready() -> None:
    simulator = begun(CANARY | {"promotion": "manual"})
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.annotate(promote=simulator.rollout["revision"], hands_by="ada")
    simulator.reconcile()
    assert simulator.weights() == {"r1": 90, "r2": 10}, "one pod cannot carry everything"
    simulator.settle()
    assert simulator.weights() == {"r2": 100}
    assert simulator.condition("Promoted") == ("True", "PromotedByHand")
    new = simulator.names("ControllerRevision")[1]
    assert (
        simulator.objects["ControllerRevision", new]["metadata"]["annotations"]["tailbound.dev/promoted-by"]
        == "ada"
    )
    assert simulator.plan() == Plan()


def test_manual_promotion_waits_and_verdicts_act_meanwhile() -> None:
    simulator = begun(CANARY | {"promotion": "manual"})
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    for _ in range(20):
        around(simulator)
    assert (simulator.weights(), simulator.rollout["state"]) == ({"r1": 50, "r2": 50}, "Paused")
    until(simulator, state("RolledBack"), r2=0.3)
    assert simulator.weights() == {"r1": 100}


def test_manual_blue_green_waits_with_all_pods_and_no_weight() -> None:
    simulator = begun({"promotion": "manual"})
    until(simulator, lambda rollout: rollout["reason"] == "AwaitingPromotion")
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4, "r2": 4})
    simulator.annotate(promote=simulator.rollout["revision"])
    simulator.settle()
    assert simulator.weights() == {"r2": 100}


def test_pause_keeps_the_weight_until_it_is_gone() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.annotate(pause=simulator.rollout["revision"])
    for _ in range(40):
        around(simulator)
    assert (simulator.weights(), simulator.rollout["state"]) == ({"r1": 90, "r2": 10}, "Paused")
    del simulator.service["metadata"]["annotations"]["tailbound.dev/pause"]
    until(simulator, state("Promoted"))


def test_a_new_spec_takes_the_canarys_place_after_its_weight_was_seen_to_go() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.edit(model=model("c"))
    simulator.reconcile()
    assert simulator.weights() == {"r1": 100}
    assert (replicas(simulator), simulator.rollout["state"]) == ({"r1": 4, "r2": 1}, "Pending")
    simulator.sync("gateway-a")
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 4, "r2": 1}
    simulator.sync("gateway-b")
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 4, "r2": 1, "r3": 1}
    simulator.run_controllers()
    assert replicas(simulator) == {"r1": 4, "r3": 1}
    until(simulator, state("Promoted"))
    assert simulator.weights() == {"r3": 100}


def test_the_stable_spec_ends_the_rollout_at_once() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.edit(model=spec()["model"])
    simulator.reconcile()
    assert simulator.weights() == {"r1": 100}
    simulator.settle()
    assert replicas(simulator) == {"r1": 4}
    assert simulator.condition("Promoted") == ("True", "Promoted")
    simulator.edit(model=model("b"))
    until(simulator, state("Promoted"), r1=0.0)


def test_a_lost_status_mid_rollout_is_no_first_deployment() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    del simulator.service["status"]
    simulator.reconcile()
    assert simulator.weights() in ({"r1": 100}, {"r1": 90, "r2": 10})
    assert simulator.rollout["from"].split("-")[1] == "r1"
    until(simulator, state("Promoted"))


def test_a_crash_looping_canary_is_rolled_back() -> None:
    simulator = begun()
    simulator.reconcile()
    simulator.run_controllers()
    (pod,) = (pod for pod in simulator.pods if "-r2-" in pod)
    simulator.crash(pod, restarts=3)
    simulator.reconcile()
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "CrashLoop")
    assert "no such operator" in simulator.rollout["message"]
    simulator.settle()
    assert replicas(simulator) == {"r1": 4}


def test_a_canary_that_never_gets_ready_is_rolled_back_after_its_deadline() -> None:
    simulator = begun()
    plan = simulator.reconcile()
    assert plan.requeue_after is not None
    simulator.run_controllers()
    simulator.now += plan.requeue_after
    plan = simulator.reconcile()
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "DeadlineExceeded")
    assert [event.reason for event in plan.events] == ["RolledBack", "DeadlineExceeded"]


def test_one_that_dies_with_all_requests_returns_at_once() -> None:
    simulator = begun({})
    until(simulator, lambda rollout: rollout["state"] == "Promoting" and "stepStartedAt" in rollout)
    for pod in simulator.pods:
        if "-r2-" in pod:
            simulator.make_ready(pod, ready=False)
    simulator.reconcile()
    assert simulator.weights() == {"r1": 100}
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "Lost")


def test_a_blue_green_that_is_slow_after_the_switch_returns_at_once() -> None:
    simulator = begun({})
    until(simulator, state("RolledBack"), r2=0.1)
    assert simulator.rollout["reason"] == "Slow"
    assert simulator.weights() == {"r1": 100}


def promoted_and_alone() -> Simulator:
    simulator = begun({}, sla=None)
    simulator.settle()
    assert replicas(simulator) == {"r2": 4}
    return simulator


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


def test_rollback_to_scales_up_then_moves_the_weight_then_shrinks() -> None:
    simulator = promoted_and_alone()
    old, new = simulator.names("ControllerRevision")
    simulator.annotate(rollback_to=old)
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r1": 4, "r2": 4})
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4})
    marks = simulator.objects["ControllerRevision", new]["metadata"]["annotations"]
    assert marks["tailbound.dev/rejected-reason"] == "RolledBackByHand"
    assert simulator.rollout["state"] == "RolledBack"
    assert simulator.plan() == Plan()
    simulator.annotate(retry=new)
    simulator.settle()
    assert simulator.weights() == {"r2": 100}, "the old request was acted on"


@pytest.mark.parametrize("named", ["churn-r9-nobody", ""])
def test_hands_that_name_nothing_do_nothing(named: str) -> None:
    simulator = promoted_and_alone()
    before = (simulator.weights(), replicas(simulator), simulator.rollout)
    simulator.annotate(rollback_to=named, promote=named, abort=named, retry=named, pause=named)
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert [event.reason for event in plan.events] == ["HandRefused"]
    assert simulator.condition("HandRefused") == ("True", "HandRefused")
    assert simulator.plan() == Plan()
    assert (simulator.weights(), replicas(simulator), simulator.rollout) == before


def test_recreate_takes_the_old_ones_down_first() -> None:
    simulator = begun({"strategy": "recreate"}, sla=None)
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({}, {"r1": 4})
    for name in simulator.gateways:
        simulator.sync(name)
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 0}
    simulator.run_controllers()
    assert not simulator.pods
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r1": 0, "r2": 4})
    simulator.settle()
    assert replicas(simulator) == {"r2": 4}
    assert simulator.condition("Promoted") == ("True", "Promoted")


def test_recreate_goes_back_the_same_way() -> None:
    simulator = begun({"strategy": "recreate"}, sla=None)
    for _ in range(4):
        simulator.reconcile()
        simulator.run_controllers()
        for name in simulator.gateways:
            simulator.sync(name)
    assert replicas(simulator) == {"r1": 0, "r2": 4}
    simulator.annotate(abort=simulator.rollout["revision"])
    simulator.reconcile()
    assert simulator.weights() == {}
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4})
    assert simulator.rollout["reason"] == "AbortedByHand"


@pytest.mark.parametrize(
    ("wanted", "end"), [("pause", "Paused"), ("rollback", "RolledBack"), ("promote", "Promoted")]
)
def test_without_a_verdict_the_spec_says_what_follows(wanted: str, end: str) -> None:
    simulator = begun(CANARY | {"onInconclusive": wanted, "maxStepTime": "1m"})
    simulator.reconcile()
    for _ in range(150):
        simulator.run_controllers()
        for pod in list(simulator.pods):
            simulator.make_ready(pod)
        for name in simulator.gateways:
            simulator.sync(name)
        simulator.now += timedelta(seconds=1)
        simulator.reconcile()
    assert simulator.rollout["state"] == end


def test_scaling_during_a_rollout_keeps_every_share_carried() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 50)
    simulator.edit(scaling={"min": 8})
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 8, "r2": 4}
    assert simulator.weights() == {"r1": 50, "r2": 50}
    simulator.edit(scaling={"min": 1})
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 1, "r2": 1}
    until(simulator, state("Promoted"))


def test_stopping_ends_the_rollout_and_resuming_begins_it_anew() -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.edit(stopped=True)
    simulator.settle()
    assert simulator.weights() == {}
    assert not simulator.pods
    simulator.edit(stopped=False)
    simulator.reconcile()
    assert set(replicas(simulator)) == {"r1", "r2"}
    until(simulator, state("Promoted"))
    assert simulator.weights() == {"r2": 100}
