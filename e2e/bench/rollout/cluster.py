"""How soon a bad canary is without requests on the real cluster: `python -m e2e.bench.rollout.cluster`.

10 % of its requests are slow, from the first one on, and it gets 12 a second. Seconds are counted from
its first slow request until every gateway has acknowledged that it gets none, and split into

evidence   until the last poll that did not condemn it: what had to be seen first
poll       from there until the API server is given the verdict: waiting, reading and judging
write      until the API server has stored verdict and weights, in one request
ack        until the status says that every gateway applies them

The last line is one JSON object: medians over the runs, and each run.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from e2e.cluster import OwnCluster
from e2e.demo.timeline import Moment, Timeline
from e2e.scenarios.library import installation
from e2e.scenarios.library.audit import OPERATOR_USER, Write
from e2e.scenarios.library.rollouts import Rollout, canary
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.waiting import Unmet

RUNS: Final = 10
NAMESPACE: Final = "bench-rollout"
NAME: Final = "patient"
# Half of it to the canary.
RATE: Final = 24
FAULTS: Final = {"SLOW_FRACTION": 0.1, "DELAY_MS": 1200}
SLA: Final[dict[str, Any]] = {"latency": {"p99": "1s"}}
CONDEMNED_SECONDS: Final = 120


@dataclass(frozen=True)
class Split:
    """Seconds of one run."""

    evidence: float
    poll: float
    write: float
    ack: float

    @property
    def total(self) -> float:
        """Seconds from the first bad request to weight 0 in every gateway."""
        return self.evidence + self.poll + self.write + self.ack

    def as_json(self) -> dict[str, float]:
        """Its parts and their sum."""
        return {name: round(value, 2) for name, value in {**asdict(self), "total": self.total}.items()}


def split(first_bad: float, polled: float, verdict: Write, acknowledged: float) -> Split:
    """The parts of one run, from seconds since the epoch.

    The last poll that did not condemn may have come before the first bad request.
    """
    received, stored = verdict.received.timestamp(), verdict.completed.timestamp()
    started = max(first_bad, polled)
    return Split(
        evidence=started - first_bad,
        poll=received - started,
        write=stored - received,
        ack=max(acknowledged - stored, 0.0),
    )


def measure(runs: int = RUNS) -> list[Split]:
    """Every run. The cluster of our own is brought up with the chart in it, if need be."""
    with tempfile.TemporaryDirectory() as scratch:
        world = installation.installed_world(scratch=Path(scratch), shared=Path(scratch))
        world.api.delete("Namespace", NAMESPACE)
        scene = Scene(world, NAMESPACE)
        scene.wait(
            "end of an earlier run",
            lambda: Unmet("it is there") if world.api.get("Namespace", NAMESPACE) else True,
            90,
        )
        world.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        try:
            rollout = Rollout.begin(scene, NAME, canary(50), sla=SLA)
            with rollout.load(rate=RATE):
                return [_run(rollout, number) for number in range(runs)]
        finally:
            world.api.delete("Namespace", NAMESPACE)


def _run(rollout: Rollout, number: int) -> Split:
    scene = rollout.scene
    audit = scene.world.audit
    assert audit is not None, "this bench needs the cluster of our own"
    mark = audit.mark()
    with Timeline(installation.own_cluster(), NAMESPACE, NAME) as timeline:
        offset = time.time() - time.monotonic()
        revision = rollout.introduce(f"slow-{number}", FAULTS)
        rollout.analysed(revision)
        first_bad = scene.wait("a slow request", lambda: _first_bad(rollout, revision), CONDEMNED_SECONDS)
        condemned = timeline.until("verdict", lambda now: _condemned(now, revision), CONDEMNED_SECONDS)
        generation = condemned.traffic_generation()
        acked = timeline.until("weight 0", lambda now: _acknowledged(now, generation), 30)
    writes = [
        write
        for write in audit.writes(mark, user=OPERATOR_USER, namespaces=[NAMESPACE])
        if write.subresource == "status" and write.succeeded
    ]
    seen = condemned.at_seconds + offset
    before = [write for write in writes if write.received.timestamp() <= seen]
    verdict, last_poll = before[-1], before[-2]
    scene.gone("Deployment", revision)
    return split(first_bad, last_poll.received.timestamp(), verdict, acked.at_seconds + offset)


def _first_bad(rollout: Rollout, revision: str) -> float | Unmet:
    found = rollout.served(revision)["first_bad"]
    return Unmet("none yet") if found is None else float(found)


def _condemned(now: Moment, revision: str) -> bool:
    found = now.service.get("status", {}).get("rollout") or {}
    return (found.get("revision"), found.get("state")) == (revision, "RolledBack")


def _acknowledged(now: Moment, generation: int) -> bool:
    applied = now.condition("TrafficApplied").get("status") == "True"
    return applied and now.traffic_generation() >= generation


def there() -> bool:
    """Whether a cluster of our own is up."""
    cluster = installation.own_cluster()
    return isinstance(cluster, OwnCluster) and not cluster.faults()


def summary(splits: Sequence[Split]) -> dict[str, Any]:
    """Medians, and every run."""
    return {
        "seconds_to_zero_weight": round(median(each.total for each in splits), 2),
        "seconds_to_zero_weight_runs": [each.as_json() for each in splits],
    }


def main() -> int:
    """Measure, and say what was seen."""
    splits = measure()
    document = {"bench": "rollout-cluster", **summary(splits), "load_average": round(os.getloadavg()[0], 2)}
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
