"""Stored objects: defaults, columns, subresources, canonical quantities, and objects older than a rule."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.quantities import Quantity
from tailbound.api.schema import VALIDATIONS

from e2e.cluster import ControlPlane
from e2e.cluster.processes import wait_for
from tests.api_cases.objects import CLUSTER_RUNTIME, HARDWARE_CLASS, RUNTIME, SERVICE, changed
from tests.integration.api.conftest import OLD_KIND, OLD_PLURAL, Api, all_crds, path_of

Create = Callable[[Mapping[str, Any]], Any]
OLD_GROUP = "older.tailbound.test"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
READY = {
    "type": "Ready",
    "status": "False",
    "reason": "Starting",
    "message": "0 of 2 pods are ready",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
STATUS = {
    "observedGeneration": 1,
    "url": "http://churn.default.svc.cluster.local",
    "traffic": {"generation": 1, "backends": [{"revision": "churn-r1-4k2p", "weight": 100}]},
    "stable": {"revision": "churn-r1-4k2p", "replicas": 2, "ready": 0, "weight": 95},
    "canary": {"revision": "churn-r2-9xq1", "replicas": 1, "ready": 1, "weight": 5},
    "rollout": {"state": "Analysing", "revision": "churn-r2-9xq1", "weight": 5},
    "hardware": {"costPerHour": "2.5"},
    "servingPods": "1/3",
    "replicas": 2,
    "selector": "tailbound.dev/service=churn",
    "conditions": [READY],
}


def test_defaults_of_a_service_are_stored(create: Create) -> None:
    assert create(SERVICE)["spec"] == {
        **SERVICE["spec"],
        "resources": {"cpu": "1", "memory": "2Gi"},
        "batching": {"mode": "none"},
        "scaling": {"min": 1, "mode": "auto", "replicas": 1},
        "rollout": {
            "strategy": "blueGreen",
            "capacity": "surge",
            "promotion": "automatic",
            "onInconclusive": "pause",
            "minStepTime": "30s",
            "maxStepTime": "30m",
            "progressDeadline": "10m",
            "restartLimit": 3,
            "signature": "any",
            "scaleDownDelay": "30s",
            "historyLimit": 10,
            "analysis": {
                "source": "gateway",
                "policy": "both",
                "warmupRequests": 10,
                "minErrorRate": "1%",
                "dataTimeout": "1m",
            },
        },
        "overload": "queue",
        "stopped": False,
    }


def test_defaults_fill_in_beside_what_is_given(create: Create) -> None:
    stored = create(changed(SERVICE, "spec.resources", {"cpu": 2}))
    assert stored["spec"]["resources"] == {"cpu": 2, "memory": "2Gi"}


def test_defaults_of_a_runtime_are_stored(create: Create) -> None:
    stored = create(changed(RUNTIME, "spec.server.readinessProbe", {"httpGet": {"port": "http"}}))
    assert stored["spec"] == {
        "formats": [{"name": "onnx"}],
        "priority": 0,
        "drain": {"mode": "server", "time": "10s"},
        "sheds": False,
        "protocols": ["oip-rest", "oip-grpc"],
        "server": {
            "image": "server:1",
            "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {
                "httpGet": {"port": "http", "path": "/"},
                "periodSeconds": 10,
                "timeoutSeconds": 1,
                "failureThreshold": 3,
                "successThreshold": 1,
            },
        },
    }


def test_a_hardware_class_is_stored_as_written(create: Create) -> None:
    assert create(HARDWARE_CLASS)["spec"] == HARDWARE_CLASS["spec"]


def test_a_stored_service_equals_the_one_that_was_written(create: Create) -> None:
    stored = parse(InferenceService, create(SERVICE))
    written = parse(InferenceService, SERVICE)
    assert isinstance(stored, InferenceService)
    assert isinstance(written, InferenceService)
    assert stored.spec == written.spec


def table(api: Api, obj: Mapping[str, Any]) -> dict[str, Any]:
    body = api.request("GET", path_of(obj), accept=TABLE).body
    names = [column["name"] for column in body["columnDefinitions"]]
    return dict(zip(names, body["rows"][0]["cells"], strict=True))


def test_columns_of_a_service(api: Api, create: Create) -> None:
    create(changed(SERVICE, "spec.sla", {"latency": {"p99": "100ms"}}))
    assert api.patch(SERVICE, {"status": STATUS}, "/status").code == 200
    row = table(api, SERVICE)
    assert row.pop("Age")
    assert row == {
        "Name": "churn",
        "Ready": "False",
        "Reason": "Starting",
        "URL": "http://churn.default.svc.cluster.local",
        "P99": "100ms",
        "Replicas": "1/3",
        "Runtime": None,
        "Rollout": "Analysing",
        "Revision": "churn-r1-4k2p",
        "Canary": "churn-r2-9xq1",
        "Weight": 5,
        "Cost": "2.5",
        "Message": "0 of 2 pods are ready",
    }


def test_columns_of_a_service_without_status_are_empty(api: Api, create: Create) -> None:
    create(SERVICE)
    row = table(api, SERVICE)
    assert {name for name, cell in row.items() if cell is not None} == {"Name", "Age"}


def test_columns_of_a_hardware_class(api: Api, create: Create) -> None:
    annotations = {"tailbound.dev/is-default-class": "true"}
    priced = changed(HARDWARE_CLASS, "spec.price", {"perHour": "1.25"})
    create(changed(priced, "metadata.annotations", annotations))
    status = {"nodes": 3, "devices": 12, "free": 5, "services": 2, "waiting": 1}
    assert api.patch(HARDWARE_CLASS, {"status": status}, "/status").code == 200
    row = table(api, HARDWARE_CLASS)
    assert row.pop("Age")
    assert row == {
        "Name": "gpu-l4",
        "Default": "true",
        "Device": "nvidia.com/gpu",
        "Count": 1,
        "Nodes": 3,
        "Devices": 12,
        "Free": 5,
        "Used By": 2,
        "Waiting": 1,
        "Price": "1.25",
    }


@pytest.mark.parametrize("runtime", [RUNTIME, CLUSTER_RUNTIME], ids=lambda runtime: runtime["kind"])
def test_columns_of_a_runtime(api: Api, create: Create, runtime: dict[str, Any]) -> None:
    create(runtime)
    row = table(api, runtime)
    assert row.pop("Age")
    assert row == {"Name": "onnx", "Format": "onnx", "Priority": 0, "Image": "server:1"}


def test_kubectl_shows_a_service_by_short_name_and_by_category(
    api: Api, create: Create, control_plane: ControlPlane
) -> None:
    create(changed(SERVICE, "spec.sla", {"latency": {"p99": "100ms"}}))
    assert api.patch(SERVICE, {"status": STATUS}, "/status").code == 200
    header, row = control_plane.kubectl("get", "infs", "-n", "default").splitlines()
    assert header.split() == ["NAME", "READY", "REASON", "URL", "P99", "REPLICAS", "ROLLOUT", "AGE"]
    assert row.split()[:6] == ["churn", "False", "Starting", STATUS["url"], "100ms", "1/3"]
    names = control_plane.kubectl("get", "tailbound", "-n", "default", "-o", "name").split()
    assert "inferenceservice.tailbound.dev/churn" in names


def test_kubectl_explains_a_field(api: Api, control_plane: ControlPlane) -> None:
    text = control_plane.kubectl("explain", "infs.spec.model.sha256")
    assert "Every pod verifies it" in " ".join(text.split())


def test_kinds_are_found_by_short_name_and_category(api: Api) -> None:
    resources = api.request("GET", "/apis/tailbound.dev/v1alpha1").body["resources"]
    found = {
        each["kind"]: (each["shortNames"], each["categories"])
        for each in resources
        if "/" not in each["name"]
    }
    assert found == {
        "InferenceService": (["infs"], ["tailbound"]),
        "HardwareClass": (["hwc"], ["tailbound"]),
        "HostGrant": (["hgr"], ["tailbound"]),
        "ServingRuntime": (["srt"], ["tailbound"]),
        "ClusterServingRuntime": (["csrt"], ["tailbound"]),
    }


def test_scale_reads_and_writes_the_replica_count(api: Api, create: Create) -> None:
    create(SERVICE)
    assert api.patch(SERVICE, {"status": STATUS}, "/status").code == 200
    scale = api.request("GET", f"{path_of(SERVICE)}/scale").body
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 1},
        {"replicas": 2, "selector": "tailbound.dev/service=churn"},
    )
    assert api.patch(SERVICE, {"spec": {"replicas": 3}}, "/scale").code == 200
    assert api.request("GET", path_of(SERVICE)).body["spec"]["scaling"]["replicas"] == 3


def test_scale_to_zero_is_refused_with_the_way_to_stop(api: Api, create: Create) -> None:
    create(SERVICE)
    answer = api.patch(SERVICE, {"spec": {"replicas": 0}}, "/scale")
    assert answer.code == 422
    assert "to stop the service, set spec.stopped to true" in answer.body["message"]


def test_status_is_written_apart_from_the_spec(api: Api, create: Create) -> None:
    generation = create({**SERVICE, "status": STATUS})["metadata"]["generation"]
    assert "status" not in api.request("GET", path_of(SERVICE)).body
    both = {"status": STATUS, "spec": {"stopped": True}}
    stored = api.patch(SERVICE, both, "/status").body
    assert (stored["status"], stored["spec"]["stopped"]) == (STATUS, False)
    assert stored["metadata"]["generation"] == generation
    stored = api.patch(SERVICE, {"status": {"url": "x"}, "spec": {"stopped": True}}).body
    assert (stored["status"], stored["spec"]["stopped"]) == (STATUS, True)
    assert stored["metadata"]["generation"] == generation + 1


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"traffic": {"generation": 0}}, "status.traffic.generation"),
        (
            {"traffic": {"generation": 1, "backends": [{"revision": "a", "weight": 101}]}},
            "status.traffic.backends[0].weight",
        ),
        ({"conditions": [{**READY, "status": "Maybe"}]}, "status.conditions[0].status"),
        ({"conditions": [READY, READY]}, "status.conditions[1]"),
    ],
)
def test_wrong_status_is_refused(api: Api, create: Create, status: dict[str, Any], field: str) -> None:
    create(SERVICE)
    answer = api.patch(SERVICE, {"status": status}, "/status")
    assert answer.code == 422
    assert field in [cause for cause, _ in answer.causes]


def test_environment_merges_by_name_among_managers(api: Api, create: Create) -> None:
    create(changed(SERVICE, "spec.env", [{"name": "A", "value": "1"}]))
    identity = {key: SERVICE[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "churn"}}
    applied = api.apply(path_of(SERVICE), {**identity, "spec": {"env": [{"name": "B", "value": "2"}]}})
    assert applied.body["spec"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


QUANTITIES = (
    "1 1000m 0.5 1.5 1.25 100m 2000 1e3 15e2 1e-3 1.5e9 0.0005 500u 1024Mi 1536Mi 0.5Gi 1.1Ki "
    "203.125Ki 1000Mi 0.1Gi 1Ti 4G 123456789 1048576 "
)


@pytest.mark.parametrize("text", QUANTITIES.split())
def test_canonical_quantity_is_stored_unchanged_and_as_the_server_spells_it(api: Api, text: str) -> None:
    def stored(spelling: str) -> str:
        container = {
            "name": "a",
            "image": "a",
            "resources": {"limits": {"example.com/x": "1", "memory": spelling}},
        }
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
        answer = api.request("POST", "/api/v1/namespaces/default/pods", pod, dryRun="All")
        assert answer.code == 201, answer.body
        limit: str = answer.body["spec"]["containers"][0]["resources"]["limits"]["memory"]
        return limit

    ours = str(Quantity.parse(text))
    assert stored(ours) == ours
    assert Quantity.parse(stored(text)) == Quantity.parse(text)


def renamed(crd: dict[str, Any]) -> dict[str, Any]:
    """The same CRD under another group, kind and plural, so that no other test's kubectl resolves to it."""
    result = copy.deepcopy(crd)
    result["metadata"]["name"] = f"{OLD_PLURAL}.{OLD_GROUP}"
    result["spec"]["group"] = OLD_GROUP
    result["spec"]["names"] = {
        "kind": OLD_KIND,
        "listKind": f"{OLD_KIND}List",
        "plural": OLD_PLURAL,
        "singular": OLD_KIND.lower(),
    }
    return result


def without_rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: without_rules(child) for key, child in schema.items() if key != VALIDATIONS}
    return [without_rules(child) for child in schema] if isinstance(schema, list) else schema


OLD = {**SERVICE, "apiVersion": f"{OLD_GROUP}/v1alpha1", "kind": OLD_KIND}


@pytest.fixture
def older(api: Api) -> Mapping[str, Any]:
    """A service stored before there was any rule; its CRD has all of them now."""
    crd = next(renamed(crd) for crd in all_crds() if crd["spec"]["names"]["kind"] == "InferenceService")
    api.install(without_rules(crd))
    bad = changed(changed(OLD, "metadata.name", "9.lives"), "spec.timeout", "fast")
    bad = changed(changed(bad, "spec.model.sha256", None), "spec.labels", {"tailbound.dev/service": "x"})
    wait_for("the kind to be served", lambda: api.create(bad).code in (201, 409), 20)
    api.install(crd)
    other = changed(bad, "metadata.name", "other")
    wait_for("the rules to count", lambda: api.create(other, dryRun="All").code == 422, 20)
    return bad


def test_an_object_older_than_a_rule_keeps_its_status_and_can_be_edited_and_deleted(
    api: Api, older: Mapping[str, Any]
) -> None:
    answer = api.patch(older, {"status": STATUS}, "/status")
    assert (answer.code, answer.body.get("status")) == (200, STATUS), answer.body
    answer = api.patch(older, {"metadata": {"annotations": {"seen": "yes"}}})
    assert answer.code == 200, answer.body
    answer = api.patch(older, {"spec": {"stopped": True}})
    assert answer.code == 200, answer.body
    answer = api.patch(older, {"spec": {"timeout": "faster"}})
    assert answer.code == 422
    assert [field for field, _ in answer.causes] == ["spec.timeout"]
    stored = api.request("GET", path_of(older)).body
    outcome = parse(InferenceService, stored)
    assert isinstance(outcome, InvalidObject)
    assert "spec.timeout: 'fast' is not a duration" in outcome.message
    assert api.request("DELETE", path_of(older)).code == 200
    assert api.request("GET", path_of(older)).code == 404
