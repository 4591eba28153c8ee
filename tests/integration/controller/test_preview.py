"""The name of a preview on the real API server."""

from tailbound.api.names import SERVICE_LABEL
from tailbound.kube.resources import SERVICES

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import condition, is_ready, weights_of

MANUAL = {"promotion": "manual"}


async def test_a_preview_has_its_service_for_as_long_as_it_is_wanted(environment: Environment) -> None:
    async def gone() -> bool:
        return await environment.cluster.get(SERVICES, environment.namespace, "churn-preview") is None

    async with environment.running(), kubelet(environment):
        await environment.create("churn", rollout=MANUAL)
        await environment.until_service("churn", is_ready, "Ready")
        front, preview = [await environment.need(SERVICES, name) for name in ("churn", "churn-preview")]
        assert preview["spec"]["externalName"] == front["spec"]["externalName"]
        assert preview["metadata"]["ownerReferences"] == front["metadata"]["ownerReferences"]
        await environment.edit("churn", rollout={})
        await environment.until("the end of the preview", gone)


async def test_a_service_that_is_called_like_a_preview_is_left_alone(environment: Environment) -> None:
    """Whoever is called so comes first, and nothing but the name is withheld."""
    async with environment.running(), kubelet(environment):
        await environment.create("churn-preview")
        await environment.until_service("churn-preview", is_ready, "Ready")
        theirs = await environment.need(SERVICES, "churn-preview")
        await environment.create("churn", rollout=MANUAL)
        service = await environment.until_service(
            "churn",
            lambda it: condition(it, "Ready").get("reason") == "NameConflict" and it["status"].get("traffic"),
        )
        assert weights_of(service) == {"r1": 100}
        assert condition(service, "Stalled")["status"] == "True"
        assert "churn-preview" in condition(service, "Ready")["message"]
        kept = await environment.need(SERVICES, "churn-preview")
        assert kept["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
        assert kept["metadata"]["labels"][SERVICE_LABEL] == "churn-preview"
        await environment.edit("churn", rollout={})
        await environment.until_service("churn", is_ready, "Ready")
