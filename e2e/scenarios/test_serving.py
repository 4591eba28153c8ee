"""From `kubectl apply` to right answers under the promised names, and explained refusals elsewhere."""

import json

import pytest

from e2e.scenarios.library.scene import REVISION_LABEL, SERVICE_LABEL, Scene, restarts, serving
from e2e.scenarios.library.traffic import VALUES
from e2e.scenarios.library.waiting import Unmet

GATEWAY_URL = "http://tailbound-gateway.tailbound-system.svc"
TOO_LARGE_BYTES = 12 * 1024 * 1024


def test_applied_service_becomes_ready_and_predicts_what_onnxruntime_predicts(scene: Scene) -> None:
    model = scene.model(slope=2.5, offset=-1.0)
    kubectl = scene.world.kubectl
    kubectl.run("apply", "-f", "-", text=json.dumps(scene.manifest("first", model)))
    kubectl.run("wait", "--for=condition=Ready", "infs/first", "-n", scene.namespace, "--timeout=240s")
    answer = scene.world.client.infer(scene.namespace, "first")
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == model.expected(VALUES)
    service = scene.service("first")
    assert service["status"]["url"] == f"http://first.{scene.namespace}.svc.cluster.local"
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]
    (pod,) = scene.pods("first")
    assert pod["metadata"]["labels"][SERVICE_LABEL] == "first"
    assert pod["metadata"]["labels"][REVISION_LABEL] == serving(service)


def test_kubectl_wait_right_after_an_edit_waits_for_the_edit(scene: Scene) -> None:
    old, new = scene.model(slope=1.0), scene.model(slope=7.0)
    scene.serve("edited", old)
    kubectl = scene.world.kubectl
    kubectl.run(
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        text=json.dumps(scene.manifest("edited", new)),
    )
    kubectl.run("wait", "--for=condition=Ready", "infs/edited", "-n", scene.namespace, "--timeout=240s")
    assert scene.world.client.predicts(scene.namespace, "edited", new) == new.expected(VALUES)


def test_service_answers_to_its_names_and_hosts_and_to_no_others(scene: Scene) -> None:
    model = scene.model(slope=3.0)
    host = f"{scene.namespace}.example.com"
    scene.serve("named", model, hosts=[host])
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


def test_host_of_another_service_stays_with_its_first_owner(scene: Scene) -> None:
    first, second = scene.model(slope=4.0), scene.model(slope=5.0)
    host = f"{scene.namespace}.example.org"
    scene.serve("owner", first, hosts=[host])
    scene.apply("claimant", second, hosts=[host])
    scene.condition("claimant", "TrafficApplied", "False", "HostConflict", host)
    answer = scene.world.client.infer(scene.namespace, "owner", base=GATEWAY_URL, host=host)
    assert answer.status == 200, answer
    scene.predicts("claimant", second)  # under its own name it serves


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


def test_stopped_service_has_no_pods_and_answers_503_until_it_is_started(scene: Scene) -> None:
    model = scene.model(slope=6.0)
    scene.serve("pausing", model)
    scene.apply("pausing", model, stopped=True)
    scene.condition("pausing", "Ready", "False", "Stopped")
    scene.wait("no pods", lambda: Unmet("pods are left") if scene.pods("pausing") else True, 240)
    answer = scene.world.client.infer(scene.namespace, "pausing")
    assert answer.status == 503, answer
    assert "retry-after" in answer.headers
    assert "stopped" in answer.body
    scene.apply("pausing", model, stopped=False)
    scene.ready("pausing")
    scene.predicts("pausing", model)


def test_body_over_the_limit_is_refused_with_the_limit_in_words(scene: Scene) -> None:
    scene.serve("bounded", scene.model(slope=8.0))
    answer = scene.world.client.request(
        f"http://bounded.{scene.namespace}.svc/v2/models/bounded/infer",
        method="POST",
        body=b"x" * TOO_LARGE_BYTES,
    )
    assert answer.status == 413, answer
    assert any(character.isdigit() for character in answer.body), (
        f"the 413 must name the limit: {answer.body}"
    )


def test_scaling_through_kubectl_makes_no_new_revision(scene: Scene) -> None:
    model = scene.model(slope=9.0)
    revision = serving(scene.serve("scaled", model))
    (first,) = scene.pods("scaled")
    scene.world.kubectl.run("scale", "infs/scaled", "--replicas=2", "-n", scene.namespace)
    scene.wait(
        "two ready replicas",
        lambda: (
            found
            if (found := scene.service("scaled")["status"]["stable"])["ready"] == 2
            else Unmet(str(found))
        ),
        120,
    )
    assert serving(scene.ready("scaled")) == revision
    assert first["metadata"]["name"] in [pod["metadata"]["name"] for pod in scene.pods("scaled")]
    assert [budget["metadata"]["name"] for budget in scene.children("scaled")["PodDisruptionBudget"]] == [
        revision
    ]


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
def test_default_hardware_classes_place_the_pod(scene: Scene, hardware: str) -> None:
    model = scene.model(slope=10.0)
    scene.serve("placed", model, hardware={"class": [hardware]})
    (pod,) = scene.pods("placed")
    limits = next(item for item in pod["spec"]["containers"] if item["name"] == "server")["resources"][
        "limits"
    ]
    assert limits.get("nvidia.com/gpu") == ("1" if hardware == "gpu" else None)
