"""The node's agent may restart: pods go on, and new ones come."""

import pytest

from e2e.scenarios.library import installation
from e2e.scenarios.library.scene import Scene, restarts

pytestmark = [pytest.mark.disturbs, pytest.mark.needs_own_cluster]


def test_restarted_kubelet_restarts_no_pod_and_starts_new_ones(scene: Scene) -> None:
    model = scene.model(slope=2.0)
    scene.serve("before", model)
    pods = restarts(scene.pods("before"))
    installation.own_cluster().restart_kubelet()
    scene.serve("after", model, hardware={"class": ["gpu"]})  # the devices are back too
    scene.ready("before")
    scene.predicts("before", model)
    scene.predicts("after", model)
    assert restarts(scene.pods("before")) == pods
