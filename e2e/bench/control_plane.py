"""How fast the control plane writes, as the last line in JSON: `python -m e2e.bench.control_plane`.

present                 services there were beside those that were timed
single_p50_ms, _p99_ms  from the arrival of a service at the API server to its stored Deployment, one a second
burst, burst_seconds    services created at once: from the first's arrival to the last's Deployment
load_average            of the machine over one minute, before and after
"""

import json
import os
import sys

from e2e.demo import setting, speed
from e2e.scenarios.library.installation import own_cluster


def main() -> int:
    """Bring our cluster up with the chart in it, measure, and remove what was measured."""
    cluster = own_cluster()
    cluster.up()
    setting.install(cluster, setting.load_images(cluster))
    speed.await_cleared(cluster)
    before = os.getloadavg()[0]
    try:
        figures = speed.measure(cluster)
    finally:
        speed.clear(cluster)
    document = {
        "present": figures.present,
        "single_p50_ms": round(figures.quantile(0.5) * 1000, 1),
        "single_p99_ms": round(figures.quantile(0.99) * 1000, 1),
        "burst": figures.burst,
        "burst_seconds": round(figures.burst_seconds, 3),
        "load_average": [round(before, 2), round(os.getloadavg()[0], 2)],
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
