"""The readiness probe of the chart's TorchServe, by what the server's management port says of the model."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of


def _script() -> str:
    pod = rendered(runtime_of(next(path for path in FILES if path.stem == "torchserve")), "mar", BATCHED)
    (script,) = (text for text in pod["metadata"]["annotations"].values() if "urlopen" in text)
    (server,) = pod["spec"]["containers"]
    commands = {tuple(server[f"{kind}Probe"]["exec"]["command"]) for kind in ("startup", "readiness")}
    assert commands == {("python3", "-I", "/etc/tailbound/torchserve/ready.py")}
    return str(script)


@contextmanager
def _management(status: int, workers: list[str]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/models/churn"
            self.send_response(status)
            self.end_headers()
            models = [{"modelName": "churn", "workers": [{"status": each} for each in workers]}]
            self.wfile.write(json.dumps(models).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_pod_is_ready_once_a_worker_has_loaded_the_model_and_says_what_is_missing() -> None:
    script = _script()

    def probe(port: int) -> tuple[int, str]:
        command = [sys.executable, "-I", "-S", "-c", script.replace("8083", str(port))]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr.strip()

    for status, workers, says in (
        (200, ["READY"], ""),
        (200, ["UNLOADING", "READY"], ""),
        (200, ["UNLOADING"], "no worker of churn has loaded it: ['UNLOADING']"),
        (200, [], "no worker of churn has loaded it: []"),
        (404, [], "TorchServe has no model churn: HTTP Error 404: Not Found; its log says why"),
    ):
        with _management(status, workers) as port:
            assert probe(port) == (int(bool(says)), says)
    code, said = probe(port)
    assert (code, said.startswith("TorchServe does not answer yet: ")) == (1, True), said
