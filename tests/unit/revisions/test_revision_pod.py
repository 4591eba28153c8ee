"""The pod template: restricted, complete, and the operator's where it must be."""

import copy
import json
from typing import Any

import pytest
from tailbound.api.hardwareclass import HardwareClass
from tailbound.api.inferenceservice import InferenceService
from tailbound.revisions.pod import context
from tailbound.revisions.restricted import violations

from tests.unit.revisions.templates import MODEL, env_of, mounts_of, server_of, template


def test_is_json_as_it_is_and_passes_the_restricted_check() -> None:
    pod = template()
    assert json.loads(json.dumps(pod)) == pod
    assert violations(pod, None) == ()


def test_contract_of_the_server() -> None:
    env = env_of(template(spec={"timeout": "2500ms", "resources": {"cpu": "1500m"}}))
    assert env == {
        "HOME": "/tmp",
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
        "--report",
        "--sha256",
        "a" * 64,
        "--output",
        "/mnt/models/model.onnx",
    ]
    assert fetch["env"] == [
        {"name": "TAILBOUND_FETCH_ALLOWED_HOSTS", "value": "models.internal,b"},
        {"name": "TAILBOUND_FETCH_DENIED_CIDRS", "value": "10.0.0.0/8"},
        {"name": "TAILBOUND_FETCH_ALLOWED_CIDRS", "value": ""},
        {"name": "TAILBOUND_FETCH_TIMEOUT_SECONDS", "value": "3600"},
        {"name": "TAILBOUND_FETCH_LIMIT_BYTES", "value": str((10 * 1024 - 32) * 1024 * 1024)},
    ]
    assert fetch["imagePullPolicy"] == "Never"


def _volumes(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {volume.pop("name"): volume for volume in copy.deepcopy(pod["spec"]["volumes"])}


def test_every_empty_directory_and_container_has_a_limit_of_disk() -> None:
    pod = template()
    assert _volumes(pod) == {
        "models": {"emptyDir": {"sizeLimit": "10Gi"}},
        "scratch": {"emptyDir": {"sizeLimit": "10Gi"}},
    }
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert container["resources"]["requests"]["ephemeral-storage"] == "64Mi"
        assert container["resources"]["limits"]["ephemeral-storage"] == "10Gi"


def test_credentials_and_certificates_are_for_the_fetch_container_alone() -> None:
    model = {**MODEL, "secretRef": {"name": "reader"}, "caRef": {"name": "own"}}
    pod = template(spec={"model": model})
    (fetch,) = pod["spec"]["initContainers"]
    folder, certificates = "/var/run/tailbound/model-credentials", "/var/run/tailbound/model-ca"
    assert fetch["args"][-4:] == ["--credentials", folder, "--ca", f"{certificates}/ca.crt"]
    assert _volumes(pod)["model-credentials"] == {
        "secret": {"secretName": "reader", "optional": True, "defaultMode": 0o440}
    }
    assert _volumes(pod)["model-ca"]["configMap"]["name"] == "own"
    assert mounts_of(fetch)["model-credentials"] == (folder, True)
    assert mounts_of(fetch)["model-ca"] == (certificates, True)
    assert set(mounts_of(server_of(pod))) == {"models", "scratch"}
    assert violations(pod, None) == ()


@pytest.mark.parametrize(
    ("uri", "volume"),
    [
        ("pvc://models/churn/7", {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}),
        (
            f"oci://registry.example.com:5000/churn@sha256:{'b' * 64}",
            {
                "image": {
                    "reference": f"registry.example.com:5000/churn@sha256:{'b' * 64}",
                    "pullPolicy": "IfNotPresent",
                }
            },
        ),
    ],
    ids=["claim", "image"],
)
def test_a_mounted_model_is_a_volume_that_both_containers_only_read(uri: str, volume: dict[str, Any]) -> None:
    pod = template(spec={"model": {**MODEL, "uri": uri, "path": "onnx/m.onnx"}})
    (fetch,) = pod["spec"]["initContainers"]
    assert _volumes(pod)["model-source"] == volume
    for container in (fetch, server_of(pod)):
        assert mounts_of(container)["model-source"] == ("/mnt/source", True)
    assert fetch["args"][-4:] == ["--output", "/mnt/models/onnx/m.onnx", "--path", "onnx/m.onnx"]
    assert env_of(pod)["TAILBOUND_MODEL_PATH"] == "/mnt/models/onnx/m.onnx"
    assert violations(pod, None) == ()


def test_an_object_store_is_described_to_the_fetch_container() -> None:
    s3 = {"endpoint": "https://s3.example.com", "region": "eu-central-1", "pathStyle": False}
    pod = template(spec={"model": {**MODEL, "uri": "s3://models/churn/7", "s3": s3}})
    assert pod["spec"]["initContainers"][0]["args"][-5:] == [
        *("--s3-region", "eu-central-1", "--s3-endpoint", "https://s3.example.com", "--s3-virtual-hosts")
    ]


def test_resources_are_requests_and_limits_alike_and_devices_go_to_the_server_only() -> None:
    pod = template(
        spec={"resources": {"cpu": "2", "memory": "4Gi", "ephemeralStorage": "50Gi"}},
        hardware={"resources": [{"name": "nvidia.com/gpu", "count": 2}]},
    )
    wanted = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "50Gi"}
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
    assert violations(pod, "reader") == ()


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    },
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 10,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"team": "risk"}},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    },
}


def test_affinity_and_spread_of_the_service_place_its_pods() -> None:
    spread = [{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}]
    pod = template(spec={"affinity": AFFINITY, "topologySpreadConstraints": spread})
    assert pod["spec"]["affinity"] == AFFINITY
    selector = {"matchLabels": {"tailbound.dev/revision": "churn-r1-abcdef"}}
    assert pod["spec"]["topologySpreadConstraints"] == [{**spread[0], "labelSelector": selector}]
    assert violations(pod, None) == ()
    assert template(spec={"topologySpreadConstraints": []})["spec"]["topologySpreadConstraints"] == []
    assert "affinity" not in template(spec={"affinity": {}})["spec"]


def test_variables_may_come_from_secrets_and_config_maps() -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    config = {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "modes", "key": "mode"}}}
    pod = template(server={"env": [{"name": "TOKEN", "value": "none"}, config]}, spec={"env": [secret]})
    assert server_of(pod)["env"][-2:] == [config, secret]
    assert violations(pod, None) == ()


@pytest.mark.parametrize(("user", "ids"), [(65532, 3), (1000, 3), (None, 0)], ids=str)
def test_the_user_is_fixed_or_left_to_the_platform(user: int | None, ids: int) -> None:
    pod = template(user_id=user)
    security = pod["spec"]["securityContext"]
    assert [security[name] for name in security if name.startswith(("runAsU", "runAsG", "fsG"))] == [
        user
    ] * ids
    assert violations(pod, None) == ()


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
        "model": {
            "path": "/mnt/models/model.onnx",
            "folder": "/mnt/models",
            "format": "onnx",
            "uri": MODEL["uri"],
        },
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
