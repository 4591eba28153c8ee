"""A class with a resourceClaim against a real API server: what it accepts, and what it says of bad CEL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailbound.api.names import API_VERSION
from tailbound.kube.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    HARDWARE_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
)
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import condition, is_ready

LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'


@asynccontextmanager
async def existing(environment: Environment, resource: Any, name: str, spec: Object) -> AsyncIterator[None]:
    """A cluster-wide object for the time of a test."""
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    await environment.cluster.insert(resource, body)
    try:
        yield
    finally:
        meta = (await environment.cluster.get(resource, None, name) or {})["metadata"]
        await environment.cluster.delete(resource, None, name, meta["uid"], meta["resourceVersion"])


def claiming(name: str, *selectors: str) -> Object:
    request = {"name": "gpu", "deviceClass": name, "count": 2, "selectors": list(selectors)}
    return {"resourceClaim": {"requests": [request]}}


async def test_a_claim_template_is_made_and_nothing_is_written_twice(environment: Environment) -> None:
    name = f"claims-{environment.namespace}"
    async with (
        existing(environment, DEVICE_CLASSES, name, {}),
        existing(environment, HARDWARE_CLASSES, name, claiming(name, LARGE)),
        environment.running(),
        kubelet(environment),
    ):
        await environment.create("churn", hardware={"class": [name]})
        await environment.until_service("churn", is_ready, "Ready")
        (claim,) = await environment.children(RESOURCE_CLAIM_TEMPLATES, "churn")
        (deployment,) = await environment.children(DEPLOYMENTS, "churn")
        pod = deployment["spec"]["template"]["spec"]
        (used,) = pod["resourceClaims"]
        assert used["resourceClaimTemplateName"] == claim["metadata"]["name"]
        assert pod["containers"][0]["resources"]["claims"] == [{"name": used["name"]}]
        await environment.edit("churn", scaling={"min": 2, "max": 2})
        await environment.until_service("churn", is_ready, "Ready with two pods")
        (again,) = await environment.children(RESOURCE_CLAIM_TEMPLATES, "churn")
        assert again["metadata"]["resourceVersion"] == claim["metadata"]["resourceVersion"]


async def test_what_cannot_be_claimed_is_named_before_there_is_a_pod(environment: Environment) -> None:
    name = f"claims-{environment.namespace}"

    def stalled(reason: str, says: str) -> Any:
        def holds(service: Object) -> bool:
            found = condition(service, "Stalled")
            return found.get("reason") == reason and says in found["message"]

        return holds

    async with (
        existing(environment, HARDWARE_CLASSES, name, claiming(name, "device.driver ==")),
        environment.running(),
        kubelet(environment),
    ):
        await environment.create("churn", hardware={"class": [name]})
        await environment.until_service(
            "churn", stalled("DeviceClassNotFound", f"DeviceClass {name}"), "DeviceClassNotFound"
        )
        async with existing(environment, DEVICE_CLASSES, name, {}):
            refused = stalled("ResourceClaimRefused", f"spec.resourceClaim of HardwareClass {name}")
            service = await environment.until_service("churn", refused, "ResourceClaimRefused")
            assert "Syntax error" in condition(service, "Stalled")["message"]
            assert await environment.children(CONTROLLER_REVISIONS, "churn") == ()
            await mended(environment, name)
            await environment.until_service("churn", is_ready, "Ready")


async def mended(environment: Environment, name: str) -> None:
    """The class has CEL that can be compiled."""
    stored = await environment.cluster.get(HARDWARE_CLASSES, None, name) or {}
    assert stored["apiVersion"] == API_VERSION
    await environment.cluster.replace(HARDWARE_CLASSES, {**stored, "spec": claiming(name, LARGE)})
