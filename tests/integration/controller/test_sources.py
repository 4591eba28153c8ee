"""A model without a digest, against a real API server: the Job, its result, and its end."""

from tailbound.api.runtime_contract import Resolution
from tailbound.kube.resources import CONTROLLER_REVISIONS, JOBS, PODS
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import MODEL, condition, is_ready

DIGEST = "c" * 64


async def test_a_job_finds_the_digest_of_a_model_and_goes(environment: Environment) -> None:
    unpinned = {name: value for name, value in MODEL.items() if name != "sha256"}
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
    said = Resolution(reason="Fetched", message="fetched", sha256=DIGEST, size_bytes=7).model_dump_json()
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
