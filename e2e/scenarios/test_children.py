"""The operator keeps its own objects right and leaves everybody else's alone."""

from collections.abc import Callable
from functools import partial

from e2e.scenarios.library.api import Object, conditions, names
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import SERVICE_LABEL, Scene, serving
from e2e.scenarios.library.waiting import Unmet, stays

FOREIGN = "example.com/owner"


def test_children_deleted_by_hand_come_back(scene: Scene) -> None:
    model = scene.model(slope=2.0)
    scene.serve("mended", model, scaling={"min": 2})
    # The Services are the revision's headless one, and the one that bears the service's name.
    for kind, count in {"PodDisruptionBudget": 1, "Service": 2, "Deployment": 1}.items():
        children = scene.children("mended")[kind]
        assert len(children) == count
        for child in children:
            scene.api.delete(kind, child["metadata"]["name"], scene.namespace)
        for child in children:
            scene.wait(f"a new {kind}", partial(_replaced, scene, kind, child), 240)
    scene.ready("mended")
    scene.predicts("mended", model)


def _replaced(scene: Scene, kind: str, old: Object) -> Object | Unmet:
    found = scene.api.get(kind, old["metadata"]["name"], scene.namespace)
    if found is None or found["metadata"]["uid"] == old["metadata"]["uid"]:
        return Unmet("it is not there")
    return found


def test_lost_record_of_a_revision_is_replaced_by_a_rollover(scene: Scene) -> None:
    model = scene.model(slope=2.0)
    lost = serving(scene.serve("recorded", model))
    with scene.world.client.load(scene.namespace, "recorded") as load:
        scene.api.delete("ControllerRevision", lost, scene.namespace)
        scene.gone("Deployment", lost)
        revision = serving(scene.ready("recorded"))
    load.assert_flawless(at_least=20)
    assert names(scene.children("recorded")["ControllerRevision"]) == [revision]


def test_foreign_labels_and_annotations_outlive_our_writes(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    revision = serving(scene.serve("shared", model))
    mark: Object = {"metadata": {"annotations": {FOREIGN: "them"}, "labels": {FOREIGN: "them"}}}
    targets = (("Deployment", revision), ("Service", revision), ("Service", "shared"))
    for kind, name in targets:
        scene.api.patch(kind, name, scene.namespace, mark)
    scene.apply("shared", model, scaling={"min": 2})
    scene.wait(
        "a second replica",
        lambda: True if scene.deployment("shared")["spec"]["replicas"] == 2 else Unmet("one replica"),
        30,
    )
    scene.ready("shared")
    for kind, name in targets:
        metadata = scene.api.need(kind, name, scene.namespace)["metadata"]
        assert metadata["annotations"][FOREIGN] == "them", (kind, name)
        assert metadata["labels"][FOREIGN] == "them", (kind, name)


def test_rollout_restart_of_a_child_is_survived(scene: Scene) -> None:
    model = scene.model(slope=4.0)
    revision = serving(scene.serve("restarted", model))
    before = {pod["metadata"]["uid"] for pod in scene.pods("restarted")}
    scene.world.kubectl.run("rollout", "restart", f"deployment/{revision}", "-n", scene.namespace)
    scene.world.kubectl.run(
        "rollout", "status", f"deployment/{revision}", "-n", scene.namespace, "--timeout=240s"
    )
    scene.ready("restarted")
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in scene.pods("restarted"))
    assert serving(scene.service("restarted")) == revision
    generation = scene.deployment("restarted")["metadata"]["generation"]

    def undisputed() -> bool | Unmet:
        now = scene.deployment("restarted")["metadata"]["generation"]
        return True if now == generation else Unmet(f"generation {generation} became {now}")

    stays("the restarted Deployment", undisputed, 5)
    scene.predicts("restarted", model)


def test_name_at_the_limit_serves(scene: Scene) -> None:
    model = scene.model(slope=5.0)
    name = "n" + "0123456789" * 6 + "ab"
    assert len(name) == 63
    scene.serve(name, model)
    scene.predicts(name, model)
    for kind, children in scene.children(name).items():
        for child in children:
            assert len(child["metadata"]["name"]) <= 63, (kind, child["metadata"]["name"])


def foreign_service(namespace: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"team": "theirs"}},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    }


def foreign_deployment(namespace: str, name: str) -> Object:
    labels = {"app": "theirs"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "theirs", "image": "localhost/theirs:1"}]},
            },
        },
    }


def _revision_name(scene: Scene, name: str, model: Model) -> str:
    """The name that the first revision of this service gets: found by making it once."""
    scene.apply(name, model)
    revision = scene.wait(
        "first revision",
        lambda: found[0] if (found := scene.children(name)["ControllerRevision"]) else Unmet("no revision"),
        30,
    )
    scene.api.delete("InferenceService", name, scene.namespace)
    scene.wait(
        "end of the children",
        lambda: (
            Unmet(str(left)) if (left := {k: len(v) for k, v in scene.children(name).items() if v}) else True
        ),
        90,
    )
    return str(revision["metadata"]["name"])


FOREIGN_OBJECTS: dict[str, Callable[[str, str], Object]] = {
    "Service": foreign_service,
    "Deployment": foreign_deployment,
}


def test_objects_of_others_stall_the_service_and_stay_untouched(scene: Scene) -> None:
    model = scene.model(slope=7.0)
    taken = {"Service": "taken", "Deployment": _revision_name(scene, "held", model)}
    theirs = {kind: scene.api.create(FOREIGN_OBJECTS[kind](scene.namespace, taken[kind])) for kind in taken}
    services = {"Service": "taken", "Deployment": "held"}
    for service in services.values():
        scene.apply(service, model)
    for kind, service in services.items():
        scene.condition(service, "Stalled", "True", "NameConflict", taken[kind], within=30)
        scene.not_ready(service, "NameConflict", kind)
        after = scene.api.need(kind, taken[kind], scene.namespace)
        assert after["metadata"]["uid"] == theirs[kind]["metadata"]["uid"]
        assert after["spec"] == theirs[kind]["spec"]
        assert after["metadata"]["labels"] == theirs[kind]["metadata"]["labels"]
        scene.api.delete(kind, taken[kind], scene.namespace)
    for service in services.values():
        scene.ready(service)
        assert conditions(scene.service(service))["Stalled"]["status"] == "False"
        scene.predicts(service, model)


def test_service_named_like_the_api_server_touches_nothing_of_it(scene: Scene) -> None:
    api = scene.api
    before = api.need("Service", "kubernetes", "default")
    slices = api.list("EndpointSlice", "default")
    manifest = scene.manifest("kubernetes", scene.model(slope=8.0))
    manifest["metadata"]["namespace"] = "default"
    in_default = Scene(scene.world, "default")
    api.apply(manifest)
    try:
        in_default.condition("kubernetes", "Stalled", "True", "NameConflict", "kubernetes", within=30)
    finally:
        api.delete("InferenceService", "kubernetes", "default")
    after = api.need("Service", "kubernetes", "default")
    assert after == before
    assert api.list("EndpointSlice", "default", "kubernetes.io/service-name=kubernetes") == [
        item for item in slices if item["metadata"]["name"] == "kubernetes"
    ]
    left = {kind: api.list(kind, "default", f"{SERVICE_LABEL}=kubernetes") for kind in ("Deployment", "Pod")}
    in_default.wait("end of what it made", lambda: True if _none_left(in_default) else Unmet(str(left)), 240)


def _none_left(scene: Scene) -> bool:
    return not any(scene.children("kubernetes").values())


def test_deleted_namespace_goes_while_the_operator_runs(scene: Scene) -> None:
    # Kubernetes looks again after half the longest grace period of its pods, which covers their time-out.
    scene.serve("leaving", scene.model(slope=9.0), timeout="5s")
    scene.api.delete("Namespace", scene.namespace)
    scene.wait(
        "end of the namespace",
        lambda: Unmet("it is there") if scene.api.get("Namespace", scene.namespace) else True,
        120,
    )
