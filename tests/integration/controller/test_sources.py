"""A model without a digest, against a real API server: the Job, its result, and its end."""

from typing import Any

from tailbound.api.runtime_contract import Resolution, TerminationReason
from tailbound.kube.resources import CLAIMS, CONTROLLER_REVISIONS, JOBS, PODS
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import MODEL, condition, is_ready

DIGEST = "c" * 64


async def test_a_job_finds_the_digest_of_a_model_and_leaves_its_claim(environment: Environment) -> None:
    unpinned: dict[str, Any] = {name: value for name, value in MODEL.items() if name != "sha256"}
    unpinned["cache"] = {"storageClassName": "shared", "size": "1Gi"}
    async with environment.running(), kubelet(environment):
        await environment.create("churn", model=unpinned)

        async def job() -> Object | None:
            return next(iter(await environment.children(JOBS, "churn")), None)

        made = await environment.until("the Job", job)

        def fetching(service: Object) -> bool:
            return condition(service, "ModelVerified").get("reason") == "Fetching"

        await environment.until_service("churn", fetching, "ModelVerified with reason Fetching")
        assert await environment.children(CONTROLLER_REVISIONS, "churn") == ()
        await _pod_finds(environment, made)
        await environment.until_service("churn", is_ready, "Ready")
        (revision,) = await environment.children(CONTROLLER_REVISIONS, "churn")
        assert DIGEST in revision["data"]["template"]

        async def none_left() -> bool:
            return not await environment.children(JOBS, "churn")

        await environment.until("the end of the Job", none_left)
        (claim,) = (await environment.cluster.list(CLAIMS, environment.namespace)).items
        owners = [(owner["kind"], owner["uid"]) for owner in claim["metadata"]["ownerReferences"]]
        assert owners == [
            ("Job", made["metadata"]["uid"]),
            ("ControllerRevision", revision["metadata"]["uid"]),
        ]
        assert claim["metadata"]["name"] in revision["data"]["template"]
        await environment.create("pinned", model={**unpinned, "sha256": DIGEST})
        await environment.until_service("pinned", is_ready, "Ready")
        (shared,) = (await environment.cluster.list(CLAIMS, environment.namespace)).items
        (pinned,) = await environment.children(CONTROLLER_REVISIONS, "pinned")
        assert pinned["metadata"]["uid"] in [each["uid"] for each in shared["metadata"]["ownerReferences"]]


async def test_services_with_the_same_model_share_a_claim_that_no_race_takes_from_either(
    environment: Environment,
) -> None:
    model = {**MODEL, "cache": {"storageClassName": "shared", "size": "1Gi"}}
    names = ("churn", "fraud", "risk")
    async with environment.running(), kubelet(environment):
        for name in names:
            await environment.create(name, model=model)
        for name in names:
            await environment.until_service(name, is_ready, "Ready")
        (claim,) = (await environment.cluster.list(CLAIMS, environment.namespace)).items
        revisions = [
            revision for name in names for revision in await environment.children(CONTROLLER_REVISIONS, name)
        ]
        assert {owner["uid"] for owner in claim["metadata"]["ownerReferences"]} == {
            revision["metadata"]["uid"] for revision in revisions
        }
        assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}

        async def made_again() -> Object | None:
            found = (await environment.cluster.list(CLAIMS, environment.namespace)).items
            owners = found[0]["metadata"]["ownerReferences"] if found else ()
            return found[0] if len(owners) == len(names) else None

        await environment.remove(CLAIMS, claim["metadata"]["name"])
        for name in names:
            assert is_ready(await environment.service(name))
        await environment.replace(CLAIMS, claim["metadata"]["name"], _without_finalizers)
        again = await environment.until("the claim of all services", made_again)
        assert again["metadata"]["uid"] != claim["metadata"]["uid"]


def _without_finalizers(claim: Object) -> Object:
    """What the control plane makes of a claim that is deleted, once no pod mounts it."""
    return {**claim, "metadata": {**claim["metadata"], "finalizers": []}}


async def _pod_finds(environment: Environment, job: Object) -> None:
    """What the Job controller and the kubelet do."""
    template, meta = job["spec"]["template"], job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    pod = await environment.cluster.insert(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": meta["namespace"],
                "name": f"{meta['name']}-x",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        },
    )
    said = Resolution(TerminationReason.FETCHED, "fetched", sha256=DIGEST, size_bytes=7).written()
    ended = {"terminated": {"exitCode": 0, "message": said}}
    container = {
        "name": "fetch",
        "ready": False,
        "restartCount": 0,
        "image": "i",
        "imageID": "i",
        "state": ended,
    }
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    await environment.cluster.replace_status(PODS, {**pod, "status": status})
