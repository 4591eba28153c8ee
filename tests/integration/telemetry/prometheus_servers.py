"""Prometheus servers of both generations, with the chart's configuration, and pods for them to scrape."""

import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import yaml

from e2e.cluster import binaries, building
from e2e.cluster.images import project_images
from e2e.cluster.ports import free_port
from e2e.cluster.processes import Children, wait_for
from tests.integration.chart.helm import named, template

START_SECONDS: Final = 120
SCRAPE: Final = "500ms"
_PROGRAM: Final = "usr/bin/prometheus"


def program(generation: str, directory: Path) -> Path:
    """Prometheus 3 as it is built from source, or 2 out of the image that the cluster runs."""
    if generation == "3":
        return binaries.program("prometheus")
    (image,) = (image for image in project_images() if image.name == "prometheus")
    with tarfile.open(building.build(image)) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for layer in reversed(json.load(manifest)[0]["Layers"]):
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                if _PROGRAM in files.getnames():
                    files.extract(_PROGRAM, directory, filter="data")
                    return directory / _PROGRAM
    raise AssertionError(f"no layer of {image.name} has {_PROGRAM}")


@dataclass
class Pods:
    """What every pod answers to a scrape, by its name; None: it does not answer."""

    port: int = 0
    texts: dict[str, str | None] = field(default_factory=dict)
    servers: dict[str, str | None] = field(default_factory=dict)
    """The same of serving pods, which are scraped in a job of their own."""

    def targets(self, texts: Mapping[str, str | None]) -> list[dict[str, Any]]:
        """Targets in the form in which the operator lists its gateways, or serving pods."""
        return [
            {"targets": [f"127.0.0.1:{self.port}"], "labels": {"pod": pod, "__metrics_path__": f"/{pod}"}}
            for pod in texts
        ]

    def answer(self, path: str) -> str | None:
        """The body for a path without its first slash."""
        listed = {"targets/gateways": self.texts, "targets/serving": self.servers}.get(path)
        return (
            {**self.texts, **self.servers}.get(path) if listed is None else json.dumps(self.targets(listed))
        )


@contextmanager
def serving(pods: Pods) -> Iterator[None]:
    """The pods answer during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed, body = self.path.startswith("/targets"), pods.answer(self.path.removeprefix("/"))
            self.send_response(503 if body is None else 200)
            kind = "application/json" if listed else "text/plain; version=0.0.4; charset=utf-8"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: object) -> None:
            """Nothing is to be seen here."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pods.port = server.server_port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running(executable: Path, directory: Path, pods: Pods) -> Iterator[str]:
    """A server that scrapes these pods as the chart's does, only more often; its URL."""
    port = free_port()
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(_configuration(pods)))
    children, url = Children(directory / "logs"), f"http://127.0.0.1:{port}"
    flags = {
        "config.file": config,
        "storage.tsdb.path": directory / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    try:
        children.start("prometheus", [executable, *(f"--{name}={value}" for name, value in flags.items())])

        def ready() -> bool:
            children.check("prometheus")
            try:
                with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        wait_for("Prometheus is ready", ready, START_SECONDS)
        yield url
    finally:
        children.stop("prometheus")


def _configuration(pods: Pods) -> dict[str, Any]:
    """The chart's jobs of gateways and serving pods, with their targets here."""
    chart = named(template("prometheus.enabled=true"), "ConfigMap", "tailbound-prometheus")
    jobs = yaml.safe_load(chart["data"]["prometheus.yml"])["scrape_configs"]
    found = [job for job in jobs if "http_sd_configs" in job]
    for job in found:
        job |= {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE}
        for targets in job["http_sd_configs"]:
            listed = targets["url"].rpartition("/")[2]
            targets |= {
                "url": f"http://127.0.0.1:{pods.port}/targets/{listed}",
                "refresh_interval": SCRAPE,
            }
    return {"scrape_configs": found}
