"""Services of known speed whose pods follow the traffic."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from e2e.scenarios.library.api import Object, conditions
from e2e.scenarios.library.rollouts import Rollout, quick
from e2e.scenarios.library.scene import Scene
from e2e.scenarios.library.traffic import Load
from e2e.scenarios.library.waiting import Unmet, condition_lines

# A batch of n requests takes 0.1 + 0.1 n seconds: one pod answers 8 requests a second, four at a time.
SPEED: Final = {"SERVICE_SECONDS_BASE": 0.1, "SERVICE_SECONDS_PER_ROW": 0.1, "MAX_BATCH": 4}
BATCHING: Final[Object] = {"mode": "dynamic", "maxBatchSize": 4}
CAPACITY: Final = 8.0
TARGET_SECONDS: Final = 3.0
SLA: Final[Object] = {"latency": {"p99": f"{TARGET_SECONDS:g}s"}}
# They wait instead of computing: several such scenarios have to fit on two CPUs at once.
RESOURCES: Final[Object] = {"cpu": "30m", "memory": "128Mi"}
# What comes late on the way up is late, and no failure.
TIMEOUT_SECONDS: Final = 30
CALM, BUSY = 2.0, 22.0
# What one pod answers in time, and twice as much, which it cannot.
NORMAL, SHOCK = 7.0, 14.0
RISE_SECONDS: Final = 60.0
# Ticks, a scrape and a cold start each take some seconds; a busy machine takes more.
FOLLOWS_SECONDS: Final = 300
# How long the traffic rises and falls again and again; without it: once.
SOAK_VARIABLE: Final = "TAILBOUND_SOAK_MINUTES"


class Scaled:
    """One such service."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        *,
        least: int = 1,
        most: int = 5,
        speed: Mapping[str, float] = SPEED,
        sheds: bool = True,
        **spec: Any,
    ) -> None:
        self.scene, self.name, self._speed = scene, name, speed
        spec = {
            "resources": RESOURCES,
            "scaling": {"min": least, "max": most},
            "batching": BATCHING,
            "timeout": f"{TIMEOUT_SECONDS}s",
            **spec,
        }
        rollout = spec.pop("rollout", quick())
        self.rollout = Rollout.begin(scene, name, rollout, faults=speed, sla=SLA, sheds=sheds, **spec)

    @contextmanager
    def load(self, rate: float, **how: Any) -> Iterator[Load]:
        """Send so many requests a second; `rise` as that of `Client.load`."""
        with self.rollout.load(
            rate, timeout_seconds=TIMEOUT_SECONDS, within_seconds=TARGET_SECONDS, **how
        ) as load:
            yield load

    def allow(self, most: int) -> None:
        """Edit the largest number of pods."""
        self.rollout.spec["scaling"] = {**self.rollout.spec["scaling"], "max": most}
        self.rollout.change("first", self._speed)

    def replicas(self) -> int:
        """spec.replicas of the Deployment of the revision that serves."""
        return int(self.scene.deployment(self.name)["spec"]["replicas"])

    def told(self) -> list[Object]:
        """status.scaling, by revision."""
        found: list[Object] = self.scene.service(self.name)["status"].get("scaling", {}).get("revisions", [])
        return found

    def ready(self) -> int:
        """Pods that are ready, of the revision that serves."""
        return int(self.scene.deployment(self.name).get("status", {}).get("readyReplicas", 0))

    def until(self, what: str, least: int, most: int = 1000, *, ready: bool = False) -> int:
        """Wait for so many pods; how many there are then."""

        def probe() -> int | Unmet:
            count = self.ready() if ready else self.replicas()
            return count if least <= count <= most else Unmet(f"{count} pods; {self.words()}")

        return self.scene.wait(what, probe, FOLLOWS_SECONDS)

    def condition(self, kind: str, status: str, reason: str) -> Object:
        """Wait for a condition."""

        def probe() -> Object | Unmet:
            found = conditions(self.scene.service(self.name)).get(kind, {})
            fits = (found.get("status"), found.get("reason")) == (status, reason)
            return found if fits else Unmet(self.words())

        return self.scene.wait(f"{kind}={status}/{reason}", probe, FOLLOWS_SECONDS)

    def words(self) -> str:
        """What its status says."""
        service = self.scene.service(self.name)
        told = service["status"].get("scaling")
        return f"{told}; {'; '.join(condition_lines(service))}"

    def within_target(self, load: Load) -> None:
        """Enough requests were sent, none failed, and the client saw 99 of 100 answered in time."""
        load.assert_flawless(at_least=20)
        p99 = load.result["latency_ms"]["p99"]
        capacities = [each.get("capacityPerSecond") for each in self.told()]
        sys.stdout.write(
            f"{self.name}: {load.result['requests']} requests, P99 {p99:.0f} ms of {TARGET_SECONDS:g} s, "
            f"{self.ready()} of {self.replicas()} pods ready, believed to do {capacities} requests/s\n"
        )
        assert p99 <= TARGET_SECONDS * 1000, f"P99 {p99} ms: {load.result}; {self.words()}"


def lasts(seconds: float) -> None:
    """Measure for so long."""
    time.sleep(seconds)


def rounds() -> Iterator[int]:
    """One, or as many as the minutes of a soak have room for."""
    ends = time.monotonic() + 60 * float(os.environ.get(SOAK_VARIABLE, "0"))
    number = 1
    yield number
    while time.monotonic() < ends:
        number += 1
        yield number
