"""The pod template: restricted, complete, and the operator's where it must be."""

import copy
import json
from typing import Any

import pytest
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.quantities import Duration
from tailbound.api.servingruntime import ServerContainer
from tailbound.revisions.pod import Fetcher, Ingredients, context, pod_template
from tailbound.revisions.restricted import violations

MODEL = {"uri": "https://m.example.com/a.onnx?v=$(HOME)", "format": "onnx", "sha256": "a" * 64}
FETCHER = Fetcher("tailbound:1", "Never", ("chart",), ("models.internal", "b"), ("10.0.0.0/8",))


def template(
    *,
    spec: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    hardware: dict[str, Any] | None = None,
) -> dict[str, Any]:
    service = InferenceService.model_validate(
        {"metadata": {"name": "churn", "namespace": "risk"}, "spec": {"model": MODEL, **(spec or {})}}
    )
    container = {"image": "server:1", "ports": [{"name": "http", "containerPort": 8080}], **(server or {})}
    return pod_template(
        Ingredients(
            revision="churn-r1-abcdef",
            service=service,
            server=ServerContainer.model_validate(container),
            drain=Duration.parse("10s"),
            hardware_class=HardwareClass.model_validate(
                {"metadata": {"name": "gpu"}, "spec": hardware or {}}
            ),
            fetcher=FETCHER,
        )
    )


def server_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def env_of(pod: dict[str, Any]) -> dict[str, str]:
    pairs = [(variable["name"], variable["value"]) for variable in server_of(pod)["env"]]
    assert len(dict(pairs)) == len(pairs), "server-side apply refuses a name that is there twice"
    return dict(pairs)


def test_is_json_as_it_is_and_passes_the_restricted_check() -> None:
    pod = template()
    assert json.loads(json.dumps(pod)) == pod
    assert violations(pod["spec"], None) == ()


def test_contract_of_the_server() -> None:
    env = env_of(template(spec={"timeout": "2500ms", "resources": {"cpu": "1500m"}}))
    assert env == {
        "TAILBOUND_MODEL_NAME": "churn",
        "TAILBOUND_MODEL_PATH": "/mnt/models/model.onnx",
        "TAILBOUND_MODEL_FORMAT": "onnx",
        "TAILBOUND_REVISION": "churn-r1-abcdef",
        "TAILBOUND_REQUEST_TIMEOUT_SECONDS": "2.5",
        "TAILBOUND_DRAIN_SECONDS": "10",
        "TAILBOUND_CPU_LIMIT": "2",
        "TAILBOUND_BATCHING_MODE": "none",
        "TAILBOUND_BATCHING_MAX_SIZE": "1",
        "TAILBOUND_BATCHING_PREFERRED_SIZES": "",
        "TAILBOUND_BATCHING_MAX_DELAY_SECONDS": "0",
        "ORT_DISABLE_TELEMETRY": "1",
    }


def test_of_one_variable_the_users_value_counts_before_the_runtimes() -> None:
    pod = template(
        server={"env": [{"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}]},
        spec={"env": [{"name": "A", "value": "user"}, {"name": "ORT_DISABLE_TELEMETRY", "value": "0"}]},
    )
    env = env_of(pod)
    assert (env["A"], env["B"], env["ORT_DISABLE_TELEMETRY"]) == ("user", "runtime", "0")
    assert list(env)[-1] == "ORT_DISABLE_TELEMETRY"


def test_fetch_container_gets_the_source_literally() -> None:
    (fetch,) = template()["spec"]["initContainers"]
    assert fetch["command"] == ["tailbound"]
    assert fetch["args"] == [
        "fetch",
        "--uri",
        "https://m.example.com/a.onnx?v=$$(HOME)",
        "--sha256",
        "a" * 64,
        "--output",
        "/mnt/models/model.onnx",
    ]
    assert fetch["env"] == [
        {"name": "TAILBOUND_FETCH_ALLOWED_HOSTS", "value": "models.internal,b"},
        {"name": "TAILBOUND_FETCH_DENIED_CIDRS", "value": "10.0.0.0/8"},
    ]
    assert fetch["imagePullPolicy"] == "Never"


def test_resources_are_requests_and_limits_alike_and_devices_go_to_the_server_only() -> None:
    pod = template(
        spec={"resources": {"cpu": "2", "memory": "4Gi"}},
        hardware={"resources": [{"name": "nvidia.com/gpu", "count": 2}]},
    )
    wanted = {"cpu": "2", "memory": "4Gi"}
    assert pod["spec"]["initContainers"][0]["resources"] == {"requests": wanted, "limits": wanted}
    wanted |= {"nvidia.com/gpu": "2"}
    assert server_of(pod)["resources"] == {"requests": wanted, "limits": wanted}


def test_placement_comes_from_the_class() -> None:
    pod = template(
        hardware={
            "nodeSelector": {"accelerator": "l4"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "runtimeClassName": "nvidia",
            "priorityClassName": "serving",
        }
    )["spec"]
    assert pod["nodeSelector"] == {"accelerator": "l4"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert (pod["runtimeClassName"], pod["priorityClassName"]) == ("nvidia", "serving")
    assert (
        not {"nodeSelector", "tolerations", "runtimeClassName", "priorityClassName"}
        & template()["spec"].keys()
    )


def test_extras_of_the_user() -> None:
    pod = template(
        spec={
            "labels": {"team": "risk"},
            "annotations": {"note": "x"},
            "serviceAccountName": "reader",
            "imagePullSecrets": [{"name": "mine"}, {"name": "chart"}],
        }
    )
    assert pod["metadata"] == {
        "labels": {
            "team": "risk",
            "app.kubernetes.io/managed-by": "tailbound",
            "tailbound.dev/service": "churn",
            "tailbound.dev/revision": "churn-r1-abcdef",
        },
        "annotations": {"note": "x"},
    }
    assert pod["spec"]["serviceAccountName"] == "reader"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "chart"}]
    assert violations(pod["spec"], "reader") == ()


@pytest.mark.parametrize(
    ("fields", "seconds"), [({"timeout": "2s"}, 17), ({"timeout": "2500ms"}, 18), ({}, 315)]
)
def test_grace_is_drain_and_longest_request_and_margin(fields: dict[str, Any], seconds: int) -> None:
    assert template(spec=fields)["spec"]["terminationGracePeriodSeconds"] == seconds


def test_the_replica_count_is_not_in_the_template() -> None:
    assert template(spec={"scaling": {"min": 1}}) == template(spec={"scaling": {"min": 9}})
    spread = template()["spec"]["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    assert {rule["whenUnsatisfiable"] for rule in spread} == {"ScheduleAnyway"}


def test_the_context_has_every_documented_variable() -> None:
    service = InferenceService.model_validate(
        {"metadata": {"name": "churn", "namespace": "risk"}, "spec": {"model": MODEL, "timeout": "2s"}}
    )
    gpu = HardwareClass.model_validate(
        {"metadata": {"name": "gpu"}, "spec": {"resources": [{"name": "nvidia.com/gpu", "count": 2}]}}
    )
    assert context(service, gpu, "churn-r1-abcdef") == {
        "service": {"name": "churn", "namespace": "risk"},
        "model": {"path": "/mnt/models/model.onnx", "format": "onnx", "uri": MODEL["uri"]},
        "revision": {"name": "churn-r1-abcdef"},
        "hardware": {"class": "gpu", "devices": 2},
        "resources": {"cpu": "1", "memory": "2Gi"},
        "timeout": {"seconds": "2"},
        "batching": {
            "mode": "none",
            "maxBatchSize": 1,
            "preferredBatchSizes": "",
            "maxQueueDelaySeconds": "0",
        },
    }


@pytest.mark.parametrize(
    ("batching", "told"),
    [
        ({"mode": "dynamic"}, ("dynamic", "8", "", "0")),
        ({"mode": "static", "maxBatchSize": 32, "maxQueueDelay": "1s"}, ("static", "32", "", "1")),
        (
            {
                "mode": "dynamic",
                "maxBatchSize": 16,
                "preferredBatchSizes": [4, 8],
                "maxQueueDelay": "5ms",
            },
            ("dynamic", "16", "4,8", "0.005"),
        ),
    ],
)
def test_batching_reaches_the_server_as_environment_and_other_servers_as_variables(
    batching: dict[str, Any], told: tuple[str, ...]
) -> None:
    env = env_of(template(spec={"batching": batching}))
    kinds = ("MODE", "MAX_SIZE", "PREFERRED_SIZES", "MAX_DELAY_SECONDS")
    assert tuple(env[f"TAILBOUND_BATCHING_{kind}"] for kind in kinds) == told
    service = InferenceService.model_validate(
        {"metadata": {"name": "churn", "namespace": "risk"}, "spec": {"model": MODEL, "batching": batching}}
    )
    given = context(service, HardwareClass.model_validate({"metadata": {"name": "cpu"}, "spec": {}}), "r")
    assert tuple(str(value) for value in given["batching"].values()) == told


FORBIDDEN: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "host network": (("hostNetwork",), True, "hostNetwork"),
    "host processes": (("hostPID",), True, "hostPID"),
    "host IPC": (("hostIPC",), True, "hostIPC"),
    "a node": (("nodeName",), "n1", "nodeName"),
    "a foreign account": (("serviceAccountName",), "admin", "serviceAccountName 'admin'"),
    "a token": (("automountServiceAccountToken",), True, "automountServiceAccountToken"),
    "a host path": (("volumes", 0), {"name": "models", "hostPath": {"path": "/"}}, "volumes[0].hostPath"),
    "a secret": (("volumes", 0), {"name": "models", "secret": {}}, "volumes[0].secret"),
    "root": (("securityContext", "runAsUser"), 0, "runAsUser"),
    "maybe root": (("securityContext", "runAsNonRoot"), False, "runAsNonRoot"),
    "no seccomp": (("securityContext", "seccompProfile", "type"), "Unconfined", "seccompProfile"),
    "sysctls": (("securityContext", "sysctls"), [{"name": "a"}], "sysctls"),
    "ephemeral": (("ephemeralContainers",), [{}], "ephemeralContainers"),
    "privileged": (
        ("containers", 0, "securityContext", "privileged"),
        True,
        "containers[0].securityContext.privileged",
    ),
    "escalation": (
        ("initContainers", 0, "securityContext", "allowPrivilegeEscalation"),
        True,
        "initContainers[0]",
    ),
    "writable root": (
        ("containers", 0, "securityContext", "readOnlyRootFilesystem"),
        False,
        "readOnlyRootFilesystem",
    ),
    "capabilities": (
        ("containers", 0, "securityContext", "capabilities", "add"),
        ["SYS_ADMIN"],
        "capabilities",
    ),
    "own user": (
        ("containers", 0, "securityContext", "runAsUser"),
        0,
        "containers[0].securityContext.runAsUser",
    ),
    "proc mount": (("containers", 0, "securityContext", "procMount"), "Unmasked", "procMount"),
    "host port": (("containers", 0, "ports", 0, "hostPort"), 80, "containers[0].ports[0]"),
    "probe elsewhere": (
        ("containers", 0, "readinessProbe"),
        {"httpGet": {"host": "h"}},
        "readinessProbe.httpGet.host",
    ),
    "hook elsewhere": (
        ("containers", 0, "lifecycle"),
        {"preStop": {"tcpSocket": {"host": "h"}}},
        "lifecycle.preStop",
    ),
    "environment from elsewhere": (("containers", 0, "envFrom"), [{}], "envFrom"),
    "secret in env": (("containers", 0, "env", 0), {"name": "A", "valueFrom": {}}, "env[0].valueFrom"),
}


@pytest.mark.parametrize(("path", "value", "words"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_restricted_check_refuses(path: tuple[Any, ...], value: Any, words: str) -> None:
    pod = copy.deepcopy(template()["spec"])
    target: Any = pod
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    (violation,) = violations(pod, None)
    assert words in violation
