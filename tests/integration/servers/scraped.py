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

from tailbound.api.names import SERVER_METRICS_ANNOTATION
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
REVISION: Final = RevisionName("risk", "churn", "churn-r1-abcdef")


@dataclass
class RealPods(Pods):
    """Serving pods that are processes of this machine, listed as the operator lists them."""

    pods: list[Mapping[str, Any]] = field(default_factory=list)

    def answer(self, path: str) -> str | None:
        """The list of serving pods."""
        return json.dumps(serving_targets(self.pods)) if path == "targets/serving" else super().answer(path)


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
            time.sleep(BATCH_WINDOW + 2)
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
