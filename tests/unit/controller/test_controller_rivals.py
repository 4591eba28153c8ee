"""What others refuse or undo holds up nothing else, is named, and is never written in a tight loop."""

import copy
import re
from typing import Any

import pytest
from tailbound.kube.errors import NotAdmitted, NotAdmittedYet, Terminal, Transient

from tests.support.simulated.objects import spec
from tests.support.simulated.serving import OTHER_MODEL, settled
from tests.support.simulated.simulator import Simulator
from tests.unit.controller.reconciling import Operator

A_WHILE = 900.0
# A write that does not last is repeated after 1, 2, 4 … seconds.
MOST = 15


@pytest.mark.parametrize("exists", [True, False], ids=["edited", "refused-from-the-start"])
async def test_a_refused_budget_holds_up_no_rollout_and_is_named(exists: bool) -> None:
    simulator = settled(scaling={"min": 2})
    budget = simulator.names("PodDisruptionBudget")[0]
    operator = Operator(simulator)
    operator.api.refuses = lambda kind, name: (
        Terminal("minAvailable and maxUnavailable cannot be both set", 422)
        if kind == "PodDisruptionBudget" and (name == budget or not exists)
        else None
    )
    simulator.objects["PodDisruptionBudget", budget]["spec"] = {"minAvailable": 1}
    await operator.works(5)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Conflict") == ("True", "WriteRefused")
    assert f"PodDisruptionBudget {budget}: minAvailable and" in simulator.message("Conflict")
    simulator.edit(model=OTHER_MODEL)
    await operator.works(A_WHILE)
    assert simulator.weights() == {"r2": 100}
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Conflict")[0] == "True", "neither may the old one be deleted"
    assert operator.written("PodDisruptionBudget", A_WHILE) <= 60


async def test_the_change_of_a_deployment_is_tried_before_its_requests_are_taken_away() -> None:
    simulator = settled(scaling={"min": 2}, rollout={"strategy": "recreate", "progressDeadline": "5m"})
    (old,) = simulator.names("Deployment")
    operator = Operator(simulator)
    operator.api.refuses = lambda kind, name: (
        Terminal("replicas may not change", 422) if name == old else None
    )
    simulator.edit(model=OTHER_MODEL)
    for _ in range(20):
        await operator.works(10)
        assert simulator.weights() == {"r1": 100}
    assert simulator.condition("Conflict") == ("True", "WriteRefused")
    assert f"Deployment {old}: replicas may not change" in simulator.rollout["message"]
    await operator.works(A_WHILE)
    assert (simulator.rollout["state"], simulator.rollout["reason"]) == ("RolledBack", "WriteRefused")
    assert operator.written("Deployment", A_WHILE) <= MOST


REFUSED = {
    "front-service": ("Service", r"churn$"),
    "service-of-the-revision": ("Service", r"churn-r1-"),
    "deployment": ("Deployment", r"churn-r1-"),
    "record": ("ControllerRevision", r"churn-r1-"),
}


@pytest.mark.parametrize(("kind", "names"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_change_of_what_exists_is_named_and_what_serves_is_ready(
    kind: str, names: str
) -> None:
    simulator = settled(scaling={"min": 2})
    operator = Operator(simulator, refuses=lambda written, _: Terminal("no") if written == kind else None)
    (name,) = [each for each in simulator.names(kind) if re.match(names, each)]
    live = simulator.objects[kind, name]
    live["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = False
    simulator.touch(live)
    await operator.works(A_WHILE)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Conflict")[0] == "True"
    assert simulator.message("Conflict").startswith(f"{kind} {name}: no")
    assert operator.written(kind, A_WHILE) <= 30


@pytest.mark.parametrize(("kind", "names"), REFUSED.values(), ids=REFUSED)
async def test_what_a_new_service_cannot_be_without_says_why_and_comes_once_it_may(
    kind: str, names: str
) -> None:
    simulator = Simulator()
    operator = Operator(
        simulator,
        refuses=lambda written, name: (
            NotAdmitted("exceeded quota") if written == kind and re.match(names, name) else None
        ),
    )
    await operator.works(60)
    assert simulator.condition("Ready") == ("False", "QuotaExceeded")
    said = f"{kind} {names.rstrip('$')}.*exceeded quota. What to do: raise the ResourceQuota"
    assert re.match(said, simulator.message("Ready"))
    operator.api.refuses = lambda *_: None
    await operator.works(120)
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Conflict") == ("False", "NoConflict")


async def test_a_release_that_a_missing_right_held_up_past_its_deadline_comes_by_itself() -> None:
    simulator = settled(rollout={"progressDeadline": "5m"})
    lacks = NotAdmittedYet(
        'deployments.apps is forbidden: User "operator" cannot create resource "deployments"'
    )
    operator = Operator(simulator, refuses=lambda kind, name: lacks if "-r2-" in name else None)
    simulator.edit(model=OTHER_MODEL)
    await operator.works(200)
    assert simulator.condition("Ready") == ("False", "RightMissing")
    assert "cannot create resource" in simulator.message("Ready")
    assert "helm upgrade" in simulator.message("Ready")
    await operator.works(200)
    assert simulator.rollout["state"] == "RolledBack"
    operator.api.refuses = lambda *_: None
    await operator.works(300)
    assert simulator.weights() == {"r2": 100}


async def test_a_write_that_fails_each_time_is_named_and_one_that_fails_once_is_not() -> None:
    simulator = settled(rollout={"progressDeadline": "5m"})
    hangs = Transient("PATCH /apis/apps/v1/deployments: no answer within 5 s")
    operator = Operator(simulator, refuses=lambda kind, name: hangs if kind == "Deployment" else None)
    simulator.edit(model=OTHER_MODEL)
    for _ in range(2):
        await operator.works(0.5)
        assert simulator.condition("Conflict") == ("False", "NoConflict")
    await operator.works(A_WHILE)
    assert simulator.condition("Ready") == ("False", "WriteFailed")
    for word in ("Deployment churn-r", "no answer within 5 s", "What to do: mend", "MutatingWebhook"):
        assert word in simulator.message("Ready")
    assert simulator.weights() == {"r1": 100}
    assert operator.written("Deployment", A_WHILE) <= 60
    operator.api.refuses = lambda *_: None
    await operator.works(2400)
    assert simulator.weights() == {"r2": 100}
    assert simulator.condition("Conflict") == ("False", "NoConflict")


async def test_an_edited_spec_is_tried_at_once_though_the_last_one_was_refused() -> None:
    simulator = settled()
    operator = Operator(
        simulator,
        refuses=lambda kind, name: Terminal("no") if "-r2-" in name and kind == "Deployment" else None,
    )
    simulator.edit(model=OTHER_MODEL)
    await operator.works(600)
    assert simulator.condition("Ready") == ("False", "RuntimeInvalid")
    simulator.edit(model=spec()["model"])
    await operator.works(1)
    assert simulator.condition("Ready") == ("True", "Serving")


async def test_an_autoscaler_on_a_deployment_is_named_and_not_fought_for_ever() -> None:
    simulator = settled(scaling={"min": 2})
    (name,) = simulator.names("Deployment")

    def scale(kind: str, _name: str) -> None:
        if kind == "Deployment":
            deployment = simulator.objects["Deployment", name]
            deployment["spec"]["replicas"] = 5
            simulator.touch(deployment)

    entry = {"manager": "kube-controller-manager", "subresource": "scale", "time": "2026-01-01T00:00:00Z"}
    operator = Operator(simulator, after=scale, managers={"Deployment": entry})
    scale("Deployment", name)
    await operator.works(A_WHILE)
    assert operator.written("Deployment", A_WHILE) <= MOST
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Conflict") == ("True", "Contested")
    said = simulator.message("Conflict")
    assert f"Deployment {name}: kube-controller-manager has undone what Tailbound had just written" in said
    assert "spec.replicas is 5 and not 2. What to do: remove the HorizontalPodAutoscaler" in said
    assert [reason for reason, _ in operator.api.events] == ["Contested"]
    operator.api.after = lambda *_: None
    await operator.works(600)
    assert simulator.objects["Deployment", name]["spec"]["replicas"] == 2
    assert simulator.condition("Conflict") == ("False", "NoConflict")


async def test_a_child_that_somebody_deletes_each_time_is_not_made_in_a_loop() -> None:
    simulator = settled(scaling={"min": 2})
    (budget,) = simulator.names("PodDisruptionBudget")

    def remove(kind: str, name: str) -> None:
        if kind == "PodDisruptionBudget":
            simulator.objects.pop((kind, name), None)
            simulator.versions += 1

    operator = Operator(simulator, after=remove)
    remove("PodDisruptionBudget", budget)
    await operator.works(A_WHILE)
    assert operator.written("PodDisruptionBudget", A_WHILE) <= MOST
    assert simulator.condition("Ready") == ("True", "Serving")
    assert f"PodDisruptionBudget {budget}: another client has removed it" in simulator.message("Conflict")


async def test_a_change_by_hand_is_put_right_at_once_and_no_conflict() -> None:
    simulator = settled(scaling={"min": 2})
    operator = Operator(simulator)
    (name,) = simulator.names("Deployment")
    for _ in range(3):
        await operator.works(60)
        deployment = simulator.objects["Deployment", name]
        deployment["spec"]["replicas"] = 5
        simulator.touch(deployment)
        await operator.passes()
        assert simulator.objects["Deployment", name]["spec"]["replicas"] == 2
        assert simulator.condition("Conflict") == ("False", "NoConflict")


async def test_an_edit_just_after_another_one_is_told_as_what_it_is() -> None:
    """One that is undone twice in a second was not undone each time, and may be of a person."""
    simulator = settled(scaling={"min": 2})
    operator = Operator(simulator, managers={"Deployment": {"manager": "kubectl-edit", "time": "2026-01-01"}})
    live = simulator.objects["Deployment", simulator.names("Deployment")[0]]
    for field, value in (("replicas", 5), ("paused", True)):
        live["spec"][field] = value
        simulator.touch(live)
        await operator.passes()
        live = simulator.objects["Deployment", live["metadata"]["name"]]
    said = simulator.message("Conflict")
    assert (
        "kubectl-edit has undone what Tailbound had just written: spec.paused is True and not False. " in said
    )
    operator.api.managers = {}
    await operator.works(0.5)
    await operator.works(60)
    assert simulator.condition("Conflict") == ("False", "NoConflict")


BACKENDS = [{"revision": "churn-r9-aaaaaa", "weight": 100}, {"revision": "churn-r8-aaaaaa", "weight": 100}]
STATUSES: dict[str, dict[str, Any]] = {
    "backends": {"traffic": {"generation": 1, "backends": BACKENDS}},
    "backends-of-a-later-generation": {"traffic": {"generation": 900, "backends": BACKENDS}},
    "no-traffic": {"traffic": None},
    "a-rollout-of-nothing": {
        "rollout": {
            "state": "Analysing",
            "revision": "churn-r9-aaaaaa",
            "from": "churn-r8-aaaaaa",
            "weight": 50,
        }
    },
    "a-rollout-of-its-own": {"rollout": {"state": "Promoting", "revision": "{name}", "from": "{name}"}},
    "a-canary": {"canary": {"revision": "churn-r9-aaaaaa", "replicas": 3, "ready": 3}},
    "no-conditions": {"conditions": []},
    "another-generation": {"observedGeneration": 99},
    "everything-lost": {},
}


@pytest.mark.parametrize("edit", STATUSES.values(), ids=STATUSES)
@pytest.mark.parametrize("rolling", [False, True], ids=["idle", "rolling"])
async def test_after_any_edit_of_the_status_writes_stop(edit: dict[str, Any], rolling: bool) -> None:
    simulator = settled(scaling={"min": 2}, rollout={"strategy": "canary"} if rolling else {})
    operator = Operator(simulator)
    if rolling:
        simulator.edit(model=OTHER_MODEL)
        await operator.works(20)
    else:
        await operator.works(1)
    name = simulator.names("Deployment")[-1]
    status = copy.deepcopy(simulator.service["status"]) if edit else {}
    for each, value in edit.items():
        status[each] = {**value, "revision": name, "from": name} if "{name}" in str(value) else value
    simulator.service["status"] = status
    simulator.touch(simulator.service)
    await operator.works(A_WHILE)
    before = len(operator.api.writes)
    await operator.works(A_WHILE)
    assert len(operator.api.writes) == before
    assert sum(simulator.weights().values()) == 100
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.rollout["state"] == "Promoted"


async def test_a_status_restored_before_its_runtime_ends_like_any_other() -> None:
    simulator = settled(scaling={"min": 2})
    runtimes, simulator.cluster_runtimes = simulator.cluster_runtimes, {}
    fresh = Simulator(service=copy.deepcopy(simulator.service), cluster_runtimes={})
    fresh.versions = simulator.versions
    fresh.service["metadata"]["uid"] = "uid-of-the-restored"
    fresh.service["status"]["traffic"]["backends"] = BACKENDS
    operator = Operator(fresh)
    await operator.works(600)
    fresh.cluster_runtimes = runtimes
    await operator.works(A_WHILE)
    assert fresh.weights() == {"r1": 100}
    assert fresh.condition("Ready") == ("True", "Serving")
    assert fresh.rollout["state"] == "Promoted"


@pytest.mark.parametrize("others", [0, 20])
async def test_conditions_of_others_are_kept_as_far_as_there_is_room(others: int) -> None:
    simulator = settled()
    theirs = [
        {
            "type": f"example.com/Approved{number}",
            "status": "True",
            "reason": "Yes",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for number in range(others)
    ]
    simulator.service["status"]["conditions"] = theirs + simulator.service["status"]["conditions"]
    simulator.touch(simulator.service)
    operator = Operator(simulator)
    simulator.edit(scaling={"min": 2})
    await operator.works(10)
    kinds = [each["type"] for each in simulator.service["status"]["conditions"]]
    assert len(kinds) <= 32
    assert kinds[0] == "Ready"
    assert ("example.com/Approved0" in kinds) is bool(others)


@pytest.mark.parametrize("what", ["another-writer", "a-field-that-is-pruned"])
async def test_a_status_that_does_not_last_is_not_written_in_a_loop(what: str) -> None:
    simulator = settled()

    def overwrite(kind: str, _name: str) -> None:
        if kind == "InferenceService":
            simulator.service["status"]["traffic"]["backends"] = BACKENDS
            simulator.touch(simulator.service)

    others: dict[str, Any] = {"after": overwrite} if what == "another-writer" else {"prunes": "url"}
    operator = Operator(simulator, **others)
    simulator.service["status"]["url"] = ""
    simulator.touch(simulator.service)
    await operator.works(A_WHILE)
    assert operator.written("InferenceService", A_WHILE) <= MOST
    assert len(operator.api.events) <= 2 * MOST
