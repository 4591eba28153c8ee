"""The operator keeps its own objects right and leaves everybody else's alone."""

from collections.abc import Callable
from functools import partial

from e2e.scenarios.library.api import Object, conditions, names
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import SERVICE_LABEL, Scene, serving
from e2e.scenarios.library.waiting import Unmet, stays

FOREIGN = "example.com/owner"


def test_what_others_do_to_children_is_kept_survived_or_mended(scene: Scene) -> None:
    """The name of the service is as long as names may be."""
    model = scene.model(slope=2.0)
    name = "n" + "0123456789" * 6 + "ab"
    assert len(name) == 63
    revision = serving(scene.serve(name, model))
    _restart_is_survived(scene, name, revision)
    _foreign_marks_are_kept(scene, name, revision, model)
    _deleted_ones_come_back(scene, name)
    scene.ready(name)
    scene.predicts(name, model)
    for kind, children in scene.children(name).items():
        for child in children:
            assert len(child["metadata"]["name"]) <= 63, (kind, child["metadata"]["name"])


def _restart_is_survived(scene: Scene, name: str, revision: str) -> None:
    before = {pod["metadata"]["uid"] for pod in scene.pods(name)}
    scene.world.kubectl.run("rollout", "restart", f"deployment/{revision}", "-n", scene.namespace)
    scene.world.kubectl.run(
        "rollout", "status", f"deployment/{revision}", "-n", scene.namespace, "--timeout=240s"
    )
    scene.ready(name)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in scene.pods(name))
    assert serving(scene.service(name)) == revision
    generation = scene.deployment(name)["metadata"]["generation"]

    def undisputed() -> bool | Unmet:
        now = scene.deployment(name)["metadata"]["generation"]
        return True if now == generation else Unmet(f"generation {generation} became {now}")

    stays("the restarted Deployment", undisputed, 5)


def _foreign_marks_are_kept(scene: Scene, name: str, revision: str, model: Model) -> None:
    mark: Object = {"metadata": {"annotations": {FOREIGN: "them"}, "labels": {FOREIGN: "them"}}}
    targets = (("Deployment", revision), ("Service", revision), ("Service", name))
    for kind, target in targets:
        scene.api.patch(kind, target, scene.namespace, mark)
    scene.apply(name, model, scaling={"min": 2})
    scene.wait(
        "a second replica",
        lambda: True if scene.deployment(name)["spec"]["replicas"] == 2 else Unmet("one replica"),
        30,
    )
    scene.ready(name)
    for kind, target in targets:
        metadata = scene.api.need(kind, target, scene.namespace)["metadata"]
        assert metadata["annotations"][FOREIGN] == "them", (kind, target)
        assert metadata["labels"][FOREIGN] == "them", (kind, target)


def _deleted_ones_come_back(scene: Scene, name: str) -> None:
    # The Services are the revision's headless one, and the one that bears the service's name.
    for kind, count in {"PodDisruptionBudget": 1, "Service": 2, "Deployment": 1}.items():
        children = scene.children(name)[kind]
        assert len(children) == count
        for child in children:
            scene.api.delete(kind, child["metadata"]["name"], scene.namespace)
        for child in children:
            scene.wait(f"a new {kind}", partial(_replaced, scene, kind, child), 240)


def _replaced(scene: Scene, kind: str, old: Object) -> Object | Unmet:
    found = scene.api.get(kind, old["metadata"]["name"], scene.namespace)
    if found is None or found["metadata"]["uid"] == old["metadata"]["uid"]:
        return Unmet("it is not there")
    return found


def test_lost_record_is_replaced_by_a_rollover_and_a_deleted_namespace_goes(scene: Scene) -> None:
    # Kubernetes looks again after half the longest grace period of the pods of a namespace that is deleted:
    # the drain of these takes seconds.
    rollout = Rollout.begin(scene, "recorded", quick())
    lost = rollout.stable()
    with rollout.load() as load:
        scene.api.delete("ControllerRevision", lost, scene.namespace)
        scene.gone("Deployment", lost)
        revision = serving(scene.ready("recorded"))
    load.assert_flawless(at_least=20)
    assert names(scene.children("recorded")["ControllerRevision"]) == [revision]
    scene.api.delete("Namespace", scene.namespace)
    scene.wait(
        "end of the namespace",
        lambda: Unmet("it is there") if scene.api.get("Namespace", scene.namespace) else True,
        120,
    )


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
