"""Gateways may lose the API server or not be read: requests are answered, and no verdict is guessed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from e2e.scenarios.library import gateways, host, installation, parts
from e2e.scenarios.library.rollouts import Rollout, canary
from e2e.scenarios.library.scene import GATEWAY, OPERATOR, Scene, leader, restarts, workload
from e2e.scenarios.library.waiting import Unmet, stays

# With dataTimeout less than the half minute after which a gateway that lags behind is replaced.
NO_VERDICT_SECONDS = 8


@pytest.mark.disturbs(parts.GATEWAYS)
@pytest.mark.needs_own_cluster
def test_what_serves_goes_on_without_the_kubelet_and_through_a_gateway_without_the_api_server(
    scene: Scene,
) -> None:
    """A restarted kubelet restarts no pod and starts new ones; a restarted gateway serves its snapshot."""
    model = scene.model(slope=6.0)
    scene.serve("remembered", model)
    pods = restarts(scene.pods("remembered"))
    installation.own_cluster().restart_kubelet()
    scene.serve("after", model, hardware={"class": ["gpu"]})  # the devices are back too
    (placed,) = scene.pods("after")
    (server,) = (each for each in placed["spec"]["containers"] if each["name"] == "server")
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
    scene.ready("remembered")
    for name in ("remembered", "after"):
        scene.predicts(name, model)
    assert restarts(scene.pods("remembered")) == pods
    pod = workload(scene.api, GATEWAY)[0]
    base = f"http://{pod['status']['podIP']}:{gateways.PORT}"
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


@pytest.mark.disturbs(parts.OPERATOR, needs=(parts.GATEWAYS,))
@pytest.mark.needs_own_cluster
def test_unreadable_gateway_freezes_the_verdict_until_it_is_back(scene: Scene) -> None:
    rollout = Rollout.begin(scene, "blind", canary(50), sla={"errorRate": "2%"})
    stable = rollout.stable()
    with rollout.load() as load:  # to prove 2 % takes longer than to cut the connection
        revision = rollout.introduce("second")
        rollout.analysed(revision)
        with _unreadable(scene):
            rollout.reaches("Paused", "NoData", revision=revision, weight=50, within=60)
            stays("the freeze", lambda: _frozen(rollout), NO_VERDICT_SECONDS)
        leader(scene.api)
        rollout.promoted(revision)
        assert rollout.status()["from"] == stable
    load.assert_flawless(at_least=100)


@contextmanager
def _unreadable(scene: Scene) -> Iterator[None]:
    """No operator reaches the first gateway."""
    with ExitStack() as cuts:
        gateway = workload(scene.api, GATEWAY)[0]["status"]["podIP"]
        for pod in workload(scene.api, OPERATOR):
            cuts.enter_context(host.cut_off(pod, "operator", gateway))
        yield


def _frozen(rollout: Rollout) -> bool | Unmet:
    status = rollout.status()
    return (status["state"], status.get("step", 0)) == ("Paused", 0) or Unmet(str(status))
