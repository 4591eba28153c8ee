"""Requests to a candidate before it takes over, through the real Envoy."""

import pytest
from tailbound.gateway import controller
from tailbound.gateway.resources import Bundle
from tailbound.gateway.routes import bundle_of
from tailbound.traffic.model import Route

from e2e.cluster.ports import free_port
from tests.integration.gateway.gateway_lab import Gateway, Pods, refused, until
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service
from tests.integration.gateway.test_gateway_counting import counted, ended, until_ended

HTTP, GRPC = free_port(), free_port()
PREVIEWED = {"promotion": "manual"}
NAMES = ("churn-preview.risk", "churn-preview.risk.svc", "CHURN-preview.risk.svc.cluster.local.:80")


async def offered(gateway: Gateway, pods: Pods, candidate: str | None, traffic_generation: int = 1) -> None:
    """risk/churn, whose stable revision has all requests, and this candidate beside it."""
    for number, revision in enumerate(("churn-r1", "churn-r2"), start=2):
        address = f"127.0.0.{number}"
        if traffic_generation == 1:
            await pods.http(revision, address, HTTP)
            await pods.grpc(revision, address, GRPC)
        ports = {"http": HTTP, "grpc": GRPC}
        gateway.cluster.put(endpoint_slice("risk", "churn", revision, [(address, "ready")], ports))
    service = dict(
        inference_service(
            "risk", "churn", {"churn-r1": 100}, traffic_generation=traffic_generation, rollout=PREVIEWED
        )
    )
    if candidate is not None:
        service["status"]["canary"] = {"revision": candidate}
    gateway.cluster.put(service)
    await gateway.until_applied("risk/churn", traffic_generation)


async def test_a_preview_is_answered_by_the_candidate_alone_and_counted_by_nobody(
    gateway: Gateway, pods: Pods
) -> None:
    await offered(gateway, pods, "churn-r2")
    before, lines = await counted(gateway), ended(gateway)
    for name in NAMES:
        status, body, _ = await gateway.call(name)
        assert (status, body["revision"]) == (200, "churn-r2"), name
    assert (await gateway.infer("churn.risk"))[1]["revision"] == "churn-r1"
    assert await gateway.say("churn-preview.risk") == b"churn-r2"
    await until_ended(gateway, lines + len(NAMES) + 2)
    assert dict(await counted(gateway) - before) == {("risk/churn", "churn-r1", "good"): 1}
    await a_service_that_is_called_like_a_preview_keeps_its_names(gateway, pods)


async def test_without_a_candidate_a_preview_says_so_and_names_of_other_services_are_theirs(
    gateway: Gateway, pods: Pods
) -> None:
    await offered(gateway, pods, None)
    for name in NAMES:
        status, body, _ = await gateway.call(name)
        assert status == 421, name
        assert "has no new revision now" in str(body)
    assert (await gateway.call("churn.risk"))[0] == 200
    await a_service_that_is_called_like_a_preview_keeps_its_names(gateway, pods)


async def a_service_that_is_called_like_a_preview_keeps_its_names(gateway: Gateway, pods: Pods) -> None:
    await pods.http("other-r1", "127.0.0.4", HTTP)
    gateway.cluster.put(
        inference_service("risk", "churn-preview", {"other-r1": 100}),
        endpoint_slice("risk", "churn-preview", "other-r1", [("127.0.0.4", "ready")], {"http": HTTP}),
    )
    await gateway.until_applied("risk/churn-preview", 1)
    for name in NAMES:
        assert (await gateway.call(name))[1]["revision"] == "other-r1", name


async def test_names_of_any_length_are_told_apart(gateway: Gateway, pods: Pods) -> None:
    await told_apart(gateway, pods, 29, 2)
    await told_apart(gateway, pods, 55, 4)


async def told_apart(gateway: Gateway, pods: Pods, length: int, first_host: int) -> None:
    """A service whose name has so many characters, and its preview, with pods at 127.0.0.`first_host`."""
    namespace, name = "n" * (length + 8), "s" * length
    revisions = [f"{name}-r1", f"{name}-r2"]
    for number, revision in enumerate(revisions, start=first_host):
        await pods.http(revision, f"127.0.0.{number}", HTTP)
        ready = [(f"127.0.0.{number}", "ready")]
        gateway.cluster.put(endpoint_slice(namespace, name, revision, ready, {"http": HTTP}))
    service = dict(inference_service(namespace, name, {revisions[0]: 100}, rollout=PREVIEWED))
    service["status"]["canary"] = {"revision": revisions[1]}
    gateway.cluster.put(service)
    await gateway.until_applied(f"{namespace}/{name}", 1)
    for host, revision in zip((name, f"{name}-preview"), revisions, strict=True):
        for form in (f"{host}.{namespace}", f"{host}.{namespace}.svc.cluster.local:8080"):
            status, body, _ = await gateway.call(form)
            assert (status, body["revision"]) == (200, revision), form
    assert (await gateway.observed(f"{namespace}/{name}"))["services"][f"{namespace}/{name}"]["counters"]


async def test_a_preview_that_envoy_refuses_is_answered_by_nobody(
    gateway: Gateway, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last good state knows no candidate, and the revision that serves is not what is asked for."""

    def poisoned(route: Route) -> Bundle:
        bundle = bundle_of(route)
        return bundle if route.preview is None or route.preview.backend is None else refused(bundle)

    monkeypatch.setattr(controller, "bundle_of", poisoned)
    await offered(gateway, pods, None)
    service = dict(inference_service("risk", "churn", {"churn-r1": 100}, traffic_generation=2))
    gateway.cluster.put(service)
    await gateway.until_applied("risk/churn", 2)
    previewed = {**service, "spec": {**service["spec"], "rollout": PREVIEWED}}
    previewed["metadata"] = {**service["metadata"], "generation": 2}
    previewed["status"] = {**service["status"], "canary": {"revision": "churn-r2"}}
    gateway.cluster.put(previewed)
    answers: set[int] = set()

    async def explained() -> bool:
        status, body, _ = await gateway.call(NAMES[0])
        answers.add(status)
        assert status != 200, body
        return "is refused, so that its new revision cannot be reached" in str(body)

    await until("the preview is explained", explained)
    assert answers <= {421, 503}
    for name in NAMES:
        assert (await gateway.call(name))[0] == 503, name
    assert (await gateway.call("churn.risk"))[1]["revision"] == "churn-r1"
