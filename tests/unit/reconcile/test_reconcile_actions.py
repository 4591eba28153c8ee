"""Actions win and act once per value, also where the status is lost; a refresh is a rollout as any other."""

from typing import Any

import pytest
from tailbound.reconcile.model import Plan

from tests.support.copies import remembered
from tests.support.simulated.objects import model, runtime, service
from tests.support.simulated.rollouts import CANARY, around, begun, promoted_and_alone, replicas, state, until
from tests.support.simulated.simulator import Simulator


@remembered
def served(*letters: str, **rollout: Any) -> Simulator:
    """A service whose spec went through these models, each promoted."""
    simulator = Simulator(service=service(rollout=rollout, scaling={"min": 2}))
    simulator.settle()
    for letter in letters:
        simulator.edit(model=model(letter))
        simulator.settle()
    return simulator


def replace(simulator: Simulator) -> None:
    """`kubectl replace` with a manifest that has no annotations."""
    simulator.service["metadata"].pop("annotations", None)
    simulator.touch(simulator.service)


def lose_status(simulator: Simulator) -> None:
    del simulator.service["status"]
    simulator.touch(simulator.service)


def actions(simulator: Simulator, number: str) -> dict[str, str]:
    """What the record of a revision remembers."""
    (name,) = (name for name in simulator.names("ControllerRevision") if f"-{number}-" in name)
    annotations = simulator.objects["ControllerRevision", name]["metadata"]["annotations"]
    mark = "tailbound.dev/handled-"
    return {
        key.removeprefix(mark): value.partition("/")[2]
        for key, value in annotations.items()
        if key.startswith(mark)
    }


def number_of(simulator: Simulator, number: str) -> str:
    (name,) = (name for name in simulator.names("ControllerRevision") if f"-{number}-" in name)
    return name


@pytest.mark.parametrize("lost", [False, True])
def test_a_return_is_not_made_again_when_the_spec_changes(lost: bool) -> None:
    simulator = served("b")
    simulator.annotate(rollback_to=f"{number_of(simulator, 'r1')}/1")
    simulator.settle()
    assert (simulator.weights(), actions(simulator, "r1")) == ({"r1": 100}, {"rollback-to": "1"})
    if lost:
        lose_status(simulator)
    simulator.edit(model=model("c"))
    simulator.settle()
    assert simulator.weights() == {"r3": 100}
    assert simulator.condition("Promoted") == ("True", "Promoted")


@pytest.mark.parametrize("lost", [False, True])
def test_an_abort_is_not_made_again_when_the_revision_is_tried_again(lost: bool) -> None:
    simulator = served(promotion="manual")
    simulator.edit(model=model("b"))
    simulator.settle()
    name = number_of(simulator, "r2")
    simulator.annotate(abort=f"{name}/1")
    simulator.settle()
    assert simulator.rollout["reason"] == "AbortedManually"
    if lost:
        lose_status(simulator)
        simulator.settle()
    simulator.annotate(retry=f"{name}/2", promote=f"{name}/3")
    simulator.settle()
    assert simulator.weights() == {"r2": 100}
    assert actions(simulator, "r2") == {"abort": "1", "retry": "2", "promote": "3"}


def test_a_promotion_is_not_made_again_when_the_revision_is_tried_again() -> None:
    simulator = served(promotion="manual")
    simulator.edit(model=model("b"))
    simulator.settle()
    name = number_of(simulator, "r2")
    simulator.annotate(promote=f"{name}/1")
    simulator.settle()
    assert simulator.weights() == {"r2": 100}
    simulator.annotate(rollback_to=f"{number_of(simulator, 'r1')}/2")
    simulator.settle()
    lose_status(simulator)
    simulator.settle()
    simulator.annotate(retry=f"{name}/3")
    simulator.settle()
    assert (simulator.weights(), simulator.rollout["reason"]) == ({"r1": 100}, "AwaitingPromotion")


def test_a_promotion_whose_status_is_lost_half_way_is_made_to_its_end() -> None:
    simulator = served(promotion="manual")
    simulator.edit(model=model("b"))
    simulator.settle()
    simulator.annotate(promote=f"{number_of(simulator, 'r2')}/1")
    simulator.reconcile()
    assert simulator.rollout["reason"] == "PromotedManually"
    lose_status(simulator)
    simulator.settle()
    assert (simulator.weights(), simulator.rollout["reason"]) == ({"r2": 100}, "PromotedManually")


@pytest.mark.parametrize("writes", range(6))
def test_a_return_whose_operator_dies_half_way_ends_the_same(writes: int) -> None:
    simulator = served("b")
    simulator.annotate(rollback_to=f"{number_of(simulator, 'r1')}/1")
    for _ in range(20):
        simulator.work()
        simulator.reconcile(crash_after=writes)
        simulator.reconcile()
    simulator.settle()
    assert simulator.weights() == {"r1": 100}
    assert simulator.marked("rejected-at") == {number_of(simulator, "r2")}


def test_a_value_that_is_removed_and_set_again_asks_again() -> None:
    simulator = served("b")
    old, new = simulator.names("ControllerRevision")
    for _ in range(2):
        simulator.annotate(rollback_to=old)
        simulator.settle()
        assert simulator.weights() == {"r1": 100}
        simulator.service["metadata"]["annotations"] = {}
        simulator.annotate(retry=new)
        simulator.settle()
        assert simulator.weights() == {"r2": 100}
        assert actions(simulator, "r1") == {}
        simulator.service["metadata"]["annotations"] = {}
        simulator.settle()


def test_a_revision_that_an_action_names_is_kept() -> None:
    simulator = served("b", historyLimit=1)
    simulator.annotate(rollback_to=number_of(simulator, "r1"))
    simulator.settle()
    for letter in "cd":
        simulator.edit(model=model(letter))
        simulator.settle()
    numbers = [name.split("-")[1] for name in simulator.names("ControllerRevision")]
    assert numbers == ["r1", "r3", "r4"]
    assert simulator.condition("ActionRefused") == ("False", "NoActionRefused")


def test_a_refresh_takes_up_a_new_runtime_through_a_rollout_and_returns_exactly() -> None:
    simulator = served(promotion="manual")
    before = simulator.objects["Deployment", number_of(simulator, "r1")]["spec"]["template"]
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="registry.example.com/runtime:2")}
    simulator.settle()
    assert simulator.condition("RuntimeOutdated") == ("True", "RuntimeChanged")
    assert "kubectl tailbound refresh churn -n risk applies" in simulator.message("RuntimeOutdated")
    simulator.annotate(refresh="1")
    simulator.settle()
    assert simulator.rollout["reason"] == "AwaitingPromotion"
    simulator.annotate(promote=number_of(simulator, "r2"))
    simulator.settle()
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")
    template = simulator.objects["Deployment", number_of(simulator, "r2")]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "registry.example.com/runtime:2"
    assert simulator.plan() == Plan()
    lose_status(simulator)
    simulator.settle()
    assert simulator.weights() == {"r2": 100}, "the same value is the same revision"
    simulator.annotate(rollback_to=number_of(simulator, "r1"))
    simulator.settle()
    assert simulator.objects["Deployment", number_of(simulator, "r1")]["spec"]["template"] == before


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


def test_promote_goes_straight_to_everything_once_its_endpoints_are_ready() -> None:
    simulator = begun(CANARY | {"promotion": "manual"})
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.annotate(promote=simulator.rollout["revision"], requested_by="ada")
    simulator.reconcile()
    assert simulator.weights() == {"r1": 75, "r2": 25}, "as much as one pod carries"
    simulator.settle()
    assert simulator.weights() == {"r2": 100}
    assert simulator.condition("Promoted") == ("True", "PromotedManually")
    new = simulator.names("ControllerRevision")[1]
    assert (
        simulator.objects["ControllerRevision", new]["metadata"]["annotations"]["tailbound.dev/promoted-by"]
        == "ada"
    )
    at_rest = simulator.plan()
    assert at_rest == Plan(scalable=at_rest.scalable), "nothing to do but to watch the P99 target"


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


@pytest.mark.parametrize("ended", ["", "another"])
def test_pause_keeps_the_weight_until_it_names_the_revision_no_more(ended: str) -> None:
    simulator = begun()
    until(simulator, lambda rollout: rollout["weight"] == 10)
    simulator.annotate(pause=simulator.rollout["revision"])
    for _ in range(40):
        around(simulator)
    assert (simulator.weights(), simulator.rollout["state"]) == ({"r1": 90, "r2": 10}, "Paused")
    replace(simulator)
    for _ in range(40):
        around(simulator)
    assert (simulator.weights(), simulator.rollout["state"]) == ({"r1": 90, "r2": 10}, "Paused")
    assert simulator.condition("ActionRefused")[0] == "False"
    simulator.annotate(pause=ended and number_of(simulator, "r1"))
    until(simulator, state("Promoted"))
    marks = simulator.objects["ControllerRevision", number_of(simulator, "r2")]["metadata"]["annotations"]
    assert not any("under-way" in mark for mark in marks)


@pytest.mark.parametrize("replaced", ["under-way", "done"])
def test_a_refresh_outlives_its_annotation(replaced: str) -> None:
    simulator = served(promotion="manual")
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="registry.example.com/runtime:2")}
    simulator.annotate(refresh="1")
    simulator.settle()
    if replaced == "under-way":
        replace(simulator)
        simulator.settle()
        assert simulator.rollout["reason"] == "AwaitingPromotion"
    simulator.annotate(promote=number_of(simulator, "r2"))
    simulator.settle()
    replace(simulator)
    before = simulator.rollout
    plan = simulator.reconcile()
    assert plan.events == ()
    simulator.settle()
    assert (simulator.weights(), simulator.rollout) == ({"r2": 100}, before)
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")
    assert simulator.condition("Ready") == ("True", "Serving")
    simulator.annotate(refresh="2")
    simulator.settle()
    assert simulator.rollout["revision"] == number_of(simulator, "r3")
    simulator.annotate(promote=number_of(simulator, "r3"))
    simulator.settle()
    simulator.annotate(refresh="1")
    simulator.settle()
    assert simulator.weights() == {"r3": 100}, "an earlier value asks for what was done"


def test_a_rejected_refresh_is_over_once_its_annotation_is_gone() -> None:
    simulator = served(promotion="manual")
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="registry.example.com/runtime:2")}
    simulator.annotate(refresh="1")
    simulator.settle()
    simulator.annotate(abort=number_of(simulator, "r2"))
    simulator.settle()
    assert simulator.condition("Ready") == ("False", "RolledBack")
    replace(simulator)
    simulator.settle()
    assert (simulator.weights(), simulator.condition("Ready")) == ({"r1": 100}, ("True", "Serving"))


def test_a_return_goes_on_where_its_annotation_is_lost_and_ends_where_it_is_taken_back() -> None:
    for ended in (False, True):
        simulator = served("b")
        simulator.annotate(rollback_to=number_of(simulator, "r1"))
        simulator.reconcile()
        assert simulator.weights() == {"r2": 100}
        replace(simulator)
        simulator.reconcile()
        if ended:
            simulator.annotate(rollback_to="")
        simulator.settle()
        assert simulator.weights() == ({"r2": 100} if ended else {"r1": 100})
        assert simulator.marked("rejected-at") == (set() if ended else {number_of(simulator, "r2")})


def test_a_retry_goes_on_where_its_annotation_is_lost() -> None:
    simulator = begun()
    until(simulator, state("RolledBack"), r2=0.1)
    simulator.annotate(retry=number_of(simulator, "r2"))
    until(simulator, state("Analysing"))
    replace(simulator)
    until(simulator, state("Promoted"))
    simulator.settle()
    assert simulator.marked("rejected-at") == set()


def test_rollback_to_scales_up_then_moves_the_weight_then_shrinks() -> None:
    simulator = promoted_and_alone()
    old, new = simulator.names("ControllerRevision")
    simulator.annotate(rollback_to=old)
    simulator.reconcile()
    assert (simulator.weights(), replicas(simulator)) == ({"r2": 100}, {"r1": 4, "r2": 4})
    simulator.settle()
    assert (simulator.weights(), replicas(simulator)) == ({"r1": 100}, {"r1": 4})
    marks = simulator.objects["ControllerRevision", new]["metadata"]["annotations"]
    assert marks["tailbound.dev/rejected-reason"] == "RolledBackManually"
    assert simulator.rollout["state"] == "RolledBack"
    assert simulator.plan() == Plan()
    simulator.annotate(retry=new)
    simulator.settle()
    assert simulator.weights() == {"r2": 100}, "the old request was acted on"


@pytest.mark.parametrize("named", ["churn-r9-nobody", ""])
def test_actions_that_name_nothing_do_nothing(named: str) -> None:
    simulator = promoted_and_alone()
    before = (simulator.weights(), replicas(simulator), simulator.rollout)
    simulator.annotate(rollback_to=named, promote=named, abort=named, retry=named, pause=named)
    plan = simulator.reconcile()
    assert plan.writes == ()
    assert [event.reason for event in plan.events] == ["ActionRefused"]
    assert simulator.condition("ActionRefused") == ("True", "ActionRefused")
    assert simulator.plan() == Plan()
    assert (simulator.weights(), replicas(simulator), simulator.rollout) == before
