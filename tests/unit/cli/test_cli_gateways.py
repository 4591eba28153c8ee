"""Gateways' counters are read through the API server, as whoever runs the command."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest
from kubernetes.client import ApiClient, Configuration
from tailbound.cli.cluster import Cluster
from tailbound.cli.subject import CommandError

PODS = "/api/v1/namespaces/tailbound-system/pods"
ANSWERS = {
    PODS: json.dumps(
        {
            "apiVersion": "v1",
            "kind": "PodList",
            "metadata": {},
            "items": [{"metadata": {"name": "gateway-a"}}],
        }
    ),
    f"{PODS}/gateway-a:8082/proxy/metrics": "tailbound_requests_total{} 1\n",
}


class ApiServer(BaseHTTPRequestHandler):
    """Answers what ANSWERS has, and refuses all else."""

    def do_GET(self) -> None:
        answer = ANSWERS.get(unquote(self.path.partition("?")[0]))
        body = (answer or json.dumps({"message": "pods is forbidden"})).encode()
        kind = "application/json" if body.startswith(b"{") else "text/plain"
        self.send_response(200 if answer is not None else 403)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = Configuration(host=f"http://127.0.0.1:{server.server_address[1]}")
        with ApiClient(configuration) as client:
            yield Cluster(client, "default")
            client.rest_client.pool_manager.clear()
        server.shutdown()


def test_every_gateway_pod_is_asked(cluster: Cluster) -> None:
    assert cluster.gateway_metrics("tailbound-system") == {"gateway-a": "tailbound_requests_total{} 1\n"}


def test_a_refusal_is_told_in_the_servers_words(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match="pods is forbidden"):
        cluster.gateway_metrics("elsewhere")
