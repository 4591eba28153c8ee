"""An InferenceService gets its children and its status, and gets them back after interference."""

import asyncio
import json
from typing import Any

from tailbound.api.names import SERVICE_LABEL
from tailbound.kube.resources import (
    CLUSTER_SERVING_RUNTIMES,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    INFERENCE_SERVICES,
    SERVICES,
    SERVING_RUNTIMES,
    Resource,
)
from tailbound.objects.fields import Object

from tests.integration.controller.audit import settled, writes_since
from tests.integration.controller.environment import Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import condition, is_ready, service_body

CHILDREN = (CONTROLLER_REVISIONS, DEPLOYMENTS, SERVICES, DISRUPTION_BUDGETS)


def backends(service: Object) -> dict[str, int]:
    traffic = (service.get("status") or {}).get("traffic") or {}
    return {each["revision"]: each["weight"] for each in traffic.get("backends") or ()}


async def uids(environment: Environment, name: str) -> dict[str, str]:
    return {
        f"{resource.kind}/{child['metadata']['name']}": child["metadata"]["uid"]
        for resource in CHILDREN
        for child in await environment.children(resource, name)
    }


async def test_service_becomes_ready_with_children_that_it_owns(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        created = await environment.create("churn", scaling={"min": 2})
        service = await environment.until_service("churn", is_ready, "Ready")
        found = {resource.kind: await environment.children(resource, "churn") for resource in CHILDREN}
    assert {kind: len(children) for kind, children in found.items()} == {
        "ControllerRevision": 1,
        "Deployment": 1,
        "Service": 2,
        "PodDisruptionBudget": 1,
    }
    owners = {
        child["metadata"]["ownerReferences"][0]["uid"] for children in found.values() for child in children
    }
    assert owners == {created["metadata"]["uid"]}
    assert not any(child["metadata"].get("finalizers") for children in found.values() for child in children)
    assert list(backends(service).values()) == [100]
    assert condition(service, "TrafficApplied")["status"] == "True"


async def test_edit_rolls_over_and_the_old_revision_goes_after_the_acknowledgement(
    environment: Environment,
) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn", rollout={"scaleDownDelay": "1s"})
        old = backends(await environment.until_service("churn", is_ready, "Ready"))
        for gateway in environment.gateways:
            gateway.acknowledges = False
        await environment.edit("churn", env=[{"name": "LEVEL", "value": "2"}])
        await environment.until_service(
            "churn", lambda service: backends(service) and backends(service) != old, "the new weight"
        )
        assert len(await environment.children(DEPLOYMENTS, "churn")) == 2
        environment.gateways[0].acknowledges = True
        reads = environment.gateways[0].reads

        async def read_again() -> bool:
            return environment.gateways[0].reads > reads + 3

        await environment.until("several reads of the gateways", read_again)
        assert len(await environment.children(DEPLOYMENTS, "churn")) == 2
        environment.gateways[1].acknowledges = True
        await environment.until_service("churn", is_ready, "Ready again")

        async def one_left() -> bool:
            return len(await environment.children(DEPLOYMENTS, "churn")) == 1

        await environment.until("the end of the old revision", one_left)
        assert len(await environment.children(CONTROLLER_REVISIONS, "churn")) == 2


async def test_children_deleted_by_hand_come_back_and_a_label_taken_off_too(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn", scaling={"min": 2})
        await environment.until_service("churn", is_ready, "Ready")
        for resource in (DEPLOYMENTS, SERVICES, DISRUPTION_BUDGETS):
            await _comes_back(environment, resource)
        await environment.until_service("churn", is_ready, "Ready again")
        await _label_comes_back(environment)


async def _comes_back(environment: Environment, resource: Resource) -> None:
    before = await uids(environment, "churn")
    victim = (await environment.children(resource, "churn"))[0]["metadata"]
    await environment.remove(resource, victim["name"])

    async def back() -> bool:
        now = await uids(environment, "churn")
        return now.keys() == before.keys() and now != before

    await environment.until(f"the return of the {resource.kind}", back)
    after = await uids(environment, "churn")
    assert {key for key in before if before[key] != after[key]} == {f"{resource.kind}/{victim['name']}"}


async def _label_comes_back(environment: Environment) -> None:
    meta = (await environment.children(DEPLOYMENTS, "churn"))[0]["metadata"]

    def without_label(deployment: Object) -> Object:
        found = deployment["metadata"]
        labels = {key: value for key, value in found["labels"].items() if key != SERVICE_LABEL}
        return {**deployment, "metadata": {**found, "labels": labels}}

    await environment.replace(DEPLOYMENTS, meta["name"], without_label)

    async def labelled() -> bool:
        children = await environment.children(DEPLOYMENTS, "churn")
        return [child["metadata"]["uid"] for child in children] == [meta["uid"]]

    await environment.until("the label", labelled)


async def test_foreign_labels_annotations_and_a_restart_annotation_stay(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        name = (await environment.children(DEPLOYMENTS, "churn"))[0]["metadata"]["name"]
        where = ("-n", environment.namespace)
        environment.control_plane.kubectl("label", "deployment", name, "team=risk", *where)
        environment.control_plane.kubectl("annotate", "deployment", name, "note=mine", *where)
        environment.control_plane.kubectl("rollout", "restart", f"deployment/{name}", *where)
        await environment.edit("churn", scaling={"min": 3})

        async def scaled() -> Object | None:
            found = await environment.cluster.get(DEPLOYMENTS, environment.namespace, name)
            return found if found is not None and found["spec"]["replicas"] == 3 else None

        deployment = await environment.until("three replicas", scaled)
        assert deployment["metadata"]["labels"]["team"] == "risk"
        assert deployment["metadata"]["annotations"]["note"] == "mine"
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        assert "kubectl.kubernetes.io/restartedAt" in annotations


FOREIGN: dict[str, dict[str, Any]] = {
    "churn": {"ports": [{"port": 80}], "selector": {"app": "somebody"}},
    "fraud": {"type": "ExternalName", "externalName": "elsewhere.example.com"},
}
"""Specs of Services that somebody else has made, by name."""


async def test_foreign_services_of_the_same_names_are_untouched_and_named(environment: Environment) -> None:
    foreign = {}
    for name, spec in FOREIGN.items():
        body = {"apiVersion": "v1", "kind": "Service", "spec": spec}
        metadata = {"namespace": environment.namespace, "name": name}
        foreign[name] = await environment.cluster.insert(SERVICES, {**body, "metadata": metadata})
    async with environment.running(), kubelet(environment):
        for name, theirs in foreign.items():
            await environment.create(name)
            service = await environment.until_service(
                name, lambda each: condition(each, "Stalled").get("status") == "True", "Stalled"
            )
            stalled = condition(service, "Stalled")
            assert stalled["reason"] == "NameConflict"
            assert f"Service {name}" in stalled["message"]
            assert condition(service, "Ready")["status"] != "True"
            assert await environment.cluster.get(SERVICES, environment.namespace, name) == theirs
            # It heals by itself once the name is free.
            await environment.remove(SERVICES, name)
            await environment.until_service(name, is_ready, "Ready")


async def test_deleted_service_is_forgotten_and_its_neighbour_serves_on(environment: Environment) -> None:
    async with environment.running() as operator, kubelet(environment):
        for name in ("churn", "fraud"):
            await environment.create(name)
        for name in ("churn", "fraud"):
            await environment.until_service(name, is_ready, "Ready")
        await environment.remove(INFERENCE_SERVICES, "churn")

        async def forgotten() -> bool:
            return operator.stores.service((environment.namespace, "churn")) is None

        await environment.until("the end of churn", forgotten)
        assert is_ready(await environment.service("fraud"))


async def test_invalid_object_from_before_a_rule_says_so_and_disturbs_nobody(
    environment: Environment,
) -> None:
    stored = service_body(environment.namespace, "old")
    stored["spec"]["model"]["sha256"] = "not a digest"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
    crd = "crd/inferenceservices.tailbound.dev"
    original = json.loads(environment.control_plane.kubectl("get", crd, "-o", "json"))
    del original["metadata"]["resourceVersion"]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    loose = json.dumps([{"op": "replace", "path": path, "value": anything}])
    environment.control_plane.kubectl("patch", crd, "--type=json", "-p", loose)
    try:

        async def stored_at_last() -> bool:
            try:
                await environment.cluster.insert(INFERENCE_SERVICES, stored)
            except Exception:
                return False
            return True

        await environment.until("the loose schema", stored_at_last)
    finally:
        environment.control_plane.kubectl("replace", "-f", "-", input=json.dumps(original))
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        service = await environment.until_service(
            "old", lambda each: condition(each, "Ready").get("reason") == "InvalidSpec", "InvalidSpec"
        )
        assert "sha256" in condition(service, "Ready")["message"]
        assert "not a digest" in condition(service, "Ready")["message"]
        assert condition(service, "Stalled")["reason"] == "InvalidSpec"
        assert not await environment.children(DEPLOYMENTS, "old")
        await environment.remove(INFERENCE_SERVICES, "old")
        assert await environment.cluster.get(INFERENCE_SERVICES, environment.namespace, "old") is None


async def test_one_event_per_transition(environment: Environment) -> None:
    async with environment.running(), kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")

        async def reasons() -> list[str]:
            listing = await environment.cluster.list(EVENTS, environment.namespace)
            events = [event for event in listing.items if event["involvedObject"]["name"] == "churn"]
            assert all(event["lastTimestamp"] for event in events), "kubectl describe sorts by it"
            return sorted(event["reason"] for event in events)

        async def serving() -> bool:
            return "Serving" in await reasons()

        await environment.until("the Serving Event", serving)
        found = await reasons()
        assert len(found) == len(set(found)), found


async def test_edit_while_the_operator_is_down_is_taken_up(environment: Environment) -> None:
    async with kubelet(environment):
        async with environment.running():
            await environment.create("churn")
            old = backends(await environment.until_service("churn", is_ready, "Ready"))
        await environment.edit("churn", env=[{"name": "LEVEL", "value": "2"}])
        async with environment.running():
            service = await environment.until_service("churn", is_ready, "Ready with the edit")
            assert backends(service).keys() != old.keys()


async def test_deletion_that_no_watch_told_is_found_by_the_next_list(environment: Environment) -> None:
    async with environment.running() as operator, kubelet(environment):
        await environment.create("churn")
        await environment.until_service("churn", is_ready, "Ready")
        store = operator.stores.of[SERVING_RUNTIMES]
        ghost = {
            "apiVersion": SERVING_RUNTIMES.api_version,
            "kind": SERVING_RUNTIMES.kind,
            "metadata": {
                "namespace": environment.namespace,
                "name": "ghost",
                "uid": "ghost",
                "resourceVersion": "1",
            },
        }
        store.upsert(ghost)
        await operator.resync.once()
        assert store.get(environment.namespace, "ghost") is None


async def test_nothing_is_written_while_nothing_changes_nor_by_a_restart(environment: Environment) -> None:
    async with kubelet(environment):
        async with environment.running():
            for index in range(5):
                await environment.create(f"churn-{index}", scaling={"min": 2})
            for index in range(5):
                await environment.until_service(f"churn-{index}", is_ready, "Ready")
            idle_from = await settled(environment)
            reads = [gateway.reads for gateway in environment.gateways]
            await asyncio.sleep(3)
            assert writes_since(environment.control_plane.audit_log, idle_from) == []
            assert [gateway.reads for gateway in environment.gateways] == reads, (
                "gateways are not read either"
            )
        restart_from = environment.control_plane.audit_log.stat().st_size
        async with environment.running() as operator:

            async def has_decided() -> bool:
                reconciled = operator.metrics.registry.get_sample_value(
                    "tailbound_operator_reconcile_seconds_count", {"outcome": "unchanged"}
                )
                return (reconciled or 0) >= 5

            await environment.until("five decisions", has_decided)
            await asyncio.sleep(1)
        assert writes_since(environment.control_plane.audit_log, restart_from) == []


async def test_default_objects_are_created_and_an_edited_one_is_left_alone(environment: Environment) -> None:
    name = f"default-{environment.namespace}"
    default = {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": name},
        "spec": {
            "formats": [{"name": name}],
            "server": {
                "image": "runtime:1",
                "ports": [{"name": "http", "containerPort": 8080}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
            },
        },
    }
    newer = {**default, "spec": {**default["spec"], "priority": 7}}  # type: ignore[dict-item]

    async def runtime() -> Object | None:
        return await environment.cluster.get(CLUSTER_SERVING_RUNTIMES, None, name)

    async def with_priority() -> bool:
        found = await runtime()
        return found is not None and found["spec"].get("priority") == 7

    async with environment.running(environment.operator(defaults=(default,))):
        await environment.until("the default", runtime)
    async with environment.running(environment.operator(defaults=(newer,))):
        await environment.until("the update", with_priority)
    environment.control_plane.kubectl(
        "patch", "clusterservingruntime", name, "--type=merge", "-p", '{"spec":{"server":{"image":"mine"}}}'
    )
    edited = await runtime()
    async with environment.running(environment.operator(defaults=(default,))) as operator:
        await environment.until_leading(operator)
        await environment.create("churn")
        await environment.until_service("churn", lambda each: each.get("status"), "a status")
    assert await runtime() == edited
