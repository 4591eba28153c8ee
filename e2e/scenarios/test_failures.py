"""While a model cannot serve, the status says why within seconds, and mending the cause is enough."""

from dataclasses import replace

from onnx import TensorProto, helper

from e2e.scenarios.library import models
from e2e.scenarios.library.api import Object, conditions
from e2e.scenarios.library.manifests import hardware_class, serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene, serving
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


def test_wrong_digest_is_named_and_the_right_one_serves(scene: Scene) -> None:
    model = scene.model(slope=2.0)
    wrong = "0" * 64
    scene.apply(
        "pinned", model, model={"uri": scene.world.store.uri(model), "format": "onnx", "sha256": wrong}
    )
    scene.not_ready("pinned", "DigestMismatch", model.sha256)
    scene.condition("pinned", "ModelVerified", "False", "DigestMismatch", wrong)
    scene.apply("pinned", model)
    scene.ready("pinned")
    scene.condition("pinned", "ModelVerified", "True")
    scene.predicts("pinned", model)


def test_missing_file_is_named_and_its_upload_is_enough(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    scene.world.store.fault(model, "not-found")
    scene.apply("missing", model)
    scene.not_ready("missing", "SourceNotFound", model.name)
    scene.world.store.fault(model, "none")
    scene.ready("missing")
    scene.predicts("missing", model)


def test_forbidden_file_is_named(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    scene.world.store.fault(model, "forbidden")
    scene.apply("forbidden", model)
    scene.not_ready("forbidden", "SourceForbidden", model.name)


def test_unreachable_source_is_named(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    uri = scene.world.store.uri(model).replace(":8080", ":1")
    scene.apply("unreachable", model, model={"uri": uri, "format": "onnx", "sha256": model.sha256})
    scene.not_ready("unreachable", "SourceUnreachable")


def test_address_that_fetching_may_not_reach_is_refused(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    uri = "http://169.254.169.254/latest/model.onnx"
    scene.apply("denied", model, model={"uri": uri, "format": "onnx", "sha256": model.sha256})
    scene.not_ready("denied", "AddressDenied", "169.254.169.254")


def test_corrupt_file_is_named_and_a_good_one_serves(scene: Scene) -> None:
    bad = scene.world.store.put(models.corrupt(f"{scene.namespace}-corrupt"))
    scene.apply("corrupt", bad)
    scene.not_ready("corrupt", "ModelLoadFailed")
    good = scene.model(slope=4.0)
    scene.apply("corrupt", good)
    scene.ready("corrupt")
    scene.predicts("corrupt", good)


def test_model_that_fails_on_everything_is_started_anew_and_named(scene: Scene) -> None:
    broken = scene.world.store.put(models.exhausted(f"{scene.namespace}-exhausted"))
    scene.serve("exhausted", broken)

    def asked_again_and_again() -> bool | Unmet:
        """Each start serves until the first request."""
        scene.world.client.infer(scene.namespace, "exhausted")
        found = conditions(scene.service("exhausted"))["Ready"]
        said = found["reason"] == "ModelBroken" and "fails even on zeros now" in found["message"]
        return said or Unmet(f"{found}")

    scene.wait("the failure in the conditions", asked_again_and_again, RESTARTS_SECONDS)
    (pod,) = scene.pods("exhausted")
    assert sum(state["restartCount"] for state in pod["status"]["containerStatuses"]) >= 1
    good = scene.model(slope=4.0)
    scene.apply("exhausted", good)
    scene.ready("exhausted")
    scene.predicts("exhausted", good)


def test_too_little_memory_is_named_and_more_of_it_serves(scene: Scene) -> None:
    model = scene.world.store.put(hungry(f"{scene.namespace}-hungry"))
    scene.apply("hungry", model)
    scene.not_ready("hungry", "OutOfMemory", "spec.resources.memory")
    scene.apply("hungry", model, resources={"cpu": "50m", "memory": "2Gi"})
    scene.ready("hungry")
    scene.predicts("hungry", model)


def test_full_disk_is_named_before_the_download_and_space_is_enough(scene: Scene) -> None:
    model = scene.model(slope=5.0)
    scene.world.store.fault(model, "huge")
    scene.apply("huge", model)
    scene.not_ready("huge", "InsufficientStorage")
    scene.world.store.fault(model, "none")
    scene.ready("huge")
    scene.predicts("huge", model)


def test_missing_image_is_named_and_a_present_one_serves(scene: Scene) -> None:
    good = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]
    bad: Object = {**good, "server": {**good["server"], "image": "localhost/absent:1"}}
    scene.api.apply(serving_runtime(scene.namespace, "custom", bad))
    model = scene.model(slope=6.0)
    scene.apply("imageless", model, runtime={"name": "custom"})
    scene.not_ready("imageless", "ImagePullFailed", "localhost/absent:1")
    scene.apply("imageless", model, runtime={"name": "onnxruntime"})
    scene.ready("imageless")
    scene.predicts("imageless", model)


def test_absent_device_is_named_and_another_class_serves(scene: Scene) -> None:
    absent = f"absent-{scene.namespace}"
    scene.api.apply(hardware_class(absent, resources=[{"name": "example.com/absent", "count": 1}]))
    model = scene.model(slope=7.0)
    try:
        scene.apply("deviceless", model, hardware={"class": [absent]})
        scene.not_ready("deviceless", "Unschedulable", "example.com/absent")
        scene.condition("deviceless", "Scheduled", "False", "Unschedulable")
        scene.apply("deviceless", model, hardware={"class": ["cpu"]})
        scene.ready("deviceless")
    finally:
        scene.api.delete("HardwareClass", absent)
    scene.predicts("deviceless", model)


def test_unknown_runtime_and_class_stall_and_their_creation_is_enough(scene: Scene) -> None:
    model = scene.model(slope=8.0)
    later = f"later-{scene.namespace}"
    scene.apply("early", model, runtime={"name": "later"}, hardware={"class": [later]})
    scene.condition("early", "Stalled", "True", within=30)
    assert scene.not_ready("early", "")["reason"] in ("RuntimeNotFound", "HardwareClassNotFound")
    good = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]
    scene.api.apply(serving_runtime(scene.namespace, "later", good))
    scene.condition("early", "Stalled", "True", "HardwareClassNotFound", later, within=30)
    scene.api.apply(hardware_class(later))
    try:
        scene.ready("early")
        scene.predicts("early", model)
    finally:
        scene.api.delete("HardwareClass", later)


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
    scene.not_ready("crowded", "QuotaExceeded", "no-pods")
    scene.api.delete("ResourceQuota", "no-pods", scene.namespace)
    scene.ready("crowded")


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
