"""How fast the control plane is: from applied services to their Deployments, and from weights to gateways.

`python -m e2e.bench.control_plane` brings the cluster up if need be, and prints one JSON line last:

burst               services applied at once: the seconds until the last one's Deployment was written
single              services applied one a second beside those: milliseconds from apply to Deployment
traffic_change      milliseconds from a written status.traffic to TrafficApplied=True, every gateway's ACK
                    included
load_average        of the machine, over one minute, before and after

Times of writes are the API server's own, from its audit log, so that the bench's polling is not part of them.
Services that are only counted ask for a node that does not exist: their pods stay Pending and cost nothing.
"""

import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from e2e.scenarios.library import models
from e2e.scenarios.library.api import Object, conditions
from e2e.scenarios.library.audit import OPERATOR_USER, AuditLog
from e2e.scenarios.library.manifests import hardware_class
from e2e.scenarios.library.scene import Scene, World
from e2e.scenarios.library.waiting import Unmet

BURST: Final = 100
SINGLES: Final = 30
SINGLE_PERIOD_SECONDS: Final = 1.0
TRAFFIC_CHANGES: Final = 3
WRITERS: Final = 8
WRITTEN_SECONDS: Final = 60


@dataclass(frozen=True)
class Figures:
    """What was measured. Milliseconds are sorted; the 99th percentile of so few is their largest."""

    burst_services: int
    burst_seconds: float
    single_ms: tuple[float, ...]
    traffic_change_ms: tuple[float, ...]
    load_average_before: float
    load_average_after: float

    def as_json(self) -> Object:
        """The figures with their quantiles."""
        return asdict(self) | {
            "single_p50_ms": quantile(self.single_ms, 0.5),
            "single_p99_ms": quantile(self.single_ms, 0.99),
            "traffic_change_max_ms": max(self.traffic_change_ms),
        }


def quantile(ordered: tuple[float, ...], q: float) -> float:
    """The smallest value with at least the share q at or below it."""
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)]


def measure(world: World) -> Figures:
    """Run the whole bench in a namespace of its own, which is deleted at the end.

    Needs a cluster of our own, for its audit log; AssertionError if something is not written in time.
    """
    assert world.audit is not None, "the bench reads the API server's audit log: it needs its own cluster"
    before = os.getloadavg()[0]
    with _bench_namespace(world) as scene, _class_without_nodes(scene) as nowhere:
        burst = _burst(scene, world.audit, nowhere)
        singles = _singles(scene, world.audit, nowhere)
        changes = _traffic_changes(scene)
    return Figures(
        burst_services=BURST,
        burst_seconds=round(burst, 3),
        single_ms=tuple(sorted(round(value, 1) for value in singles)),
        traffic_change_ms=tuple(sorted(round(value, 1) for value in changes)),
        load_average_before=round(before, 2),
        load_average_after=round(os.getloadavg()[0], 2),
    )


@contextmanager
def _bench_namespace(world: World) -> Iterator[Scene]:
    name = f"bench-{uuid.uuid4().hex[:6]}"
    world.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield Scene(world, name)
    finally:
        world.api.delete("Namespace", name)


@contextmanager
def _class_without_nodes(scene: Scene) -> Iterator[str]:
    name = f"nowhere-{scene.namespace}"
    scene.api.apply(hardware_class(name, nodeSelector={"example.com/nowhere": "true"}))
    try:
        yield name
    finally:
        scene.api.delete("HardwareClass", name)


def _manifests(scene: Scene, prefix: str, count: int, hardware: str) -> list[Object]:
    model = models.affine(scene.namespace, 1.0)
    return [
        scene.manifest(f"{prefix}-{number}", model, hardware={"class": [hardware]}) for number in range(count)
    ]


@dataclass(frozen=True)
class Written:
    """When the API server had carried out the two writes of one service."""

    applied: datetime
    deployment: datetime


def _written(scene: Scene, audit: AuditLog, mark: int, services: list[Object]) -> list[Written]:
    """Wait until every service has its Deployment."""
    names = [service["metadata"]["name"] for service in services]

    def probe() -> list[Written] | Unmet:
        writes = [write for write in audit.writes(mark, namespaces=[scene.namespace]) if write.succeeded]
        applied = {
            write.name: write.completed
            for write in reversed(writes)
            if write.resource == "inferenceservices" and write.subresource == "" and write.verb != "delete"
        }
        made = {
            write.name.rsplit("-r", 1)[0]: write.completed
            for write in reversed(writes)
            if write.resource == "deployments" and write.user == OPERATOR_USER and write.subresource == ""
        }
        missing = [name for name in names if name not in applied or name not in made]
        if missing:
            return Unmet(f"{len(missing)} Deployments are not written, {missing[0]} for one")
        return [Written(applied[name], made[name]) for name in names]

    return scene.wait("every Deployment", probe, WRITTEN_SECONDS)


def _burst(scene: Scene, audit: AuditLog, hardware: str) -> float:
    services = _manifests(scene, "burst", BURST, hardware)
    mark = audit.mark()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(scene.api.apply, services))
    written = _written(scene, audit, mark, services)
    return (max(each.deployment for each in written) - min(each.applied for each in written)).total_seconds()


def _singles(scene: Scene, audit: AuditLog, hardware: str) -> list[float]:
    services = _manifests(scene, "single", SINGLES, hardware)
    mark = audit.mark()
    due = time.monotonic()
    for service in services:
        time.sleep(max(0.0, due - time.monotonic()))
        scene.api.apply(service)
        due += SINGLE_PERIOD_SECONDS
    return [
        (each.deployment - each.applied).total_seconds() * 1000
        for each in _written(scene, audit, mark, services)
    ]


def _traffic_changes(scene: Scene) -> list[float]:
    """Roll a real service over, back and forth."""
    pair = (scene.model(1.0), scene.model(2.0))
    scene.serve("rolling", pair[0])
    return [_one_change(scene, pair[number % 2]) for number in range(1, TRAFFIC_CHANGES + 1)]


def _one_change(scene: Scene, model: models.Model) -> float:
    before = scene.service("rolling")
    scene.apply("rolling", model)
    written: float | None = None
    for service in scene.api.watch(before, WRITTEN_SECONDS):
        if service["status"]["traffic"]["generation"] == before["status"]["traffic"]["generation"]:
            continue
        written = written or time.monotonic()
        if conditions(service)["TrafficApplied"]["status"] == "True":
            return (time.monotonic() - written) * 1000
    raise AssertionError(
        f"the new traffic of {scene.namespace}/rolling was not applied in {WRITTEN_SECONDS} s"
    )


def main() -> int:
    """Measure on the cluster of our own; the exit status is 0 once everything was measured."""
    from e2e.scenarios.library.installation import installed_world

    with tempfile.TemporaryDirectory() as scratch:
        world = installed_world(Path(scratch), Path(scratch))
        sys.stdout.write(json.dumps(measure(world).as_json()) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
