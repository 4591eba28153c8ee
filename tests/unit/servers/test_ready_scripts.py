"""The scripts that probe TorchServe and Ray Serve, by what the server's own port says of the model."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of


def _script(name: str, model_format: str, probes: tuple[str, ...]) -> str:
    runtime = runtime_of(next(path for path in FILES if path.stem == name))
    pod = rendered(runtime, model_format, BATCHED)
    (script,) = (text for text in pod["metadata"]["annotations"].values() if "urlopen" in text)
    (server,) = pod["spec"]["containers"]
    commands = {tuple(server[f"{kind}Probe"]["exec"]["command"]) for kind in probes}
    assert commands == {("python3", "-I", f"/etc/tailbound/{name}/ready.py")}
    return str(script)


@contextmanager
def _answering(path: str, answer: Any, status: int = 200, token: str | None = None) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == path
            known = self.headers["Authorization"] == (None if token is None else f"Bearer {token}")
            self.send_response(status if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _said(script: str, home: Path) -> tuple[int, str]:
    """The exit status of the probe, and what it says."""
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={"HOME": str(home)})
    return done.returncode, done.stderr.strip()


def test_a_pod_of_torchserve_is_ready_once_a_worker_has_loaded_the_model_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    script = _script("torchserve", "mar", ("startup", "readiness"))
    for status, workers, says in (
        (200, ["READY"], ""),
        (200, ["UNLOADING", "READY"], ""),
        (200, ["UNLOADING"], "no worker of churn has loaded it: ['UNLOADING']"),
        (200, [], "no worker of churn has loaded it: []"),
        (404, [], "TorchServe has no model churn: HTTP Error 404: Not Found; its log says why"),
    ):
        models = [{"modelName": "churn", "workers": [{"status": each} for each in workers]}]
        with _answering("/models/churn", models, status) as port:
            assert _said(script.replace("8083", str(port)), tmp_path) == (int(bool(says)), says)
    code, said = _said(script.replace("8083", str(port)), tmp_path)
    assert (code, said.startswith("TorchServe does not answer yet: ")) == (1, True), said


def test_a_pod_of_ray_serve_has_started_once_its_applications_run_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    script = _script("rayserve", "ray-serve", ("startup",))
    path = "/api/serve/applications/"
    runs, failed = {"status": "RUNNING", "message": ""}, {"status": "DEPLOY_FAILED", "message": "no module a"}
    for applications, says in (
        ({"default": runs}, ""),
        ({"default": runs, "other": failed}, "other is DEPLOY_FAILED: no module a"),
        ({"default": {"status": "DEPLOYING", "message": ""}}, "default is DEPLOYING:"),
        ({}, "Ray Serve has no application yet"),
    ):
        with _answering(path, {"applications": applications}) as port:
            assert _said(script.replace("8265", str(port)), tmp_path) == (int(bool(says)), says)
    code, said = _said(script.replace("8265", str(port)), tmp_path)
    assert (code, said.startswith("the dashboard of Ray does not answer yet: ")) == (1, True), said
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret\n")
    with _answering(path, {"applications": {"default": runs}}, token="secret") as port:
        assert _said(script.replace("8265", str(port)), tmp_path) == (0, "")
