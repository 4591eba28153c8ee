"""What a runtime adds to the pod template: init containers, volumes, files, a hook or the hold, paths."""

import json

from tailbound.api.init_container import InitContainer
from tailbound.api.pod_parts import ConfigFile, PodSecurity, Volume
from tailbound.revisions.record import Revision
from tailbound.revisions.restricted import violations

from tests.unit.revisions.templates import env_of, mounts_of, server_of, template

SIDECAR = {
    "name": "proxy",
    "image": "proxy:1",
    "restartPolicy": "Always",
    "args": ["--port", "9000"],
    "env": [{"name": "LEVEL", "value": "debug"}, {"name": "HOME", "value": "/mnt/shm"}],
    "volumeMounts": [{"name": "shm", "mountPath": "/mnt/shm"}],
    "resources": {"cpu": "50m"},
    "startupProbe": {"tcpSocket": {"port": 9000}},
}
ONCE = {"name": "convert", "image": "convert:1", "command": ["convert", "/mnt/models"]}


def test_init_containers_run_behind_the_fetch_and_are_confined_as_the_server() -> None:
    shm = Volume.model_validate(VOLUMES[0])
    file = ConfigFile(path="/etc/proxy/proxy.yaml", content="port: 9000")
    extra = tuple(InitContainer.model_validate(each) for each in (ONCE, SIDECAR))
    pod = template(init_containers=extra, volumes=(shm,), files=(file,), mode="hold")
    fetch, once, proxy, hold = pod["spec"]["initContainers"]
    assert [each["name"] for each in (fetch, hold)] == ["fetch", "hold"]
    assert "restartPolicy" not in once
    assert (once["command"], proxy["restartPolicy"]) == (ONCE["command"], "Always")
    assert proxy["securityContext"] == once["securityContext"] == server_of(pod)["securityContext"]
    wanted = {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    assert proxy["resources"] == {"requests": wanted, "limits": wanted}
    assert mounts_of(proxy) == {
        "models": ("/mnt/models", True),
        "scratch": ("/tmp", False),
        "runtime-shm": ("/mnt/shm", False),
        "files-0": ("/etc/proxy", True),
    }
    assert {each["name"]: each["value"] for each in proxy["env"]} == {
        "TAILBOUND_MODEL_NAME": "churn",
        "TAILBOUND_MODEL_PATH": "/mnt/models/model.onnx",
        "TAILBOUND_MODEL_FORMAT": "onnx",
        "TAILBOUND_REVISION": "churn-r1-abcdef",
        "LEVEL": "debug",
        "HOME": "/mnt/shm",
    }
    assert json.loads(json.dumps(pod)) == pod
    assert violations(pod, None) == ()


def test_a_hook_of_the_server_has_its_time_in_the_grace_period() -> None:
    hook = {"exec": {"command": ["drain"]}}
    pod = template(spec={"timeout": "2s"}, server={"preStop": hook})
    assert server_of(pod)["lifecycle"] == {"preStop": hook}
    assert "preStop" not in server_of(pod)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 10 + 10 + 2 + 5
    assert violations(pod, None) == ()


def test_the_runtimes_user_goes_before_the_installations() -> None:
    pod = template(security=PodSecurity(run_as_user=1000), user_id=65532)
    ids = {"runAsUser": 1000, "runAsGroup": 65532, "fsGroup": 65532}
    assert pod["spec"]["securityContext"].items() >= ids.items()
    assert violations(pod, None) == ()
    assert (
        "fsGroup"
        not in template(security=PodSecurity(run_as_user=9), user_id=None)["spec"]["securityContext"]
    )


VOLUMES = [
    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "cache", "emptyDir": {"sizeLimit": "10Gi"}},
    {"name": "rules", "configMap": {"name": "rules"}},
    {"name": "keys", "secret": {"secretName": "keys"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
]


def test_volumes_are_mounted_and_only_empty_ones_are_writable() -> None:
    parts = [Volume.model_validate(volume) for volume in VOLUMES]
    mounts = [{"name": volume["name"], "mountPath": f"/mnt/{volume['name']}"} for volume in VOLUMES]
    pod = template(server={"volumeMounts": mounts}, volumes=tuple(parts))
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    named = [{**volume, "name": f"runtime-{volume['name']}"} for volume in (*VOLUMES[:-1], claim)]
    assert pod["spec"]["volumes"][2:] == named
    made = server_of(pod)["volumeMounts"]
    assert [mount.get("readOnly", False) for mount in made] == [True, False, False, False, True, True, True]
    assert [mount["mountPath"] for mount in made[2:]] == [mount["mountPath"] for mount in mounts]
    assert violations(pod, None) == ()


def test_files_are_kept_in_the_template_and_mounted_by_folder() -> None:
    contents = {"/etc/a/one.yaml": "one: 1\n", "/etc/b/two": "", "/etc/a/three": "{}"}
    files = tuple(ConfigFile(path=path, content=text) for path, text in contents.items())
    pod = template(files=files, spec={"annotations": {"note": "x"}})
    annotations = pod["metadata"]["annotations"]
    assert annotations.pop("note") == "x"
    assert list(annotations.values()) == list(contents.values())
    found = {}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for mount in server_of(pod)["volumeMounts"][2:]:
        assert mount["readOnly"]
        for item in volumes[mount["name"]]["downwardAPI"]["items"]:
            key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            found[f"{mount['mountPath']}/{item['path']}"] = annotations[key]
    assert found == contents
    assert violations(pod, None) == ()


def test_a_hold_keeps_sigterm_back_until_the_sidecar_answers() -> None:
    ports = [
        {"name": "grpc", "containerPort": 8081},
        {"name": "http", "containerPort": 8080},
        {"name": "metrics", "containerPort": 15901},
    ]
    sidecar = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}
    probed = InitContainer.model_validate({**sidecar, "startupProbe": {"tcpSocket": {"port": 15902}}})
    settings = {"timeout": "2500ms"}
    pod = template(spec=settings, server={"ports": ports}, mode="hold", init_containers=(probed,))
    fetch, _, hold = pod["spec"]["initContainers"]
    hook = {"httpGet": {"path": "/release", "port": 15903, "scheme": "HTTP"}}
    assert server_of(pod)["lifecycle"] == {"preStop": hook}
    assert (hold["name"], hold["restartPolicy"], hold["image"]) == ("hold", "Always", fetch["image"])
    assert " ".join(hold["args"]) == "hold --port 15903 --watch 8081 8080 --least 10 --longest 12.5"
    assert env_of(pod)["TAILBOUND_DRAIN_SECONDS"] == "0"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 18
    assert violations(pod, None) == ()
    assert "lifecycle" not in server_of(template())


def test_paths_of_a_server_with_another_protocol_are_frozen_in_the_revision() -> None:
    name = "tailbound.dev/inference-paths"
    assert name not in template()["metadata"].get("annotations", {})
    pod = template(inference_paths=("/v1/embeddings",))
    assert pod["metadata"]["annotations"] == {name: '["/v1/embeddings"]'}
    assert violations(pod, None) == ()
    revision = Revision("churn-r1-abcdef", 1, "", "{}", "", "", json.dumps(pod))
    assert revision.inference_paths == ("/v1/embeddings",)
