"""An edit rolls over under traffic: every request is answered, and the old pods go."""

import json
import time
from dataclasses import dataclass
from typing import Any, Final

from e2e.cluster import Cluster
from e2e.cluster.processes import wait_for
from e2e.demo.client import Load, Result
from e2e.demo.timeline import Moment, Timeline

KEEP_ALIVE_RATE: Final = 8
NEW_CONNECTION_RATE: Final = 4
LONGEST_SECONDS: Final = 240
QUIET_SECONDS: Final = 3
"""Traffic before the edit and after the last old pod is gone."""


@dataclass(frozen=True)
class Outcome:
    """What the rollover did, and what the traffic saw of it."""

    old: str
    new: str
    seconds: float
    weight_seconds: float
    """From the new weights in the status to the acknowledgement of every gateway."""
    keep_alive: Result
    new_connections: Result

    @property
    def requests(self) -> int:
        return self.keep_alive.requests + self.new_connections.requests

    @property
    def failed(self) -> int:
        return self.keep_alive.failed + self.new_connections.failed


def roll_over(cluster: Cluster, namespace: str, name: str, url: str, body: dict[str, Any]) -> Outcome:
    """Change the service's environment under load, and wait until only the new revision's pods are left."""
    common = (f"--seconds={LONGEST_SECONDS}", "--timeout=60")
    loads = [
        Load(cluster, "keep-alive", url, body, *common, f"--rate={KEEP_ALIVE_RATE}"),
        Load(cluster, "new", url, body, *common, f"--rate={NEW_CONNECTION_RATE}", "--new-connections"),
    ]
    with Timeline(cluster, namespace, name) as timeline:
        before = timeline.until("Ready", Moment.ready, 30)
        time.sleep(QUIET_SECONDS)
        started = time.monotonic()
        edit = json.dumps({"spec": {"env": [{"name": "GREETING", "value": str(time.time_ns())}]}})
        cluster.kubectl(
            "patch", "inferenceservice", name, f"--namespace={namespace}", "--type=merge", f"--patch={edit}"
        )
        after = timeline.until("a new revision serves", lambda now: _replaced(before, now), LONGEST_SECONDS)
        weighted = timeline.until(
            "new weights", lambda now: now.traffic_generation() == after.traffic_generation(), 1
        )
        applied = timeline.until("weights acknowledged", lambda now: _acknowledged(weighted, now), 30)
    old = str(before.stable())
    wait_for(f"the pods of {old} gone", lambda: not _pods(cluster, namespace, old), LONGEST_SECONDS)
    time.sleep(QUIET_SECONDS)
    keep_alive, new_connections = (load.stop() for load in loads)
    return Outcome(
        old=old,
        new=str(after.stable()),
        seconds=after.at_seconds - started,
        weight_seconds=applied.at_seconds - weighted.at_seconds,
        keep_alive=keep_alive,
        new_connections=new_connections,
    )


def _replaced(before: Moment, now: Moment) -> bool:
    return now.ready() and now.stable() not in (None, before.stable())


def _acknowledged(weighted: Moment, now: Moment) -> bool:
    return (
        now.traffic_generation() >= weighted.traffic_generation()
        and now.condition("TrafficApplied").get("status") == "True"
    )


def _pods(cluster: Cluster, namespace: str, revision: str) -> str:
    selector = f"--selector=tailbound.dev/revision={revision}"
    return cluster.kubectl("get", "pods", f"--namespace={namespace}", selector, "--output=name").strip()
