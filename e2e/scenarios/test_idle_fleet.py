"""Nothing changed, nothing written."""

import time

import pytest

from e2e.scenarios.library.audit import AuditLog
from e2e.scenarios.library.scene import Scene, restarts

# Longer than each period of the operator but that of its resync: a watch that is silent for 90 s is renewed.
IDLE_SECONDS = 100


@pytest.mark.needs_own_cluster
@pytest.mark.lasts(140)
def test_idle_fleet_writes_nothing_for_minutes(scene: Scene, audit: AuditLog) -> None:
    model = scene.model(slope=2.0)
    good = [f"idle-{number}" for number in range(3)]
    for name in good:
        scene.apply(name, model, scaling={"min": 2 if name == good[0] else 1})
    scene.apply("stalled", model, runtime={"name": "no-such-runtime"})
    scene.apply("stopped", model, stopped=True)
    scene.all_ready(good)
    scene.not_ready("stalled", "RuntimeNotFound")
    scene.not_ready("stopped", "Stopped")
    pods = {name: restarts(scene.pods(name)) for name in good}
    mark = audit.quiet_mark(scene.namespace)
    time.sleep(IDLE_SECONDS)
    written = [write for write in audit.writes(mark) if write.namespace == scene.namespace]
    ours = [
        str(write) for write in written if write.user.startswith("system:serviceaccount:tailbound-system:")
    ]
    assert ours == []
    assert {name: restarts(scene.pods(name)) for name in good} == pods
