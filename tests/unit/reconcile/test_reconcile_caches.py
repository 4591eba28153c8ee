"""The claims that keep models for a namespace: made before pods, shared, and never taken from others."""

from typing import Any

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.names import CACHE_LABEL, CACHED_MODEL_LABEL
from tailbound.objects.fields import Object
from tailbound.objects.pod import Pod
from tailbound.reconcile.model import RefusedWrite
from tailbound.reconcile.model_caches import finding_of
from tailbound.revisions.model_cache import name_of_job

from tests.support.simulated.objects import service, spec
from tests.support.simulated.serving import verbs
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.test_reconcile_sources import NOT_FOUND, ends, finds

KIND = "PersistentVolumeClaim"
CACHE = {"storageClassName": "shared", "size": "10Gi"}
OTHER_OWNER = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "name": "other-r1-abcdef", "uid": "o"}


def cached() -> Simulator:
    simulator = Simulator(service=service(model={**spec()["model"], "cache": CACHE}))
    simulator.reconcile()
    return simulator


def claim(simulator: Simulator) -> Any:
    (found,) = simulator.of(KIND)
    return found


def owners(simulator: Simulator) -> list[str]:
    return [owner["name"] for owner in claim(simulator)["metadata"]["ownerReferences"]]


def test_a_claim_is_made_between_the_record_and_the_pods() -> None:
    simulator = cached()
    assert [kind for kind, _ in simulator.objects if kind in ("ControllerRevision", KIND, "Deployment")] == [
        "ControllerRevision"
    ]
    made = [kind for _, kind in verbs(simulator.reconcile())]
    assert made.index(KIND) < made.index("Deployment")
    assert claim(simulator)["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "shared",
    }
    assert owners(simulator) == simulator.names("ControllerRevision")
    (deployment,) = simulator.of("Deployment")
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["model-cache"]["persistentVolumeClaim"] == {
        "claimName": claim(simulator)["metadata"]["name"]
    }
    simulator.settle()
    assert simulator.condition("ModelVerified") == ("True", "DigestMatches")


def test_revisions_with_the_same_model_share_a_claim_and_another_size_is_another_one() -> None:
    simulator = cached()
    simulator.settle()
    first = claim(simulator)["metadata"]["name"]
    simulator.edit(env=[{"name": "LEVEL", "value": "2"}])
    simulator.settle()
    assert claim(simulator)["metadata"]["name"] == first
    assert sorted(owners(simulator)) == sorted(simulator.names("ControllerRevision"))
    assert len(owners(simulator)) == 2
    simulator.edit(model={**spec()["model"], "cache": {**CACHE, "size": "20Gi"}})
    simulator.settle()
    assert len(simulator.names(KIND)) == 2


def test_owners_of_other_services_and_a_raised_size_stay() -> None:
    simulator = cached()
    simulator.settle()
    claim(simulator)["metadata"]["ownerReferences"] = [OTHER_OWNER]
    claim(simulator)["spec"]["resources"]["requests"]["storage"] = "40Gi"
    assert verbs(simulator.reconcile()) == [("Apply", KIND)]
    assert owners(simulator) == ["other-r1-abcdef", *simulator.names("ControllerRevision")]
    assert claim(simulator)["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert simulator.reconcile().writes == ()


@pytest.mark.parametrize("lost", ["the claim", "its owners"])
def test_of_a_claim_that_two_revisions_share_each_decision_writes_it_once(lost: str) -> None:
    simulator = cached()
    simulator.settle()
    simulator.edit(env=[{"name": "LEVEL", "value": "2"}], rollout={"promotion": "manual"})
    simulator.settle()
    assert len(simulator.names("Deployment")) == 2
    if lost == "the claim":
        del simulator.objects[KIND, claim(simulator)["metadata"]["name"]]
    else:
        del claim(simulator)["metadata"]["ownerReferences"]
    for _ in range(2):
        assert [kind for _, kind in verbs(simulator.reconcile())].count(KIND) == 1
    assert sorted(owners(simulator)) == sorted(simulator.names("ControllerRevision"))
    assert simulator.reconcile().writes == ()


def test_a_claim_on_its_way_out_is_no_news_while_its_pods_serve() -> None:
    simulator = cached()
    simulator.settle()
    claim(simulator)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    plan = simulator.reconcile()
    assert (plan.writes, plan.status) == ((), None)
    assert simulator.condition("Ready") == ("True", "Serving")


def test_a_claim_of_somebody_else_or_on_its_way_out_keeps_pods_from_being_made() -> None:
    simulator = cached()
    simulator.reconcile(crash_after=1)
    labels = claim(simulator)["metadata"].pop("labels")
    assert verbs(simulator.reconcile()) == []
    assert simulator.condition("Stalled") == ("True", "NameConflict")
    assert f"PersistentVolumeClaim {claim(simulator)['metadata']['name']}" in simulator.message("Ready")
    claim(simulator)["metadata"] |= {"labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert verbs(simulator.reconcile()) == []
    assert "the last pod that mounts it has ended" in simulator.message("Ready")


def test_a_quota_that_has_no_room_for_the_claim_is_told() -> None:
    simulator = cached()
    name = next(w.body["metadata"]["name"] for w in simulator.plan().writes if w.body["kind"] == KIND)  # type: ignore[union-attr]
    said = f'persistentvolumeclaims "{name}" is forbidden: exceeded quota: disk'
    simulator.refused_writes = (RefusedWrite(KIND, name, Reason.QUOTA_EXCEEDED, said),)
    simulator.reconcile()
    assert simulator.names("Deployment") == []
    assert simulator.condition("Ready") == ("False", "QuotaExceeded")
    assert said in simulator.message("Ready")


UNPINNED = {name: value for name, value in spec()["model"].items() if name != "sha256"}


def resolving(**cache: str) -> Simulator:
    """A service without a digest whose Job and claim are made."""
    simulator = Simulator(service=service(model={**UNPINNED, "cache": {**CACHE, **cache}}))
    for _ in range(2):
        simulator.reconcile()
    return simulator


def mounts(body: Any) -> list[str]:
    """The claims that the pods of a workload mount."""
    volumes = body["spec"]["template"]["spec"]["volumes"]
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def owned_by(simulator: Simulator) -> dict[str, list[str]]:
    """The kinds of the owners of each claim by its name."""
    return {
        each["metadata"]["name"]: [owner["kind"] for owner in each["metadata"]["ownerReferences"]]
        for each in simulator.of(KIND)
    }


def test_the_claim_to_which_the_job_downloads_becomes_that_of_the_revision() -> None:
    simulator = resolving()
    (job,) = simulator.of("Job")
    ((name, owners),) = owned_by(simulator).items()
    assert (mounts(job), owners) == ([name], ["Job"])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("--cache") + 1] in [
        each["mountPath"] for each in container["volumeMounts"] if each["name"] == "model-cache"
    ]
    assert simulator.reconcile().writes == ()
    finds(simulator, "a" * 64)
    simulator.settle()
    assert owned_by(simulator) == {name: ["Job", "ControllerRevision"]}
    assert mounts(simulator.of("Deployment")[0]) == [name]
    assert simulator.names("Job") == []
    assert simulator.condition("Ready") == ("True", "Serving")


@pytest.mark.parametrize(
    ("found", "kept"), [("a", "first"), ("b", "its own")], ids=["same-model", "another-model"]
)
def test_a_further_revision_shares_the_claim_of_the_same_model_alone(found: str, kept: str) -> None:
    simulator = resolving()
    (first,) = owned_by(simulator)
    finds(simulator, "a" * 64)
    simulator.settle()
    simulator.edit(env=[{"name": "LEVEL", "value": "2"}])
    for _ in range(2):
        simulator.reconcile()
    (own,) = owned_by(simulator).keys() - {first}
    finds(simulator, found * 64)
    simulator.settle()
    expected = {"first": first, "its own": own}[kept]
    assert {tuple(mounts(each)) for each in simulator.of("Deployment")} == {(expected,)}
    assert owned_by(simulator)[own] == (["Job"] if kept == "first" else ["Job", "ControllerRevision"])


@pytest.mark.parametrize("state", ["used", "lost", "terminating"])
def test_a_revision_with_a_digest_shares_the_claim_that_a_job_has_filled_with_it(state: str) -> None:
    simulator = resolving()
    (filled,) = owned_by(simulator)
    finds(simulator, "a" * 64)
    simulator.settle()
    if state == "lost":
        claim(simulator)["status"] = {"phase": "Lost"}
    elif state == "terminating":
        claim(simulator)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    simulator.edit(model={**UNPINNED, "sha256": "a" * 64, "cache": CACHE})
    simulator.settle()
    unused = {name for name in owned_by(simulator) if name != filled}
    (mounted,) = {tuple(mounts(each)) for each in simulator.of("Deployment")}
    assert (mounted == (filled,), len(unused)) == (state == "used", state != "used")
    assert simulator.condition("Ready") == ("True", "Serving")
    # A claim that is older all the same changes nothing for a revision that has one.
    (one, *_) = simulator.of(KIND)
    labels = {**one["metadata"]["labels"], CACHE_LABEL: "older"}
    assert CACHED_MODEL_LABEL in labels
    older = {"name": "older", "labels": labels, "creationTimestamp": "2020-01-01T00:00:00Z"}
    simulator.objects[KIND, "older"] = {**one, "metadata": {**one["metadata"], **older}}
    assert simulator.reconcile().writes == ()
    assert simulator.condition("RuntimeOutdated") == ("False", "UpToDate")


def test_the_job_of_a_service_that_was_made_again_reads_its_source_again() -> None:
    before = resolving()
    (before_job,) = before.names("Job")
    finds(before, "a" * 64)
    before.settle()
    (kept,) = before.of(KIND)
    again = Simulator(service=service(model={**UNPINNED, "cache": CACHE}))
    again.objects[KIND, kept["metadata"]["name"]] = kept
    of_a_user = {"name": name_of_job(before_job, 1), "namespace": "risk", "uid": "u"}
    again.objects[KIND, of_a_user["name"]] = {"kind": KIND, "metadata": of_a_user, "spec": {}}
    for _ in range(2):
        again.reconcile()
    (job,) = again.of("Job")
    assert mounts(job) == [name_of_job(before_job, 2)]
    assert again.objects[KIND, mounts(job)[0]]["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert again.reconcile().writes == ()
    finds(again, "a" * 64)
    again.settle()
    assert mounts(again.of("Deployment")[0]) == [kept["metadata"]["name"]]


@pytest.mark.parametrize(
    ("uri", "cache"),
    [
        ("hf://risk/churn@0a1b2c", {}),
        ("https://models.example.com/churn.onnx", {"accessMode": "ReadWriteOnce"}),
    ],
    ids=["source-states-digests", "volume-of-one-node"],
)
def test_the_job_fills_no_claim_that_pods_may_not_want(uri: str, cache: dict[str, str]) -> None:
    model = {**UNPINNED, "uri": uri, "cache": {**CACHE, **cache}}
    simulator = Simulator(service=service(model=model))
    for _ in range(2):
        simulator.reconcile()
    assert (mounts(simulator.of("Job")[0]), simulator.names(KIND)) == ([], [])
    finds(simulator, "a" * 64)
    simulator.settle()
    ((name, owners),) = owned_by(simulator).items()
    assert (mounts(simulator.of("Deployment")[0]), owners) == ([name], ["ControllerRevision"])


def test_a_claim_that_keeps_the_job_from_a_node_is_named() -> None:
    simulator = resolving()
    ends(simulator, 1, NOT_FOUND)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNBOUND}
    (pod,) = simulator.job_pods
    simulator.job_pods = ({**pod, "status": {"phase": "Pending", "conditions": [unscheduled]}},)
    simulator.reconcile()
    assert simulator.condition("ModelVerified") == ("False", "CacheUnusable")
    assert "StorageClass shared has given it none of 10Gi" in simulator.message("ModelVerified")


def pod(name: str, node: str = "", unscheduled: str = "", *, started: bool = False) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unscheduled}
    state = {"running": {}} if started else {"waiting": {"reason": "PodInitializing"}}
    body: Object = {
        "metadata": {"name": name},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "conditions": [condition] if unscheduled else [],
            "initContainerStatuses": [{"name": "fetch", "state": state}],
        },
    }
    return Pod(body)


UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims"
LEAVING = 'persistentvolumeclaim "c" is being deleted'
FULL = "0/3 nodes are available: 3 Insufficient cpu"


@pytest.mark.parametrize(
    ("phase", "mode", "leaving", "pods", "said"),
    [
        ("Pending", "ReadWriteMany", False, [pod("a", unscheduled=UNBOUND)], "StorageClass shared has given"),
        ("Pending", "ReadWriteMany", False, [pod("a", unscheduled=FULL)], None),
        ("Pending", "ReadWriteMany", False, [], None),
        ("Lost", "ReadWriteMany", False, [], "has lost its volume"),
        ("Bound", "ReadWriteMany", True, [pod("a", unscheduled=LEAVING)], "is being deleted"),
        ("Bound", "ReadWriteMany", True, [pod("a", "n1", started=True)], None),
        ("Bound", "ReadWriteOnce", False, [pod("a", "n1", started=True), pod("b", "n2")], "pod b waits"),
        ("Bound", "ReadWriteOnce", False, [pod("a", "n1", started=True), pod("b", "n1")], None),
        ("Bound", "ReadWriteMany", False, [pod("a", "n1", started=True), pod("b", "n2")], None),
    ],
    ids=[
        *("no volume", "no volume yet, and no room", "no pod yet", "lost", "deleted", "deleted, all run"),
        *("two nodes", "one node", "many nodes"),
    ],
)
def test_what_keeps_pods_from_mounting_a_claim(
    phase: str, mode: str, leaving: bool, pods: list[Pod], said: str | None
) -> None:
    stored: dict[str, Any] = {
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": [mode],
            "storageClassName": "shared",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": phase},
    }
    if leaving:
        stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    finding = finding_of(stored, pods)
    if said is None:
        assert finding is None
    else:
        assert finding is not None
        assert finding.reason is Reason.CACHE_UNUSABLE
        assert said in finding.message
