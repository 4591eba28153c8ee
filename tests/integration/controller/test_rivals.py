"""What others do to a service and its children on the real API server."""

import json
from collections.abc import Iterable

from tailbound.api.names import REFRESH_ANNOTATION
from tailbound.kube.resources import (
    CLUSTER_SERVING_RUNTIMES,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INFERENCE_SERVICES,
    SERVICES,
)
from tailbound.objects.fields import Object

from tests.integration.controller.audit import settled, writes_since
from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import NEW_MODEL, condition, is_ready, service_body, weights_of

# Its short name may be another group's as well, as long as a test of the same API server defines one.
FULL_NAME = "inferenceservices.tailbound.dev"
OTHERS = [{"revision": f"churn-r{number}-aaaaaa", "weight": 100} for number in (8, 9)]


def took_over(service: Object, revision: str) -> bool:
    """Its rollout is over, so that nothing is left to be written."""
    return weights_of(service) == {revision: 100} and service["status"]["rollout"]["state"] == "Promoted"


async def test_a_status_that_another_manager_wrote_is_ours_after_one_write(environment: Environment) -> None:
    patch = json.dumps({"status": {"traffic": {"generation": 1, "backends": OTHERS}}})
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        offset = await settled(environment)
        environment.control_plane.kubectl(
            *("patch", FULL_NAME, "churn", "-n", environment.namespace, "--subresource=status"),
            *("--type=merge", "--field-manager=velero", "-p", patch),
        )
        await environment.until_service("churn", lambda it: weights_of(it) == {"r1": 100}, "our weights")
        await settled(environment)
        writes = writes_since(environment.control_plane.audit_log, offset)
        service = await environment.service("churn")
        assert is_ready(service)
        assert len(writes) <= 4, writes
        assert {write.split("/")[0] for write in writes} <= {"update inferenceservices", "create events"}


async def test_an_edited_budget_holds_up_no_rollout_and_is_named(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn", scaling={"min": 2}, rollout={"scaleDownDelay": "1s"})
        await environment.until_service("churn", is_ready, "Ready")
        (budget,) = await environment.children(DISRUPTION_BUDGETS, "churn")
        name = budget["metadata"]["name"]
        environment.control_plane.kubectl(
            *("patch", "pdb", name, "-n", environment.namespace, "--type=merge"),
            *("-p", '{"spec":{"maxUnavailable":null,"minAvailable":1}}'),
        )
        service = await environment.until_service(
            "churn", lambda it: condition(it, "Conflict").get("status") == "True", "the conflict"
        )
        assert name in condition(service, "Conflict")["message"]
        assert is_ready(service)
        await environment.edit("churn", model=NEW_MODEL)
        await environment.until_service(
            "churn", lambda it: is_ready(it) and weights_of(it) == {"r2": 100}, "the new revision"
        )
        await environment.until_service(
            "churn", lambda it: condition(it, "Conflict").get("status") == "False", "the end of the conflict"
        )


async def test_a_webhook_that_does_not_answer_is_named_and_its_end_is_enough(
    environment: Environment,
) -> None:
    namespace = environment.namespace
    hook = {
        "name": "unreachable.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments"]}
        ],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [hook],
    }
    kubectl = environment.control_plane.kubectl
    kubectl("create", "-f", "-", input=json.dumps(configuration))
    try:
        async with environment.running(), kubelet(environment):
            await environment.create("churn")
            service = await environment.until_service(
                "churn",
                lambda it: condition(it, "Ready").get("reason") == "WebhookUnavailable",
                "the webhook",
            )
            assert hook["name"] in condition(service, "Ready")["message"]
            assert "mend the webhook" in condition(service, "Ready")["message"]
            kubectl("delete", "validatingwebhookconfigurations", namespace)
            await environment.until_service("churn", is_ready, "Ready")
    finally:
        kubectl("delete", "validatingwebhookconfigurations", namespace, "--ignore-not-found")


async def test_a_replace_without_annotations_undoes_no_refresh(environment: Environment) -> None:
    def changed(runtime: Object) -> Object:
        server = {**runtime["spec"]["server"], "image": "runtime:refreshed"}
        return {**runtime, "spec": {**runtime["spec"], "server": server}}

    def refreshed(service: Object) -> Object:
        annotations = {**service["metadata"].get("annotations", {}), REFRESH_ANNOTATION: "1"}
        return {**service, "metadata": {**service["metadata"], "annotations": annotations}}

    async with environment.running(), kubelet(environment):
        await environment.create("churn", rollout={"scaleDownDelay": "1s"})
        await environment.until_service("churn", is_ready, "Ready")
        runtime = await environment.cluster.get(CLUSTER_SERVING_RUNTIMES, None, "onnxruntime")
        assert runtime is not None
        await environment.cluster.replace(CLUSTER_SERVING_RUNTIMES, changed(runtime))
        try:
            await environment.replace(INFERENCE_SERVICES, "churn", refreshed)
            await environment.until_service(
                "churn", lambda it: is_ready(it) and took_over(it, "r2"), "the refreshed revision"
            )
            offset = await settled(environment)
            body = service_body(environment.namespace, "churn", rollout={"scaleDownDelay": "1s"})
            environment.control_plane.kubectl("replace", "-f", "-", input=json.dumps(body))
            service = await environment.service("churn")
            assert REFRESH_ANNOTATION not in service["metadata"].get("annotations", {})
            await settled(environment)
            assert writes_since(environment.control_plane.audit_log, offset) == []
            assert weights_of(await environment.service("churn")) == {"r2": 100}
        finally:
            current = await environment.cluster.get(CLUSTER_SERVING_RUNTIMES, None, "onnxruntime")
            assert current is not None
            await environment.cluster.replace(CLUSTER_SERVING_RUNTIMES, {**current, "spec": runtime["spec"]})


def identities(objects: Iterable[Object]) -> set[tuple[str, int | None]]:
    """UIDs with the generation, which changes with a Deployment's template, and with it the pods."""
    return {(each["metadata"]["uid"], each["metadata"].get("generation")) for each in objects}


async def test_an_orphaned_service_is_adopted_by_its_successor(environment: Environment) -> None:
    """The garbage collector, which this control plane lacks, takes the owner references away."""
    kinds = (CONTROLLER_REVISIONS, DEPLOYMENTS, SERVICES)
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        before = [each for kind in kinds for each in await environment.children(kind, "churn")]
    environment.control_plane.kubectl(
        "delete", FULL_NAME, "churn", "-n", environment.namespace, "--cascade=orphan", "--wait=false"
    )
    for kind in kinds:
        for each in await environment.children(kind, "churn"):
            environment.control_plane.kubectl(
                *("patch", kind.plural, each["metadata"]["name"], "-n", environment.namespace),
                *("--type=json", "-p", '[{"op": "remove", "path": "/metadata/ownerReferences"}]'),
            )
    orphan = await environment.service("churn")
    await environment.replace(
        INFERENCE_SERVICES, "churn", lambda it: {**it, "metadata": {**it["metadata"], "finalizers": []}}
    )
    async with environment.running(), kubelet(environment):
        created = await environment.create("churn")
        assert created["metadata"]["uid"] != orphan["metadata"]["uid"]
        service = await environment.until_service("churn", is_ready, "Ready")
        assert weights_of(service) == {"r1": 100}
        after = [each for kind in kinds for each in await environment.children(kind, "churn")]
    assert identities(after) == identities(before)
    owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in after}
    assert owners == {created["metadata"]["uid"]}
