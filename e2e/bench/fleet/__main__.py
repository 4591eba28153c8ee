"""The operator's cost of a fleet, as one line in JSON: `python -m e2e.bench.fleet SERVICES ROLLOUTS SHOWN`.

The real API server and etcd; one gateway, the Deployment controller, the kubelets and Prometheus are
stand-ins in this process. The operator is a process of its own, with the settings of the one in a cluster.
The restart and the ticks are those of SHOWN services with one pod each, copies of a real one, which a
stand-in for the API server lists. Those of the ticks are autoscaled.

services, rollouts, shown      the arguments; 300, 30 and 1000 if not given
create_seconds                 from the first service at the API server to the last one Ready
create_cpu_per_1000            the operator's CPU seconds for that, per 1,000 services
create_cpu_exponent            growth of its CPU seconds with the fleet: of half the services against all
rollouts_seconds               from the first edit of `rollouts` services at once to the last promotion
rollouts_undecided             of these services, those that were not promoted
rollouts_cpu_share             of one core, the operator's part while they lasted
rollouts_status_writes_per_minute  of each rollout
restart_cpu, restart_seconds   of a new operator process, until every service was decided on and none waits
restart_cpu_exponent           growth of its CPU seconds beyond those of a process with half the services
restart_peak_mb                its largest resident memory
restart_block_ms               the most CPU time of its event loop between two turns of an idle task
restart_passes                 decisions on each service, the first tick included
restart_writes                 what it wrote, the first tick included
restart_written                the first of these requests
autoscaled_restart_cpu         the same of an autoscaled fleet, with a look back at its traffic
autoscaled_peak_mb             the largest resident memory with it
tick_cpu                       CPU seconds of one decision on all of them, and of rest until the next
tick_stale                     of them, those whose newest sizing lacked a signal
gateway_ready_seconds          from the start of a gateway pod before the shown services, until it is ready
gateway_cpu, gateway_peak_mb   of its sidecar until then
gateway_envoy_cpu, gateway_envoy_peak_mb  of its Envoy until then
gateway_observed_envoy_ms      CPU time of Envoy for one question about 30 services with their counters
gateway_observed_ms            the median time until such a question is answered
goals                          the figures that are wanted of 1,000 services and rollouts and of 5,000 shown
yardstick_ms                   CPU time of a fixed calculation before and after: 80 on a quiet 3 GHz core;
                               with others on the core it is more, as are all other CPU times
load_average                   of the machine over one minute, before and after
"""

import asyncio
import json
import math
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tailbound.autoscale.model import TICK
from tailbound.kube.aio import AioCluster
from tailbound.kube.connection import load_configuration

from e2e import yardstick
from e2e.bench.fleet.gateway import measured
from e2e.bench.fleet.operator import MeasuredOperator, Usage, running
from e2e.bench.fleet.prometheus import StubPrometheus
from e2e.bench.fleet.replica import Replica
from e2e.bench.fleet.world import NAMESPACE, World
from e2e.cluster import ControlPlane

_PLAIN: Final = "plain"
_AUTOSCALED: Final = "autoscaled"
_TICKS: Final = 4
GOALS: Final = {
    "create_cpu_per_1000": 9,
    "create_cpu_exponent": 1.05,
    "create_seconds": 20,
    "rollouts_undecided": 0,
    "rollouts_cpu_share": 0.6,
    "restart_cpu": 12,
    "restart_cpu_exponent": 1.05,
    "restart_peak_mb": 400,
    "restart_block_ms": 200,
    "restart_passes": 1,
    "restart_writes": 0,
    "tick_cpu": 1,
    "tick_stale": 0,
    "gateway_ready_seconds": 5,
    "gateway_observed_envoy_ms": 5,
}
"""The goals: the most that each of these figures may be."""


@dataclass(frozen=True)
class Bench:
    """One control plane with what surrounds the operator."""

    plane: ControlPlane
    cluster: AioCluster
    world: World
    prometheus: StubPrometheus
    revisions: dict[str, str] = field(default_factory=dict)
    """Those of the services that are shown many times, by service."""

    async def created(self, services: int, rollouts: int, *, autoscaled: bool = True) -> dict[str, Any]:
        """Create the fleet in two halves, and roll out some of it; then the services for later copies."""
        async with running(self.plane.kubeconfig, self.world.port, self.prometheus.url) as operator:
            await operator.until_calm(0)
            half = await self._created(operator, 0, services // 2)
            rest = await self._created(operator, services // 2, services)
            await operator.until_calm(services)
            await self._serve(f"{_PLAIN}0", autoscaled=False)
            rolled = await self._rolled(operator, rollouts)
            if autoscaled:
                await self._serve(f"{_AUTOSCALED}0", autoscaled=True)
                # Its status holds all that it will after several sizings.
                await asyncio.sleep(_TICKS * TICK)
            for name in self.revisions:
                await self.world.until_sla_met(name)
            await operator.until_calm(0)
        both = half.cpu + rest.cpu
        return {
            "create_seconds": round(half.seconds + rest.seconds, 1),
            "create_cpu_per_1000": round(both / services * 1000, 2),
            "create_cpu_exponent": round(math.log2(both / half.cpu), 2),
            "rollouts_seconds": round(rolled.seconds, 1),
            "rollouts_undecided": rollouts - self.world.promoted(),
            "rollouts_cpu_share": round(rolled.cpu / rolled.seconds, 2),
            "rollouts_status_writes_per_minute": round(rolled.writes / rollouts / rolled.seconds * 60, 1),
        }

    async def restarted(self, services: int, *, compared: bool = True) -> dict[str, Any]:
        """Start the operator with all of a fleet that is there; compared with nothing and with half of it."""
        smaller = []
        for count in (0, services // 2) if compared else ():
            async with self._showing(_PLAIN, count) as (operator, _):
                smaller.append((await operator.until_calm(count)).cpu)
        async with self._showing(_PLAIN, services, watched=True) as (operator, replica):
            whole = await operator.until_calm(services)
            # All of them are watched now; what a tick tells of them is a part of the start.
            await asyncio.sleep(TICK)
            last = await operator.until_calm(services)
        return {
            "restart_seconds": round(whole.seconds, 1),
            "restart_cpu": round(whole.cpu, 2),
            **({"restart_cpu_exponent": _exponent([*smaller, whole.cpu])} if smaller else {}),
            "restart_peak_mb": round(last.peak_mb),
            "restart_block_ms": round(last.block_ms),
            "restart_passes": round(last.passes / services, 2),
            "restart_writes": int(last.writes),
            "restart_written": replica.written,
        }

    async def sized(self, services: int) -> dict[str, Any]:
        """Let the operator decide on the pods of a fleet that is there."""
        async with self._showing(_AUTOSCALED, services) as (operator, _):
            await operator.until_calm(services)
            # The first look at the metrics comes after the decisions, and looks back at the traffic.
            await asyncio.sleep(TICK)
            await operator.until_calm(services)
            first = await operator.usage()
            await asyncio.sleep(_TICKS * TICK)
            last = await operator.usage()
        return {
            "autoscaled_restart_cpu": round(first.cpu, 2),
            "autoscaled_peak_mb": round(last.peak_mb),
            "tick_cpu": round((last - first).cpu / _TICKS, 2),
            "tick_stale": int(last.stale),
        }

    async def routed(self, services: int) -> dict[str, Any]:
        """Start a gateway pod before a fleet that is there."""
        configuration = await load_configuration({"KUBECONFIG": str(self.plane.kubeconfig)})
        folder, names = self.plane.directory, _names(_PLAIN, services)
        async with Replica.serving(configuration, names[0], services, folder) as (_, kubeconfig):
            figures = await measured(kubeconfig, [f"{NAMESPACE}/{name}" for name in names])
        return {f"gateway_{name}": value for name, value in asdict(figures).items()}

    @asynccontextmanager
    async def _showing(
        self, kind: str, services: int, *, watched: bool = False
    ) -> AsyncIterator[tuple[MeasuredOperator, Replica]]:
        """An operator that finds so many copies of one service."""
        names = _names(kind, services)
        revision = self.revisions[names[0]]
        self.prometheus.know({name: revision.replace(names[0], name, 1) for name in names})
        self.world.show(names)
        configuration = await load_configuration({"KUBECONFIG": str(self.plane.kubeconfig)})
        folder = self.plane.directory
        async with (
            Replica.serving(configuration, names[0], services, folder) as (replica, kubeconfig),
            running(kubeconfig, self.world.port, self.prometheus.url, watched=watched) as operator,
        ):
            yield operator, replica

    async def _created(self, operator: MeasuredOperator, first: int, end: int) -> Usage:
        before = await operator.usage()
        await self.world.create(first, end)
        await self.world.until_ready(end)
        return await operator.usage() - before

    async def _rolled(self, operator: MeasuredOperator, rollouts: int) -> Usage:
        before = await operator.usage()
        await self.world.edit(rollouts)
        await self.world.until_promoted(rollouts)
        return await operator.usage() - before

    async def _serve(self, name: str, *, autoscaled: bool) -> None:
        """Create a service of which copies are shown later, and wait until it serves."""
        await self.world.create_one(name, autoscaled=autoscaled)
        self.revisions[name] = await self.world.until_one_ready(name)
        self.prometheus.know(self.revisions)


def _exponent(cpu: Sequence[float]) -> float:
    """The exponent of the CPU time that no service, half and all of them take: 1 where it is proportional."""
    least, half, whole = cpu
    return round(math.log2((whole - least) / (half - least)), 2)


def _names(kind: str, services: int) -> list[str]:
    return [f"{kind}{number}" for number in range(services)] or [f"{kind}0"]


@asynccontextmanager
async def bench_on(plane: ControlPlane) -> AsyncIterator[Bench]:
    """A bench on a control plane that has nothing else to do."""
    plane.kubectl("create", "namespace", NAMESPACE)
    cluster = AioCluster(await load_configuration({"KUBECONFIG": str(plane.kubeconfig)}))
    prometheus = StubPrometheus(NAMESPACE)
    try:
        async with World.of(plane, cluster) as world, prometheus.running():
            yield Bench(plane, cluster, world, prometheus)
    finally:
        await cluster.close()


async def measure(plane: ControlPlane, services: int, rollouts: int, shown: int) -> dict[str, Any]:
    """All figures."""
    async with bench_on(plane) as bench:
        created = await bench.created(services, rollouts)
        restarted, sized = await bench.restarted(shown), await bench.sized(shown)
        return {**created, **restarted, **sized, **await bench.routed(shown)}


def main(arguments: list[str]) -> int:
    """Measure on a control plane of its own, and remove it."""
    services, rollouts, shown = [int(each) for each in arguments] or (300, 30, 1000)
    before, quick = os.getloadavg()[0], yardstick.measure()
    with tempfile.TemporaryDirectory() as folder, ControlPlane.start(Path(folder)) as plane:
        figures = asyncio.run(measure(plane, services, rollouts, shown))
    both = (quick, yardstick.measure())
    figures["yardstick_ms"] = [round(each.cpu_seconds * 1000, 1) for each in both]
    load = [round(before, 2), round(os.getloadavg()[0], 2)]
    arguments_of = {"services": services, "rollouts": rollouts, "shown": shown}
    sys.stdout.write(json.dumps({**arguments_of, **figures, "goals": GOALS, "load_average": load}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
