"""Attacks by hostile clients, pods and tenants cost their neighbours nothing."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import quote

import pytest

from e2e.scenarios.library import installation, parts, pods
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.attack import attack
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.network_policies import Endpoint, allowed
from e2e.scenarios.library.rollouts import IMAGE
from e2e.scenarios.library.scaling import lasts
from e2e.scenarios.library.scene import GATEWAY, OPERATOR, Scene, restarts, workload
from e2e.scenarios.library.traffic import POD
from e2e.scenarios.library.waiting import SYSTEM, Unmet

Record = Callable[[str, Any], None]
FLOODS: Final = ("bodies", "tokens", "metrics")
SIDECAR: Final = {"tokens": 8081, "metrics": 8082}
FOLLOWED_SECONDS: Final = 60
RATE: Final = 20
ENVOY_PORT: Final = 8080
PROMETHEUS: Final = f"http://tailbound-prometheus.{SYSTEM}.svc:9090/api/v1/query"
SCRAPED_SECONDS: Final = 60
SIZED_SECONDS: Final = 25
"""Two decisions of the autoscaler, and a scrape before them."""
LOOPING: Final = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
COSTLY_SERVICES: Final = 20
MADE_SECONDS: Final = 30


@pytest.mark.security
@pytest.mark.disturbs(needs=(parts.GATEWAYS,))
def test_floods_cost_a_neighbour_no_request(
    scene: Scene, other_scene: Scene, record_property: Record
) -> None:
    model = scene.model(slope=3.0)
    scene.apply("steady", model)
    other_scene.serve("flooded", model)
    scene.ready("steady")
    gateways = workload(scene.api, GATEWAY)
    before = restarts(gateways)
    host = f"flooded.{other_scene.namespace}"
    for number, kind in enumerate(FLOODS):
        with scene.world.client.load(scene.namespace, "steady", rate=RATE) as load, ExitStack() as attacks:
            for pod in gateways:
                port = SIDECAR.get(kind, ENVOY_PORT)
                attacks.enter_context(attack(scene.world, kind, pod["status"]["podIP"], port, host))
            scene.apply("steady", model, timeout=f"{7 + number}s")
            scene.condition("steady", "TrafficApplied", "True", within=FOLLOWED_SECONDS)
        record_property("lost", load.result["failed"])
        load.assert_flawless(at_least=100)
        assert restarts(workload(scene.api, GATEWAY)) == before, kind


@pytest.mark.security
def test_pod_with_the_label_of_a_gateway_is_neither_asked_nor_waited_for(
    scene: Scene, record_property: Record
) -> None:
    model = scene.model(slope=3.0)
    scene.serve("steady", model)
    impostor = _impostor(scene)
    scene.api.create(impostor)
    name = impostor["metadata"]["name"]
    try:
        scene.world.kubectl.run(
            "wait", "-n", SYSTEM, f"pod/{name}", "--for=condition=Ready", "--timeout=120s"
        )
        scene.apply("steady", model, timeout="7s")
        scene.condition("steady", "TrafficApplied", "True", within=FOLLOWED_SECONDS)
        found = scene.api.need("Pod", name, SYSTEM)["metadata"]
        record_property("lost", int("deletionTimestamp" in found))
        assert "deletionTimestamp" not in found
    finally:
        scene.api.delete("Pod", name, SYSTEM, grace_seconds=0)


def _impostor(scene: Scene) -> Object:
    """A pod beside the gateways that carries their component label, as another application's may."""
    client = scene.api.need("Pod", POD, pods.NAMESPACE)["spec"]
    (container,) = client["containers"]
    kept = ("name", "image", "imagePullPolicy", "resources", "securityContext")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"impostor-{scene.namespace}"[:63].rstrip("-"),
            "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/component": "gateway"},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": client["securityContext"],
            "containers": [{field: container[field] for field in kept if field in container}],
        },
    }


@pytest.mark.security
def test_users_get_no_further_than_their_verbs(scene: Scene, record_property: Record) -> None:
    scene.apply("mine", scene.model(slope=3.0))
    _bind(scene, "promoter", "clusterrole=tailbound-promoter")
    _bind(scene, "tenant", "clusterrole=tailbound-edit")
    _bind(scene, "tenant", "clusterrole=tailbound-view", "tenant-view")
    scene.world.kubectl.run(
        *("create", "role", "archivist", "-n", scene.namespace, "--resource=controllerrevisions.apps"),
        "--verb=create,update,patch,get",
    )
    _bind(scene, "archivist", "role=archivist")
    record = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "mine-r9-a", "labels": {"app.kubernetes.io/managed-by": "tailbound"}},
        "revision": 9,
        "data": {"template": {"spec": {"hostPID": True}}},
    }
    grant = {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "HostGrant",
        "metadata": {"name": scene.namespace},
        "spec": {"namespaces": [scene.namespace], "hosts": ["*"]},
    }
    keep = {"metadata": {"finalizers": ["example.com/kept"]}}
    orphan = {"metadata": {"ownerReferences": [_owner("absent")]}}
    attempts: dict[str, tuple[str, tuple[str, ...], Object]] = {
        "the-spec-by-a-promoter": ("promoter", _PATCH, {"spec": {"stopped": True}}),
        "a-finalizer-by-a-promoter": ("promoter", _PATCH, keep),
        "an-owner-by-a-promoter": ("promoter", _PATCH, orphan),
        "the-status-by-a-tenant": ("tenant", (*_PATCH, "--subresource=status"), {"status": {"hosts": []}}),
        "a-grant-by-a-tenant": ("tenant", ("create",), grant),
        "a-record-by-an-archivist": ("archivist", ("create",), record),
    }
    let_through = [
        name
        for name, (user, verb, document) in attempts.items()
        if _attempt(scene, user, verb, document) == 0
    ]
    record_property("lost", len(let_through))
    assert let_through == []


_PATCH: Final = ("patch", "inferenceservice", "mine", "--type=merge")


def _owner(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "0"}


def _bind(scene: Scene, user: str, role: str, name: str = "") -> None:
    scene.world.kubectl.run(
        *("create", "rolebinding", name or user, "-n", scene.namespace),
        *(f"--{role}", f"--user={user}-{scene.namespace}"),
    )


def _attempt(scene: Scene, user: str, verb: tuple[str, ...], document: Object) -> int:
    """The exit status of kubectl for this user; what fails for another reason than a refusal is an error."""
    options = ("-n", scene.namespace, f"--as={user}-{scene.namespace}", *verb)
    if verb[0] == "create":
        outcome = scene.world.kubectl.attempt(*options, "-f", "-", text=json.dumps(document))
    else:
        outcome = scene.world.kubectl.attempt(*options, f"--patch={json.dumps(document)}")
    assert outcome.code == 0 or "forbidden" in outcome.err.lower(), (verb, outcome)
    return outcome.code


@pytest.mark.security
def test_policies_let_nobody_but_the_operator_and_prometheus_behind_the_gateways(
    scene: Scene, record_property: Record
) -> None:
    """Evaluated over the pods as they are: the network of our own cluster enforces no policy."""
    policies = json.loads(scene.api.raw("GET", "/apis/networking.k8s.io/v1/networkpolicies")[1])["items"]
    everybody = scene.api.list("Pod")
    readers = {
        SIDECAR["tokens"]: _uids(workload(scene.api, OPERATOR)),
        SIDECAR["metrics"]: _uids(workload(scene.api, "tailbound-prometheus")),
        ENVOY_PORT: _uids(everybody),
    }
    wrong = [
        (pod["metadata"]["name"], port)
        for gateway in map(Endpoint.of, workload(scene.api, GATEWAY))
        for port, who in readers.items()
        for pod in everybody
        if allowed(policies, Endpoint.of(pod), gateway, port) is not (pod["metadata"]["uid"] in who)
    ]
    record_property("lost", len(wrong))
    assert wrong == []


def _uids(found: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


@pytest.mark.security
@pytest.mark.lasts(80)
def test_forged_metrics_of_a_serving_pod_scale_no_other_service(
    scene: Scene, other_scene: Scene, record_property: Record
) -> None:
    model = scene.model(slope=3.0)
    scene.serve("victim", model, sla={"latency": {"p99": "2s"}}, scaling={"min": 1, "max": 3})
    good = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]["server"]
    server = {
        **{key: good[key] for key in ("imagePullPolicy", "ports")},
        "image": f"{installation.registry()}/{IMAGE}:{installation.TAG}",
    }
    runtime = {"formats": [{"name": "onnx"}], "server": server}
    other_scene.api.apply(serving_runtime(other_scene.namespace, "forging", runtime))
    forged = [{"name": "FORGED_METRICS", "value": _forged(scene.namespace)}]
    other_scene.serve("forger", model, runtime={"name": "forging"}, env=forged)
    own = f'own_total{{namespace="{other_scene.namespace}"}}'
    scene.wait("a scrape of the forger", lambda: _found(scene, own), SCRAPED_SECONDS)
    before = len(scene.pods("victim"))
    lasts(SIZED_SECONDS)
    believed = _found(scene, '{forged="yes"}') is True
    gained = len(scene.pods("victim")) - before
    record_property("lost", gained + believed)
    assert (gained, believed) == (0, False)


def _forged(namespace: str) -> str:
    """A gateway's counters of the victim, besides a metric of the pod's own."""
    labels = f'envoy_cluster_name="{namespace}/victim/victim-r1/http",forged="yes"'
    metrics = ("envoy_cluster_upstream_rq_total", "envoy_cluster_upstream_rq_active")
    return "".join(f"{metric}{{{labels}}} 1000000\n" for metric in metrics) + "own_total 1\n"


def _found(scene: Scene, selector: str) -> bool | Unmet:
    """Whether the Prometheus of the installation has such a series."""
    answer = scene.world.client.request(f"{PROMETHEUS}?query={quote(selector)}")
    assert answer.status == 200, answer.body
    return True if answer.json()["data"]["result"] else Unmet(f"no series {selector}")


@pytest.mark.security
def test_looping_templates_of_a_namespace_delay_no_other(
    scene: Scene, other_scene: Scene, record_property: Record
) -> None:
    server = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]["server"]
    looping = {"formats": [{"name": "onnx"}], "server": {**server, "args": [LOOPING]}}
    other_scene.api.apply(serving_runtime(other_scene.namespace, "looping", looping))
    model = scene.model(slope=3.0)
    for number in range(COSTLY_SERVICES):
        other_scene.apply(f"costly-{number}", model, runtime={"name": "looping"})
    began = time.monotonic()
    scene.apply("steady", model)
    scene.wait("a Deployment", lambda: bool(scene.children("steady")["Deployment"]) or Unmet("none"), 240)
    took = time.monotonic() - began
    record_property("lost", int(took > MADE_SECONDS))
    assert took <= MADE_SECONDS
    other_scene.not_ready("costly-0", "RuntimeInvalid", "a second of CPU time", within=120)
