"""Every rule of the CRDs on the real API server: what is refused, where, and in which words."""

import json
from typing import Any

import pytest
from tailbound.api.crdgen import RESOURCES, crd

from e2e.cluster import ControlPlane
from e2e.cluster.processes import ProcessError
from tests.api_cases import REFUSALS
from tests.api_cases.objects import CLUSTER_RUNTIME, HARDWARE_CLASS, RUNTIME, SERVICE, changed
from tests.api_cases.refusal import Refusal
from tests.integration.api.conftest import Api


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case.base['kind']}: {case.name}")
def test_rule_refuses_with_one_sentence(api: Api, case: Refusal) -> None:
    answer = api.create(case.object, dryRun="All")
    assert answer.code == 422, answer.body
    [(field, message)] = answer.causes
    assert field == (case.field or "<nil>")
    assert message.endswith(f": {case.message}")


def test_the_cluster_wide_runtime_has_the_same_rules(api: Api) -> None:
    rules = {
        kind: crd(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for resource in RESOURCES
        if (kind := resource.kind).endswith("ServingRuntime")
    }
    assert rules["ServingRuntime"] == rules["ClusterServingRuntime"]
    answer = api.create(changed(CLUSTER_RUNTIME, "spec.drain", {"time": "0s"}), dryRun="All")
    assert [field for field, _ in answer.causes] == ["spec.drain.time"]


@pytest.mark.parametrize(
    ("base", "path", "value", "field", "message"),
    [
        (SERVICE, "spec", None, "spec", "Required value"),
        (SERVICE, "spec.model", None, "spec.model", "Required value"),
        (SERVICE, "spec.model.uri", None, "spec.model.uri", "Required value"),
        (SERVICE, "spec.model.format", None, "spec.model.format", "Required value"),
        (
            SERVICE,
            "spec.model.uri",
            "http://" + "a" * 2048,
            "spec.model.uri",
            "Too long: may not be more than 2048 bytes",
        ),
        (SERVICE, "spec.hosts", ["a.b", "a.b"], "spec.hosts[1]", 'Duplicate value: "a.b"'),
        (SERVICE, "spec.env", [{"name": "A"}, {"name": "A"}], "spec.env[1]", 'Duplicate value: {"name":"A"}'),
        (
            SERVICE,
            "spec.imagePullSecrets",
            [{"name": "a"}, {"name": "a"}],
            "spec.imagePullSecrets[1]",
            'Duplicate value: {"name":"a"}',
        ),
        (
            SERVICE,
            "spec.stopped",
            "yes",
            "spec.stopped",
            'Invalid value: "string": spec.stopped in body must be of type boolean: "string"',
        ),
        (
            HARDWARE_CLASS,
            "spec.resources",
            [{"name": "nvidia.com/gpu", "count": 0}],
            "spec.resources[0].count",
            "Invalid value: 0: spec.resources[0].count in body should be greater than or equal to 1",
        ),
        (
            HARDWARE_CLASS,
            "spec.tolerations",
            [{"key": "a", "operator": "Like"}],
            "spec.tolerations[0].operator",
            'Unsupported value: "Like": supported values: "Exists", "Equal"',
        ),
        (
            RUNTIME,
            "spec.formats",
            [],
            "spec.formats",
            "Invalid value: 0: spec.formats in body should have at least 1 items",
        ),
        (
            RUNTIME,
            "spec.server.imagePullPolicy",
            "Sometimes",
            "spec.server.imagePullPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
        ),
        (
            RUNTIME,
            "spec.server.ports",
            [{"name": "http", "containerPort": 80}, {"name": "http", "containerPort": 81}],
            "spec.server.ports[1]",
            'Duplicate value: {"name":"http"}',
        ),
        (RUNTIME, "spec.server.image", None, "spec.server.image", "Required value"),
    ],
)
def test_schema_refuses(
    api: Api, base: dict[str, Any], path: str, value: Any, field: str, message: str
) -> None:
    answer = api.create(changed(base, path, value), dryRun="All")
    assert answer.code == 422, answer.body
    assert [cause for cause in answer.causes if "validation rules were not checked" not in cause[1]] == [
        (field, message)
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "a" * 63),
        ("metadata.name", "a"),
        ("spec.model.uri", "http://10.0.0.1:8080/m?token=a%20b&x=@"),
        ("spec.model.uri", "https://[2001:db8::1]/m"),
        ("spec.model.uri", "https://example.com"),
        ("spec.model.uri", "https://models_store.example/m"),
        ("spec.hardware.class", []),
        ("spec.hardware.class", ["gpu-l4"]),
        ("spec.resources", {"cpu": 1, "memory": "1Mi"}),
        ("spec.resources", {"cpu": "0.5", "memory": "1.5e9"}),
        ("spec.resources.cpu", "1k"),
        ("spec.timeout", "1ms"),
        ("spec.timeout", "60m"),
        ("spec.sla", {"latency": {"p99": "1ms"}, "errorRate": "0.0001%"}),
        ("spec.sla", {"latency": {"p99": "3600s"}, "errorRate": "50.0%"}),
        ("spec.batching", {"mode": "dynamic", "preferredBatchSizes": [1, 8]}),
        ("spec.batching", {"mode": "static", "maxBatchSize": 4096, "maxQueueDelay": "10s"}),
        ("spec.batching", {"mode": "dynamic", "maxBatchSize": 1, "maxQueueDelay": "0s"}),
        ("spec.batching", {"mode": "none", "preferredBatchSizes": []}),
        ("spec.scaling.min", 1000),
        ("spec.scaling", {"min": 2, "max": 2, "replicas": 1000}),
        ("spec.scaling", {"mode": "external", "min": 2, "max": 1000}),
        ("spec.rollout", {"strategy": "canary", "steps": []}),
        ("spec.rollout", {"strategy": "canary", "steps": [{"weight": each} for each in range(84, 100)]}),
        ("spec.rollout", {"strategy": "blueGreen", "steps": []}),
        ("spec.rollout", {"strategy": "recreate", "promotion": "manual", "onInconclusive": "rollback"}),
        ("spec.rollout", {"strategy": "recreate", "capacity": "surge"}),
        ("spec.rollout", {"strategy": "canary", "capacity": "auto"}),
        ("spec.rollout", {"minStepTime": "1000ms", "maxStepTime": "1s", "scaleDownDelay": "0s"}),
        ("spec.rollout", {"minStepTime": "24h", "maxStepTime": "168h", "progressDeadline": "10s"}),
        ("spec.rollout.analysis", {"policy": "relative", "warmupRequests": 0, "minErrorRate": "50.00%"}),
        ("spec.rollout.analysis", {"minErrorRate": "0.0001%", "dataTimeout": "10s"}),
        (
            "spec.rollout.analysis.metrics",
            [
                {"name": "mean", "query": "q", "min": 0.5},
                {"name": "events", "bad": "b", "total": "t", "max": 0.5},
                {"name": "histogram", "histogram": "h_bucket", "above": 0, "max": 0.5},
            ],
        ),
        ("spec.hosts", ["churn.example.com", "xn--bcher-kva.example", "a.svcs.example.com", "1.example.com"]),
        ("spec.labels", {"team": "risk", "example.com/cost-centre": "", "tailbound.device/x": "1"}),
        ("spec.annotations", {"example.com/text": "any: {text} at all\n"}),
        ("spec.env", [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "EMPTY"}]),
        ("spec.imagePullSecrets", [{"name": "registry.example"}]),
        ("spec.stopped", True),
    ],
)
def test_service_is_accepted_at_the_edge(api: Api, path: str, value: Any) -> None:
    obj = changed(SERVICE, path, value)
    answer = api.create(obj, dryRun="All", fieldValidation="Strict")
    assert answer.code == 201, answer.body


@pytest.mark.parametrize(
    ("base", "path", "value"),
    [
        (HARDWARE_CLASS, "spec", {}),
        (HARDWARE_CLASS, "spec.resources", [{"name": "nvidia.com/mig-1g.5gb", "count": 1}]),
        (HARDWARE_CLASS, "spec.nodeSelector", {"node.kubernetes.io/instance-type": "g6.xlarge"}),
        (HARDWARE_CLASS, "spec.tolerations", [{"operator": "Exists"}]),
        (
            HARDWARE_CLASS,
            "spec.tolerations",
            [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        ),
        (
            HARDWARE_CLASS,
            "spec.tolerations",
            [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
        ),
        (HARDWARE_CLASS, "spec.allowedNamespaces", ["risk", "fraud-2"]),
        (RUNTIME, "spec.server.args", ["--model={{ model.path }}", "--threads", "{{ resources.cpu }}"]),
        (RUNTIME, "spec.server.readinessProbe", {"httpGet": {"port": 65535, "path": "/v2/health/ready"}}),
        (RUNTIME, "spec.server.readinessProbe", {"grpc": {"port": 9000}, "successThreshold": 2}),
        (RUNTIME, "spec.server.startupProbe", {"exec": {"command": ["/bin/true"]}, "failureThreshold": 600}),
        (RUNTIME, "spec.drain.time", "600s"),
        (RUNTIME, "spec.server.image", "registry.example.com:5000/server@sha256:" + "a" * 64),
    ],
)
def test_others_are_accepted_at_the_edge(api: Api, base: dict[str, Any], path: str, value: Any) -> None:
    answer = api.create(changed(base, path, value), dryRun="All", fieldValidation="Strict")
    assert answer.code == 201, answer.body


def test_unknown_field_is_refused_when_validation_is_strict_as_kubectl_asks(api: Api) -> None:
    answer = api.create(changed(SERVICE, "spec.colour", {}), dryRun="All", fieldValidation="Strict")
    assert answer.code == 400
    assert 'strict decoding error: unknown field "spec.colour"' in answer.body["message"]


def test_kubectl_refuses_an_unknown_field(api: Api, control_plane: ControlPlane) -> None:
    with pytest.raises(ProcessError, match=r'unknown field "spec[.]colour"'):
        control_plane.kubectl("create", "-f", "-", input=json.dumps(changed(SERVICE, "spec.colour", {})))


def test_unknown_field_is_dropped_with_a_warning_by_the_plain_api(api: Api) -> None:
    answer = api.create(changed(SERVICE, "spec.colour", {}), dryRun="All")
    assert answer.code == 201
    assert "colour" not in answer.body["spec"]
    assert answer.warnings == ('299 - "unknown field \\"spec.colour\\""',)
