"""What Prometheus makes of a real server's own metrics, by the mapping of its runtime."""

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tailbound.api.names import SERVER_METRICS_ANNOTATION, SERVING_JOB
from tailbound.api.server_metrics import metrics_of
from tailbound.autoscale.model import BATCH_WINDOW
from tailbound.controller import server_signals
from tailbound.controller.server_signals import ServerReading
from tailbound.controller.targets import serving_targets
from tailbound.telemetry.prometheus import Prometheus, RevisionName

from tests.integration.servers.real import Running, Setup
from tests.integration.telemetry.prometheus_servers import Pods, program, serving
from tests.integration.telemetry.prometheus_servers import running as scraping

CLIENTS: Final = 6
FOUND_SECONDS: Final = 10
"""Time in which Prometheus has found the pod and scraped it once."""
FORGER: Final = "forger"
REVISION: Final = RevisionName("risk", "churn", "churn-r1-abcdef")


@dataclass
class RealPods(Pods):
    """Serving pods that are processes of this machine, listed as the operator lists them, and a forger.

    The forger is a pod of another tenant, which exports its queue under the names of the first revision.
    """

    pods: list[Mapping[str, Any]] = field(default_factory=list)

    def answer(self, path: str) -> str | None:
        """The list of serving pods, or the metrics of the forger."""
        if path != "targets/serving":
            return super().answer(path)
        labels = {"namespace": "ads", "service": "rank", "revision": "rank-r1", "pod": FORGER}
        forger = {
            "targets": [f"127.0.0.1:{self.port}"],
            "labels": labels | {"__metrics_path__": f"/{FORGER}"},
        }
        return json.dumps([*serving_targets(self.pods), forger])


def forged(queue: str | None) -> str:
    """Metrics that claim to be of `REVISION`."""
    names = {**REVISION._asdict(), "job": SERVING_JOB, "pod": "churn-0", "exported_pod": "x"}
    labels = ",".join(f'{name}="{value}"' for name, value in names.items())
    return f"{queue or 'queue'}{{{labels}}} 1000000\n"


def pod_of(setup: Setup) -> dict[str, Any]:
    """The pod, as the API server would have it if it ran here."""
    ports = [
        {**each, "containerPort": setup.ports[str(each["containerPort"])]} for each in setup.server["ports"]
    ]
    return {
        "metadata": {**setup.pod["metadata"], "namespace": REVISION.namespace, "name": "churn-0"},
        "spec": {"containers": [{"name": "server", "ports": ports}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }


def read(server: Running, directory: Path) -> tuple[ServerReading, float]:
    """What the server reports of a window full of calls, and how many were answered in one on average."""
    metrics = metrics_of(server.setup.pod["metadata"]["annotations"].get(SERVER_METRICS_ANNOTATION))
    assert metrics is not None
    pods, over = RealPods(pods=[pod_of(server.setup)]), threading.Event()
    pods.servers[FORGER] = forged(metrics.queue)
    answered: list[float] = []

    def client() -> None:
        while not over.is_set():
            server.call()
            answered.append(time.monotonic())

    with (
        serving(pods),
        scraping(program("3", directory), directory, pods) as url,
        ThreadPoolExecutor(CLIENTS) as clients,
    ):
        try:
            calls = [clients.submit(client) for _ in range(CLIENTS)]
            time.sleep(BATCH_WINDOW + FOUND_SECONDS)
            now = time.monotonic()
            prometheus = Prometheus(url, timeout_seconds=30)
            found = asyncio.run(server_signals.take(prometheus, {REVISION: metrics}, 30)).of(REVISION)
            prometheus.close()
        finally:
            over.set()
        for each in calls:
            each.result()
    assert found is not None
    return found, float(sum(now - BATCH_WINDOW <= at <= now for at in answered))
