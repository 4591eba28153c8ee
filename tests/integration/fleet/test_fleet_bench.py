"""The fleet bench in small: counts and memory, which a busy machine leaves as they are; no times."""

import sys
from pathlib import Path

from e2e.bench.fleet.__main__ import bench_on
from e2e.cluster import ControlPlane

SERVICES, ROLLOUTS, SHOWN = 40, 20, 1000
# 212 were measured, with a Prometheus that knows all of them; with kopf's memory of each child it was 378.
MOST_MB = 260


async def test_rollouts_at_once_are_all_decided_and_a_restart_on_a_thousand_services_writes_nothing(
    tmp_path: Path,
) -> None:
    with ControlPlane.start(tmp_path) as plane:
        async with bench_on(plane) as bench:
            created = await bench.created(SERVICES, ROLLOUTS, autoscaled=False)
            restarted = await bench.restarted(SHOWN, compared=False)
    sys.stdout.write(f"{created | restarted}\n")  # the figures are of use where they rise
    assert created["rollouts_undecided"] == 0
    assert restarted["restart_writes"] == 0, restarted["restart_written"]
    assert restarted["restart_peak_mb"] < MOST_MB
