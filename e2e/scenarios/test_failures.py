"""While a model cannot serve, the status says why within seconds, and mending the cause is enough."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from onnx import TensorProto, helper

from e2e.scenarios.library import models
from e2e.scenarios.library.api import Object, conditions
from e2e.scenarios.library.manifests import CPU, MEMORY, hardware_class, serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene, restarts, serving
from e2e.scenarios.library.waiting import Unmet, stays

QUARTER_GIGABYTE_OF_FLOATS = 1 << 26
RESTARTS_SECONDS = 180.0


def hungry(name: str) -> Model:
    """A tiny file that needs a quarter of a gigabyte, once or several times, when it is loaded."""
    graph = helper.make_graph(
        nodes=[
            helper.make_node(
                "ConstantOfShape",
                ["shape"],
                ["ones"],
                value=helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0]),
            ),
            helper.make_node("ReduceMean", ["ones"], ["one"], keepdims=0),
            helper.make_node("Mul", [models.INPUT, "one"], [models.OUTPUT]),
        ],
        name="hungry",
        inputs=[helper.make_tensor_value_info(models.INPUT, TensorProto.FLOAT, ["batch", "width"])],
        outputs=[helper.make_tensor_value_info(models.OUTPUT, TensorProto.FLOAT, ["batch", "width"])],
        initializer=[helper.make_tensor("shape", TensorProto.INT64, [1], [QUARTER_GIGABYTE_OF_FLOATS])],
    )
    return models.file_of(name, graph)


def test_what_is_wrong_with_the_source_is_named_and_mending_it_is_enough(scene: Scene) -> None:
    store = scene.world.store
    model = scene.model(slope=2.0)
    faulty = {fault: scene.model(slope=3.0) for fault in ("not-found", "forbidden", "huge")}
    for fault, each in faulty.items():
        store.fault(each, fault)
        scene.apply(fault, each)
    wrong = "0" * 64
    sources = {
        "pinned": (store.uri(model), wrong),
        "unreachable": (store.uri(model).replace(":8080", ":1"), model.sha256),
        "denied": ("http://169.254.169.254/latest/model.onnx", model.sha256),
    }
    for name, (uri, digest) in sources.items():
        scene.apply(name, model, model={"uri": uri, "format": "onnx", "sha256": digest})
    scene.not_ready("not-found", "SourceNotFound", faulty["not-found"].name)
    scene.not_ready("forbidden", "SourceForbidden", faulty["forbidden"].name)
    scene.not_ready("huge", "InsufficientStorage")  # before the download
    scene.not_ready("pinned", "DigestMismatch", model.sha256)
    scene.condition("pinned", "ModelVerified", "False", "DigestMismatch", wrong)
    scene.not_ready("unreachable", "SourceUnreachable")
    scene.not_ready("denied", "AddressDenied", "169.254.169.254")
    for fault in ("not-found", "huge"):
        store.fault(faulty[fault], "none")
    scene.apply("pinned", model)
    for name, right in {"not-found": faulty["not-found"], "huge": faulty["huge"], "pinned": model}.items():
        scene.ready(name)
        scene.predicts(name, right)
    scene.condition("pinned", "ModelVerified", "True")


def test_model_that_fails_on_everything_is_started_anew_and_named(scene: Scene) -> None:
    broken = scene.world.store.put(models.exhausted(f"{scene.namespace}-exhausted"))
    scene.serve("exhausted", broken)

    def asked_again_and_again() -> bool | Unmet:
        """Each start serves until the first request."""
        scene.world.client.infer(scene.namespace, "exhausted")
        found = conditions(scene.service("exhausted"))["Ready"]
        said = found["reason"] == "ModelBroken" and "fails even on zeros now" in found["message"]
        return said or Unmet(f"{found}")

    def restarted() -> bool | Unmet:
        """The kubelet counts a restart when the container has started again, after it said why it ended."""
        pods = restarts(scene.pods("exhausted"))
        return any(count for _, count in pods.values()) or Unmet(f"{pods}")

    scene.wait("the failure in the conditions", asked_again_and_again, RESTARTS_SECONDS)
    scene.wait("a restart", restarted, RESTARTS_SECONDS)
    good = scene.model(slope=4.0)
    scene.apply("exhausted", good)
    scene.ready("exhausted")
    scene.predicts("exhausted", good)


@pytest.fixture
def classes(scene: Scene) -> Iterator[dict[str, str]]:
    """A hardware class that no node has, and the name of one that comes later."""
    names = {name: f"{name}-{scene.namespace}" for name in ("absent", "later")}
    scene.api.apply(hardware_class(names["absent"], resources=[{"name": "example.com/absent", "count": 1}]))
    yield names
    for name in names.values():
        scene.api.delete("HardwareClass", name)


@pytest.mark.lasts(120)
def test_what_is_wrong_with_the_pods_is_named_and_mending_it_is_enough(
    scene: Scene, classes: dict[str, str]
) -> None:
    model, store = scene.model(slope=6.0), scene.world.store
    of_hungry = store.put(hungry(f"{scene.namespace}-hungry"))
    runtime = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]
    imageless: Object = {**runtime, "server": {**runtime["server"], "image": "localhost/absent:1"}}
    scene.api.apply(serving_runtime(scene.namespace, "imageless", imageless))
    scene.apply("early", model, runtime={"name": "later"}, hardware={"class": [classes["later"]]})
    # The others say which runtime they want: one of their namespace goes before one of the cluster.
    good = {"runtime": {"name": "onnxruntime"}}
    scene.apply("accountless", model, serviceAccountName="later", **good)
    scene.apply("deviceless", model, hardware={"class": [classes["absent"]]}, **good)
    scene.apply("imageless", model, runtime={"name": "imageless"})
    scene.apply("corrupt", store.put(models.corrupt(f"{scene.namespace}-corrupt")), **good)
    scene.apply("hungry", of_hungry, **good)

    scene.condition("early", "Stalled", "True", within=30)
    assert scene.not_ready("early", "")["reason"] in ("RuntimeNotFound", "HardwareClassNotFound")
    scene.api.apply(serving_runtime(scene.namespace, "later", runtime))
    scene.condition("early", "Stalled", "True", "HardwareClassNotFound", classes["later"], within=30)
    scene.api.apply(hardware_class(classes["later"]))
    scene.not_ready("accountless", "ServiceAccountNotFound", "spec.serviceAccountName")
    scene.condition("accountless", "Scheduled", "False", "ServiceAccountNotFound", "later")
    meta = {"name": "later", "namespace": scene.namespace}
    scene.api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    scene.not_ready("deviceless", "NoNodeFits", "example.com/absent")
    scene.condition("deviceless", "Scheduled", "False", "NoNodeFits", "HardwareClass")
    scene.apply("deviceless", model, hardware={"class": ["cpu"]}, **good)
    scene.not_ready("imageless", "ImagePullFailed", "localhost/absent:1")
    scene.apply("imageless", model, **good)
    scene.not_ready("corrupt", "ModelLoadFailed")
    scene.apply("corrupt", model, **good)
    scene.not_ready("hungry", "OutOfMemory", "spec.resources.memory")
    scene.apply("hungry", of_hungry, resources={"cpu": "50m", "memory": "2Gi"}, **good)

    for name in ("early", "accountless", "deviceless", "imageless", "corrupt", "hungry"):
        scene.ready(name)
        scene.predicts(name, of_hungry if name == "hungry" else model)


def test_quota_is_quoted_and_its_end_is_enough(scene: Scene) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-pods", "namespace": scene.namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    scene.api.apply(quota)
    model = scene.model(slope=9.0)
    scene.apply("crowded", model)
    scene.not_ready("crowded", "QuotaTooSmall", "no-pods")
    scene.api.delete("ResourceQuota", "no-pods", scene.namespace)
    scene.ready("crowded")


@pytest.mark.lasts(110)
def test_release_without_its_service_account_is_tried_again_by_itself(scene: Scene) -> None:
    scene.serve("patient", scene.model(slope=13.0))
    model = scene.model(slope=14.0)

    def release(deadline: str) -> None:
        rollout = {"progressDeadline": deadline}
        scene.apply("patient", model, rollout=rollout, serviceAccountName="patient")

    release("10s")
    scene.condition("patient", "Promoted", "False", "RolledBack", "it is tried again by itself", within=120)
    # The second try has time for a pod, on a node whose processors other scenarios share.
    release("2m")
    scene.condition("patient", "Promoted", "False", "RolledBack", "it is tried again by itself", within=120)
    meta = {"name": "patient", "namespace": scene.namespace}
    scene.api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    scene.condition("patient", "Promoted", "True", within=300)
    scene.predicts("patient", model)


@pytest.mark.lasts(80)
def test_evicted_pods_are_named_and_not_left_behind(scene: Scene) -> None:
    """The server writes more to its disk than it may, and the kubelet evicts the pod."""
    model = scene.model(slope=12.0)
    resources = {"cpu": CPU, "memory": MEMORY, "ephemeralStorage": "64Mi"}
    scene.serve("evicted", model, resources=resources, rollout={"restartLimit": 2})

    def dead() -> list[str]:
        return [
            pod["metadata"]["name"] for pod in scene.pods("evicted") if pod["status"]["phase"] == "Failed"
        ]

    def evict(number: int) -> None:
        scene.wait("a ready pod", lambda: _write_too_much(scene, "evicted"), 60)
        scene.wait(f"eviction {number}", lambda: len(dead()) >= number or Unmet(str(dead())), 120)

    evict(1)
    evict(2)
    scene.condition("evicted", "Ready", "False", "Evicted", "exceeds the limit", within=60)
    scene.wait("a ready pod", lambda: _write_too_much(scene, "evicted"), 60)
    first = dead()
    scene.wait("the oldest dead pod's end", lambda: set(first) - set(dead()) or Unmet(str(dead())), 120)
    scene.predicts("evicted", model)


def _write_too_much(scene: Scene, name: str) -> bool | Unmet:
    ready = [pod for pod in scene.pods(name) if conditions(pod).get("Ready", {}).get("status") == "True"]
    if not ready:
        return Unmet("no pod is ready")
    pod = ready[0]["metadata"]["name"]
    script = "open('/tmp/dump', 'wb').write(bytes(150_000_000))"
    done = scene.world.kubectl.attempt(
        "exec", "-n", scene.namespace, pod, "-c", "server", "--", "python3", "-c", script
    )
    return done.code == 0 or Unmet(done.err)


def test_broken_edit_leaves_the_old_revision_serving(scene: Scene) -> None:
    good = scene.model(slope=10.0)
    revision = serving(scene.serve("careful", good))
    scene.apply("careful", replace(good, content=b"other bytes"))  # another digest than the store's file has
    scene.condition("careful", "ModelVerified", "False", "DigestMismatch")
    assert serving(scene.service("careful")) == revision

    def old_answers() -> bool | Unmet:
        got = scene.world.client.predicts(scene.namespace, "careful", good)
        return got if isinstance(got, Unmet) else True

    stays("the old revision's service", old_answers, 5)
    scene.apply("careful", good)
    assert serving(scene.ready("careful")) == revision
