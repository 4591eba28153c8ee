"""`kubectl apply` leads to right answers under the promised names, and to explained refusals elsewhere."""

import json

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.manifests import CPU, MEMORY, serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import REVISION_LABEL, SERVICE_LABEL, Scene, restarts, serving
from e2e.scenarios.library.traffic import GATEWAY_URL, VALUES
from e2e.scenarios.library.waiting import Unmet

TOO_LARGE_BYTES = 12 * 1024 * 1024


def _apply_and_wait(scene: Scene, name: str, model: Model) -> None:
    """`kubectl apply` and `kubectl wait`, as people do it."""
    kubectl = scene.world.kubectl
    kubectl.run("apply", "-f", "-", text=json.dumps(scene.manifest(name, model)))
    kubectl.run("wait", "--for=condition=Ready", f"infs/{name}", "-n", scene.namespace, "--timeout=240s")


def test_applied_service_becomes_ready_and_predicts_what_onnxruntime_predicts(scene: Scene) -> None:
    model = scene.model(slope=2.5, offset=-1.0)
    _apply_and_wait(scene, "first", model)
    answer = scene.world.client.infer(scene.namespace, "first")
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == model.expected(VALUES)
    service = scene.service("first")
    assert service["status"]["url"] == f"http://first.{scene.namespace}.svc.cluster.local"
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]
    (pod,) = scene.pods("first")
    assert pod["metadata"]["labels"][SERVICE_LABEL] == "first"
    assert pod["metadata"]["labels"][REVISION_LABEL] == serving(service)
    edited = scene.model(slope=7.0)
    _apply_and_wait(scene, "first", edited)  # Ready may still be that of the spec before
    assert scene.world.client.predicts(scene.namespace, "first", edited) == edited.expected(VALUES)


def test_a_service_answers_to_its_names_is_scaled_stopped_and_started_again(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    host = f"{scene.namespace}.example.com"
    revision = serving(scene.serve("named", model, hosts=[host]))
    namespace = scene.namespace
    client = scene.world.client
    for known in (
        f"named.{namespace}",
        f"named.{namespace}.svc",
        f"NAMED.{namespace}.svc.cluster.local:80",
        host,
    ):
        answer = client.infer(namespace, "named", base=GATEWAY_URL, host=known)
        assert answer.status == 200, (known, answer)
        assert answer.json()["outputs"][0]["data"] == model.expected(VALUES)
    for unknown in ("named", f"other.{namespace}.svc", "example.com"):
        answer = client.infer(namespace, "named", base=GATEWAY_URL, host=unknown)
        assert answer.status == 421, (unknown, answer)
        assert ".svc" in answer.body, f"the 421 must say which names work: {answer.body}"
    _refuses_a_body_over_the_limit(scene)
    _is_scaled_without_a_new_revision(scene, revision)
    _is_stopped_and_started(scene, model)


def _refuses_a_body_over_the_limit(scene: Scene) -> None:
    answer = scene.world.client.request(
        f"http://named.{scene.namespace}.svc/v2/models/named/infer",
        method="POST",
        body=b"x" * TOO_LARGE_BYTES,
    )
    assert answer.status == 413, answer
    assert any(character.isdigit() for character in answer.body), (
        f"the 413 must name the limit: {answer.body}"
    )


def _is_scaled_without_a_new_revision(scene: Scene, revision: str) -> None:
    (first,) = scene.pods("named")
    scene.world.kubectl.run("scale", "infs/named", "--replicas=2", "-n", scene.namespace)
    scene.wait(
        "two ready replicas",
        lambda: (
            True if (found := scene.service("named")["status"]["stable"])["ready"] == 2 else Unmet(str(found))
        ),
        120,
    )
    assert serving(scene.ready("named")) == revision
    assert first["metadata"]["name"] in [pod["metadata"]["name"] for pod in scene.pods("named")]
    (budget,) = scene.children("named")["PodDisruptionBudget"]
    assert budget["metadata"]["name"] == revision


def _is_stopped_and_started(scene: Scene, model: Model) -> None:
    """A stopped service has no pods and answers 503."""
    scene.apply("named", model, stopped=True)
    scene.condition("named", "Ready", "False", "Stopped")
    scene.wait("no pods", lambda: Unmet("pods are left") if scene.pods("named") else True, 240)
    answer = scene.world.client.infer(scene.namespace, "named")
    assert answer.status == 503, answer
    assert "retry-after" in answer.headers
    assert "stopped" in answer.body
    scene.serve("named", model, stopped=False)
    scene.predicts("named", model)


def test_services_of_one_name_in_two_namespaces_do_not_touch_each_other(
    scene: Scene, other_scene: Scene
) -> None:
    mine, theirs = scene.model(slope=11.0), other_scene.model(slope=13.0)
    scene.apply("twin", mine)
    other_scene.apply("twin", theirs)
    scene.ready("twin")
    other_scene.ready("twin")
    scene.predicts("twin", mine)
    other_scene.predicts("twin", theirs)
    before = restarts(other_scene.pods("twin"))
    version = other_scene.service("twin")["metadata"]["resourceVersion"]
    scene.api.delete("InferenceService", "twin", scene.namespace)
    scene.wait(
        "end of the first twin's pods",
        lambda: Unmet("pods are left") if scene.api.list("Pod", scene.namespace) else True,
        90,
    )
    answer = scene.world.client.infer(
        scene.namespace, "twin", base=GATEWAY_URL, host=f"twin.{scene.namespace}.svc"
    )
    assert answer.status == 421, answer
    other_scene.predicts("twin", theirs)
    assert restarts(other_scene.pods("twin")) == before
    assert other_scene.service("twin")["metadata"]["resourceVersion"] == version


def test_a_server_finds_what_its_runtime_adds_to_the_pod(scene: Scene) -> None:
    """Files, volumes and variables, init containers, a sidecar, a hook, a user, affinity and spread."""
    kubectl = scene.world.kubectl
    kubectl.run("create", "configmap", "modes", "-n", scene.namespace, "--from-literal=mode=calm")
    kubectl.run("create", "secret", "generic", "keys", "-n", scene.namespace, "--from-literal=key=hidden")
    runtime = _with_parts(scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"])
    scene.api.apply(serving_runtime(scene.namespace, "open", runtime))
    model = scene.model(slope=6.0)
    exists = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [exists]}]}
    scene.serve(
        "open",
        model,
        runtime={"name": "open"},
        resources={"cpu": CPU, "memory": MEMORY, "ephemeralStorage": "1Gi"},
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}},
        topologySpreadConstraints=[
            {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    )
    scene.predicts("open", model)
    (pod,) = scene.pods("open")
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9000/size').read().decode())"
    script = (
        "cat /etc/open/server.yaml /mnt/modes/mode /mnt/keys/key; touch /dev/shm/a ~/a && echo $MODE; id -u; "
        f'python -c "{fetch}"; stat -c %s $TAILBOUND_MODEL_PATH'
    )
    said = kubectl.run(
        *("exec", pod["metadata"]["name"], "-n", scene.namespace, "-c", "server", "--", "sh", "-c", script)
    )
    name, values, user, found, _, size = said.split("\n")[:6]
    assert (name, values, user) == ("name: open", "calmhiddencalm", "1234")
    assert found == size, "the sidecar serves what the init container measured"


def _with_parts(runtime: Object) -> Object:
    """The spec of a runtime that adds every kind of part to its pods."""
    mounted = {"shm": "/dev/shm", "modes": "/mnt/modes", "keys": "/mnt/keys"}
    server = {
        **runtime["server"],
        "env": [{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "modes", "key": "mode"}}}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounted.items()],
        "preStop": {"exec": {"command": ["sh", "-c", "sleep 1"]}},
    }
    shared = {"image": runtime["server"]["image"], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    measure = "stat -c %s $TAILBOUND_MODEL_PATH > /dev/shm/size"
    # The first process of a container ignores SIGTERM unless it handles it: the pod would end with its grace.
    serve = "trap exit TERM; python -m http.server 9000 --directory /dev/shm & wait"
    return {
        **runtime,
        "initContainers": [
            {
                **shared,
                "name": "once",
                "command": ["sh", "-c", measure],
            },
            {
                **shared,
                "name": "beside",
                "restartPolicy": "Always",
                "command": ["sh", "-c", serve],
                "resources": {"memory": "64Mi"},
                "startupProbe": {"tcpSocket": {"port": 9000}, "periodSeconds": 1, "failureThreshold": 60},
            },
        ],
        "securityContext": {"runAsUser": 1234},
        "files": [{"path": "/etc/open/server.yaml", "content": "name: {{ service.name }}\n"}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            {"name": "modes", "configMap": {"name": "modes"}},
            {"name": "keys", "secret": {"secretName": "keys"}},
        ],
        "server": server,
    }
