"""Gateways' counters are read through the API server, as whoever runs the command."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest
from kubernetes.client import ApiClient, Configuration
from tailbound.cli.cluster import Cluster
from tailbound.cli.subject import CommandError, UnansweredError

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


REFUSED = {f"/api/v1/namespaces/n{status}/pods": status for status in (401, 404, 429, 500, 503)}


class ApiServer(BaseHTTPRequestHandler):
    """Answers what ANSWERS has, and refuses all else."""

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        answer, status = ANSWERS.get(path), REFUSED.get(path, 403)
        body = (answer or json.dumps({"message": "pods is forbidden"})).encode()
        kind = "application/json" if body.startswith(b"{") else "text/plain"
        self.send_response(200 if answer is not None else status)
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


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_cannot_answer_now_is_told_from_one_that_refuses(
    cluster: Cluster, status: int
) -> None:
    with pytest.raises(UnansweredError):
        cluster.gateway_metrics(f"n{status}")


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_is_no_missing_answer(cluster: Cluster, status: int) -> None:
    with pytest.raises(CommandError) as raised:
        cluster.gateway_metrics(f"n{status}")
    assert not isinstance(raised.value, UnansweredError)


def test_an_api_server_that_is_away_may_come_back() -> None:
    with (
        ApiClient(Configuration(host="http://127.0.0.1:1")) as client,
        pytest.raises(UnansweredError, match="does not answer"),
    ):
        Cluster(client, "default").gateway_metrics("tailbound-system")
