"""Rollouts whose service changes meanwhile: specs, scale, stops, a lost status; and those that recreate."""

from tests.support.simulated.objects import model, spec
from tests.support.simulated.rollouts import begun, replicas, state, until


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


def test_recreate_takes_the_old_ones_down_first() -> None:
    simulator = begun({"strategy": "recreate"}, sla=None)
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4, "r2": 0})
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({}, {"r1": 4, "r2": 0})
    for name in simulator.gateways:
        simulator.sync(name)
    simulator.reconcile()
    assert replicas(simulator) == {"r1": 0, "r2": 0}
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
    assert simulator.rollout["reason"] == "AbortedManually"


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
