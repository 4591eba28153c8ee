"""From an InferenceService to its children and its status, and back after interference."""

from tailbound.kube.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, SERVICES

from tests.integration.controller.environment import Environment, is_ready, kubelet


async def test_service_becomes_ready_with_its_children(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        service = await environment.until_service("churn", is_ready, "Ready")
        assert len(await environment.children(CONTROLLER_REVISIONS, "churn")) == 1
        assert len(await environment.children(DEPLOYMENTS, "churn")) == 1
        assert len(await environment.children(SERVICES, "churn")) == 2
        assert service["status"]["observedGeneration"] == 1
