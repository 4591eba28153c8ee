"""Gateways may be replaced, lose the API server or read nonsense: requests go on being answered."""

import json

import pytest

from e2e.scenarios.library import host
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.scene import GATEWAY, OPERATOR, Scene, scale, workload
from e2e.scenarios.library.waiting import SYSTEM, Unmet, stays

pytestmark = pytest.mark.disturbs

GATEWAY_PORT = 8080
OBSERVED_PORT = 8081


def observed(scene: Scene, pod: Object, service: str) -> Object | Unmet:
    """What a gateway pod says about a service, read as the operator reads it."""
    token = scene.world.kubectl.run(
        "create", "token", OPERATOR, "-n", SYSTEM, "--audience", "tailbound-gateway"
    ).strip()
    answer = scene.world.client.request(
        f"http://{pod['status']['podIP']}:{OBSERVED_PORT}/observed?service={scene.namespace}/{service}",
        headers={"Authorization": f"Bearer {token}"},
    )
    if answer.status != 200:
        return Unmet(f"HTTP {answer.status}: {answer.body}")
    found: Object | None = answer.json()["services"].get(f"{scene.namespace}/{service}")
    return found if found is not None else Unmet(answer.body)


def test_observed_is_for_the_operator_only(scene: Scene) -> None:
    scene.serve("private", scene.model(slope=1.0))
    pod = workload(scene.api, GATEWAY)[0]
    url = f"http://{pod['status']['podIP']}:{OBSERVED_PORT}/observed"
    assert scene.world.client.request(url).status == 401
    token = scene.world.kubectl.run(
        "create", "token", "default", "-n", scene.namespace, "--audience", "tailbound-gateway"
    ).strip()
    assert scene.world.client.request(url, headers={"Authorization": f"Bearer {token}"}).status == 403
    seen = scene.wait("an applied route", lambda: observed(scene, pod, "private"), 240)
    assert seen["applied"]["generation"] == scene.service("private")["metadata"]["generation"]


def test_gateways_replaced_under_load_fail_no_request(scene: Scene) -> None:
    model = scene.model(slope=2.0)
    scene.serve("steady", model)
    client, kubectl = scene.world.client, scene.world.kubectl
    before = {pod["metadata"]["uid"] for pod in workload(scene.api, GATEWAY)}
    with (
        client.load(scene.namespace, "steady") as kept,
        client.load(scene.namespace, "steady", new_connections=True) as fresh,
    ):
        kubectl.run("rollout", "restart", f"deployment/{GATEWAY}", "-n", SYSTEM)
        kubectl.run("rollout", "status", f"deployment/{GATEWAY}", "-n", SYSTEM, "--timeout=300s")
        scene.wait(
            "end of the old gateways",
            lambda: (
                Unmet("they drain")
                if before & {pod["metadata"]["uid"] for pod in workload(scene.api, GATEWAY)}
                else True
            ),
            120,
        )
    kept.assert_flawless(at_least=50)
    fresh.assert_flawless(at_least=50)
    scene.ready("steady")


def test_nonsense_in_status_traffic_quarantines_its_own_service_only(scene: Scene) -> None:
    bad, good, newer = scene.model(slope=3.0), scene.model(slope=4.0), scene.model(slope=5.0)
    scene.serve("broken", bad)
    scene.serve("sound", good)
    scale(scene.world, OPERATOR, 0)  # it would mend the status at once
    try:
        traffic = scene.service("broken")["status"]["traffic"]
        nonsense = {
            "generation": traffic["generation"] + 1,
            "backends": [{**backend, "weight": 0} for backend in traffic["backends"]],
        }
        scene.api.patch(
            "InferenceService",
            "broken",
            scene.namespace,
            {"status": {"traffic": nonsense}},
            subresource="status",
        )
        for pod in workload(scene.api, GATEWAY):

            def rejected(pod: Object = pod) -> Object | Unmet:
                seen = observed(scene, pod, "broken")
                if isinstance(seen, Unmet):
                    return seen
                return seen["rejected"] if seen.get("rejected") else Unmet(json.dumps(seen))

            found = scene.wait("the rejected route", rejected, 240)
            assert found["trafficGeneration"] == nonsense["generation"]
            assert found["message"]
        scene.predicts("broken", bad)  # the last good state stays in force
        scene.predicts("sound", good)
    finally:
        scale(scene.world, OPERATOR, 2)
    scene.ready("broken")
    scene.serve("sound", newer)
    scene.predicts("sound", newer)


@pytest.mark.needs_own_cluster
def test_gateway_restarted_without_the_api_server_serves_its_snapshot(scene: Scene) -> None:
    model = scene.model(slope=6.0)
    scene.serve("remembered", model)
    pod = workload(scene.api, GATEWAY)[0]
    base = f"http://{pod['status']['podIP']}:{GATEWAY_PORT}"
    host_name = f"remembered.{scene.namespace}.svc"
    api_address = scene.api.need("Service", "kubernetes", "default")["spec"]["clusterIP"]

    def answers() -> bool | Unmet:
        answer = scene.world.client.infer(scene.namespace, "remembered", base=base, host=host_name)
        return True if answer.status == 200 else Unmet(f"HTTP {answer.status}: {answer.body}")

    with host.cut_off(pod, "envoy", api_address):
        stays("answers without the API server", answers, 3)
        for container in ("sidecar", "envoy"):
            host.kill_container(pod, container)
        scene.wait("answers from the snapshot", answers, 240)
    newer = scene.model(slope=7.0)
    scene.serve("remembered", newer)
    scene.predicts("remembered", newer)
