"""Who may act on a rollout and who may change a spec, on a real API server with the chart's own policy."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tailbound.api.names import (
    ABORT_ANNOTATION,
    PAUSE_ANNOTATION,
    PROMOTE_ANNOTATION,
    REFRESH_ANNOTATION,
    REQUESTED_BY_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
)

from e2e.cluster import ControlPlane, binaries
from e2e.cluster.processes import wait_for
from tests.api_cases.objects import SHA256
from tests.integration.chart.helm import NAMESPACE, helm, named, of_kind, template

ACTIONS = (
    PROMOTE_ANNOTATION,
    ABORT_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
    PAUSE_ANNOTATION,
    REFRESH_ANNOTATION,
)

SPEC = {"model": {"uri": "https://models.example.com/churn.onnx", "format": "onnx", "sha256": SHA256}}
WAIT_SECONDS = 180
ANOTHER_OPERATOR = "system:serviceaccount:elsewhere:tailbound-operator"


@dataclass(frozen=True)
class User:
    """Somebody with a kubeconfig."""

    name: str
    kubeconfig: Path

    def kubectl(self, *arguments: str, document: Any = None) -> str:
        """What kubectl says, refusals included."""
        result = subprocess.run(
            [
                binaries.program("kubectl"),
                *("--kubeconfig", self.kubeconfig, "--namespace", "risk"),
                *arguments,
            ],
            input=None if document is None else json.dumps(document),
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return result.stdout + result.stderr

    def annotate(self, name: str, *changes: str) -> str:
        return self.kubectl("annotate", "--overwrite", "inferenceservice", name, *changes)

    def patch(self, name: str, patch: Any, *arguments: str) -> str:
        return self.kubectl(
            "patch", "inferenceservice", name, "--type=merge", f"--patch={json.dumps(patch)}", *arguments
        )

    def create(self, name: str, annotations: dict[str, str] | None = None) -> str:
        metadata = {"name": name, "namespace": "risk", "annotations": annotations or {}}
        document = {
            "apiVersion": "tailbound.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": metadata,
            "spec": SPEC,
        }
        return self.kubectl("create", "--filename=-", document=document)


@dataclass(frozen=True)
class Cluster:
    """The API server with the chart, and the users."""

    plane: ControlPlane
    pipeline: User
    editor: User
    writer: User
    tuner: User
    archivist: User
    admin: User
    operator: User

    def annotations(self, name: str) -> dict[str, str]:
        text = self.plane.kubectl("get", "inferenceservice", name, "--namespace=risk", "--output=json")
        found: dict[str, str] = json.loads(text)["metadata"].get("annotations", {})
        return found

    def stamps(self) -> bool:
        """Whether the API server tells who acts; its policy refuses a kind that it does not know yet."""
        if "stamp created" not in self.admin.create("stamp", {PROMOTE_ANNOTATION: "stamp-r1-a"}):
            return False
        try:
            return REQUESTED_BY_ANNOTATION in self.annotations("stamp")
        finally:
            self.admin.kubectl("delete", "inferenceservice", "stamp")


def bind_users(plane: ControlPlane) -> None:
    """Roles in the namespace of the service, and who has them."""
    verbs = "get,list,watch,create,update,patch"
    for role, resource, verb in (
        ("writer", "inferenceservices.tailbound.dev", "delete"),
        ("tuner", "inferenceservices.tailbound.dev", "edit-spec"),
        ("archivist", "controllerrevisions.apps", "delete"),
    ):
        plane.kubectl(
            *("create", "role", role, "--namespace=risk", f"--resource={resource}", f"--verb={verbs},{verb}")
        )
    # Nothing aggregates roles here: what the built-in role edit would get is bound itself.
    for user, role in (
        ("pipeline", "clusterrole=tailbound-promoter"),
        ("editor", "clusterrole=tailbound-edit"),
        ("editor", "clusterrole=tailbound-view"),
        ("writer", "role=writer"),
        ("tuner", "role=tuner"),
        ("archivist", "role=archivist"),
        (ANOTHER_OPERATOR, "role=archivist"),
    ):
        plane.kubectl(
            *(
                "create",
                "rolebinding",
                f"{user}-{role.partition('=')[2]}".replace(":", "-"),
                "--namespace=risk",
            ),
            *(f"--user={user}", f"--{role}"),
        )
    plane.kubectl("create", "clusterrolebinding", "admin", "--clusterrole=cluster-admin", "--user=admin")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("admission")
    with ControlPlane.start(directory) as plane:
        for namespace in (NAMESPACE, "risk"):
            plane.kubectl("create", "namespace", namespace)
        helm(
            *("install", "tailbound", "charts/tailbound", "--set", "image.registry=localhost"),
            *("--namespace", NAMESPACE, "--kubeconfig", plane.kubeconfig),
        )
        plane.kubectl("wait", "--for=condition=Established", "crd/inferenceservices.tailbound.dev")
        bind_users(plane)
        users = {
            user: User(user, plane.kubeconfig_for(user))
            for user in ("pipeline", "editor", "writer", "tuner", "archivist", "admin")
        }
        account = plane.kubeconfig_for_service_account(NAMESPACE, "tailbound-operator")
        made = Cluster(plane, operator=User("operator", account), **users)
        # A policy comes into force a little after it was written.
        wait_for("the policy", lambda: "edit-spec" in made.writer.create("probe"), WAIT_SECONDS)
        wait_for("actors to be stamped", made.stamps, WAIT_SECONDS)
        yield made


@pytest.fixture
def service(cluster: Cluster) -> Iterator[str]:
    assert "created" in cluster.editor.create("churn")
    yield "churn"
    cluster.admin.kubectl("delete", "inferenceservice", "churn")


def no_verb(user: str, verb: str) -> str:
    return (
        f"the verb {verb} on inferenceservices.tailbound.dev, and {user} does not have it in namespace risk"
    )


def test_a_pipeline_may_promote_and_not_edit(cluster: Cluster, service: str) -> None:
    for action in ACTIONS:
        assert "annotated" in cluster.pipeline.annotate(service, f"{action}=churn-r2-b"), action
    acted = dict.fromkeys(ACTIONS, "churn-r2-b")
    assert cluster.annotations(service) == {**acted, REQUESTED_BY_ANNOTATION: "pipeline"}
    for change in ({"stopped": True}, {"model": {"sha256": "0" * 64}}, {"rollout": {"strategy": "canary"}}):
        assert no_verb("pipeline", "edit-spec") in cluster.pipeline.patch(service, {"spec": change})


def test_who_may_only_write_objects_may_neither_act_nor_edit(cluster: Cluster, service: str) -> None:
    for action in ACTIONS:
        assert no_verb("writer", "promote") in cluster.writer.annotate(service, f"{action}=churn-r2-b"), (
            action
        )
    assert no_verb("writer", "edit-spec") in cluster.writer.patch(service, {"spec": {"stopped": True}})
    assert cluster.annotations(service) == {}
    assert "annotated" in cluster.writer.annotate(service, "example.com/note=x")


def test_who_may_only_write_objects_cannot_act_by_way_of_a_new_one(cluster: Cluster) -> None:
    assert no_verb("writer", "edit-spec") in cluster.writer.create("other")
    answer = cluster.writer.create("other", {PROMOTE_ANNOTATION: "other-r1-a"})
    assert no_verb("writer", "promote") in answer


def test_taking_a_pause_away_needs_the_verb_too(cluster: Cluster, service: str) -> None:
    assert "annotated" in cluster.editor.annotate(service, f"{PAUSE_ANNOTATION}=churn-r2-b")
    assert no_verb("writer", "promote") in cluster.writer.annotate(service, f"{PAUSE_ANNOTATION}-")
    assert "annotated" in cluster.pipeline.annotate(service, f"{PAUSE_ANNOTATION}-")
    assert cluster.annotations(service) == {REQUESTED_BY_ANNOTATION: "pipeline"}


def test_editors_and_administrators_may_do_both(cluster: Cluster, service: str) -> None:
    for somebody, stopped in ((cluster.editor, True), (cluster.admin, False)):
        assert "patched" in somebody.patch(service, {"spec": {"stopped": stopped}})
        assert "annotated" in somebody.annotate(service, f"{PROMOTE_ANNOTATION}=churn-r2-{somebody.name}")
        assert cluster.annotations(service)[REQUESTED_BY_ANNOTATION] == somebody.name


OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "gone",
    "uid": "00000000-0000-0000-0000-000000000000",
}


def test_who_may_not_delete_a_service_neither_has_it_deleted_nor_kept(cluster: Cluster, service: str) -> None:
    for user in (cluster.pipeline, cluster.tuner):
        for metadata in ({"finalizers": ["example.com/kept"]}, {"ownerReferences": [OWNER]}):
            assert no_verb(user.name, "delete") in user.patch(service, {"metadata": metadata}), metadata
        assert "labeled" in user.kubectl(
            "label", "--overwrite", "inferenceservice", service, f"by={user.name}"
        )


def test_who_may_delete_a_service_may_keep_it_for_a_finalizer(cluster: Cluster, service: str) -> None:
    assert "patched" in cluster.editor.patch(service, {"metadata": {"finalizers": ["example.com/kept"]}})
    assert "patched" in cluster.editor.patch(service, {"metadata": {"finalizers": None}})


def test_manual_promotion_is_ended_only_with_the_right_to_promote(cluster: Cluster, service: str) -> None:
    manual = {"strategy": "blueGreen", "promotion": "manual"}
    ends = ({"promotion": "automatic"}, {"promotion": None}, None, {"strategy": "canary"})
    for seconds, rollout in enumerate(ends, start=7):
        assert "patched" in cluster.tuner.patch(service, {"spec": {"rollout": manual}})
        assert no_verb("tuner", "promote") in cluster.tuner.patch(service, {"spec": {"rollout": rollout}})
        assert "patched" in cluster.tuner.patch(service, {"spec": {"timeout": f"{seconds}s"}})
        assert "patched" in cluster.editor.patch(service, {"spec": {"rollout": rollout}}), rollout


def test_records_of_revisions_are_written_by_the_operator_alone(cluster: Cluster) -> None:
    labels = {"app.kubernetes.io/managed-by": "tailbound"}
    record = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "churn-r1-a", "namespace": "risk", "labels": labels},
        "revision": 1,
        "data": {"template": "{}"},
    }
    other = {**record, "metadata": {"name": "other", "namespace": "risk"}}
    refused = "is a record of Tailbound, which its operator alone writes"
    archivist = cluster.archivist
    wait_for(
        "the policy", lambda: refused in archivist.kubectl("create", "-f", "-", document=record), WAIT_SECONDS
    )
    assert "created" in archivist.kubectl("create", "-f", "-", document=other)
    assert refused in archivist.kubectl(
        "label", "controllerrevision", "other", "app.kubernetes.io/managed-by=tailbound"
    )
    said = cluster.admin.kubectl("--as", ANOTHER_OPERATOR, "create", "-f", "-", document=record)
    of_this_one = f"namespace risk belongs to the installation of Tailbound in namespace {NAMESPACE}"
    assert f"{of_this_one}, and {ANOTHER_OPERATOR} is the operator of another one" in said
    assert "created" in cluster.operator.kubectl("create", "-f", "-", document=record)
    for change in (("label", "app.kubernetes.io/managed-by-"), ("annotate", "tailbound.dev/stable=true")):
        assert refused in archivist.kubectl(change[0], "controllerrevision", "churn-r1-a", change[1])
    assert "annotated" in cluster.admin.kubectl("annotate", "controllerrevision", "churn-r1-a", "a=b")
    assert "deleted" in archivist.kubectl("delete", "controllerrevision", "churn-r1-a", "other")


def test_nobody_signs_for_somebody_else(cluster: Cluster, service: str) -> None:
    signed = (f"{PROMOTE_ANNOTATION}=churn-r2-b", f"{REQUESTED_BY_ANNOTATION}=admin")
    assert "annotated" in cluster.pipeline.annotate(service, *signed)
    assert cluster.annotations(service)[REQUESTED_BY_ANNOTATION] == "pipeline"
    for user in (cluster.writer, cluster.editor):
        user.annotate(service, f"{REQUESTED_BY_ANNOTATION}={user.name}")
        user.annotate(service, f"{REQUESTED_BY_ANNOTATION}-")
        assert cluster.annotations(service)[REQUESTED_BY_ANNOTATION] == "pipeline"


def test_without_the_stamp_an_actor_is_told_truthfully_or_not_at_all(cluster: Cluster, service: str) -> None:
    """Clusters that are too old for the policy have no stamp."""
    kind, name = "mutatingadmissionpolicybinding", "tailbound-requested-by"
    binding = json.loads(cluster.plane.kubectl("get", kind, name, "--output=json"))
    cluster.plane.kubectl("delete", kind, name)
    try:
        wait_for("no more stamps", lambda: not cluster.stamps(), WAIT_SECONDS)
        action = f"{PROMOTE_ANNOTATION}=churn-r2-b"
        answer = cluster.pipeline.annotate(service, action, f"{REQUESTED_BY_ANNOTATION}=admin")
        assert "requested-by is 'admin', which is not the user who acts: remove it" in answer
        assert "annotated" in cluster.pipeline.annotate(
            service, action, f"{REQUESTED_BY_ANNOTATION}=pipeline"
        )
        assert "not the user who acts" in cluster.editor.annotate(service, f"{PAUSE_ANNOTATION}=churn-r2-b")
    finally:
        fresh = {**binding, "metadata": {"name": name, "labels": binding["metadata"]["labels"]}}
        cluster.plane.kubectl("create", "--filename=-", input=json.dumps(fresh))
        wait_for("stamps again", cluster.stamps, WAIT_SECONDS)


def test_the_operator_writes_its_status(cluster: Cluster, service: str) -> None:
    version = cluster.operator.kubectl(
        "get", "inferenceservice", service, "--output=jsonpath={.metadata.resourceVersion}"
    )
    document = {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": service, "namespace": "risk", "resourceVersion": version},
        "status": {"observedGeneration": 1},
    }
    answer = cluster.operator.kubectl("replace", "--subresource=status", "--filename=-", document=document)
    assert "replaced" in answer


def test_scaling_needs_no_right_to_edit(cluster: Cluster, service: str) -> None:
    """Autoscalers have /scale and nothing else."""
    cluster.plane.kubectl(
        *("create", "role", "scaler", "--namespace=risk", "--verb=get,update,patch"),
        "--resource=inferenceservices.tailbound.dev/scale,inferenceservices.tailbound.dev",
    )
    cluster.plane.kubectl(
        "create", "rolebinding", "scaler", "--namespace=risk", "--role=scaler", "--user=scaler"
    )
    scaler = User("scaler", cluster.plane.kubeconfig_for("scaler"))
    assert "scaled" in scaler.kubectl("scale", "inferenceservice", service, "--replicas=3")


def test_an_older_cluster_gets_no_stamp_and_the_same_verbs() -> None:
    """Helm without a cluster knows of no kind that is not stable everywhere."""
    objects = template()
    assert of_kind(objects, "MutatingAdmissionPolicy") == []
    assert named(objects, "ValidatingAdmissionPolicy", "tailbound-actions")


def test_the_policy_can_be_left_out() -> None:
    objects = template("admission.enabled=false")
    assert [each for each in objects if "AdmissionPolicy" in each["kind"]] == []
    assert "tailbound-promoter" not in {each["metadata"]["name"] for each in objects}


SECRET = {"secretKeyRef": {"name": "hub", "key": "token"}}
WITH_SECRETS: dict[str, Any] = {
    "inferenceservice": {
        "kind": "InferenceService",
        "spec": {**SPEC, "env": [{"name": "A", "value": "b"}, {"name": "TOKEN", "valueFrom": SECRET}]},
    },
    "servingruntime": {
        "kind": "ServingRuntime",
        "spec": {
            "formats": [{"name": "onnx"}],
            "volumes": [{"name": "a", "secret": {"secretName": "hub"}}],
            "server": {"image": "server:1", "ports": [{"name": "http", "containerPort": 8000}]},
        },
    },
}


WITH_SECRETS["servingruntime with a sidecar"] = {
    "kind": "ServingRuntime",
    "spec": {
        **{name: part for name, part in WITH_SECRETS["servingruntime"]["spec"].items() if name != "volumes"},
        "initContainers": [
            {"name": "a", "image": "a:1", "env": [{"name": "A", "value": "b"}]},
            {"name": "b", "image": "a:1", "env": [{"name": "TOKEN", "valueFrom": SECRET}]},
        ],
    },
}


@pytest.mark.parametrize("case", WITH_SECRETS)
def test_only_who_may_read_secrets_puts_one_into_pods(cluster: Cluster, case: str) -> None:
    kind = case.partition(" ")[0]
    metadata = {"name": "secretive", "namespace": "risk"}
    document = {"apiVersion": "tailbound.dev/v1alpha1", "metadata": metadata, **WITH_SECRETS[case]}
    answer = cluster.editor.kubectl("create", "--filename=-", document=document)
    assert "puts Secret hub into pods" in answer
    assert "editor does not have it in namespace risk" in answer
    try:
        assert "created" in cluster.admin.kubectl("create", "--filename=-", document=document)
        noted = cluster.editor.kubectl("annotate", kind, "secretive", "example.com/note=x")
        assert "annotated" in noted, "what does not change the spec needs no right to Secrets"
    finally:
        cluster.admin.kubectl("delete", kind, "secretive")
