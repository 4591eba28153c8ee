"""The real MLServer serves a scikit-learn model with what the chart's runtime renders.

It loses no request when it stops under load.
"""

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from e2e.cluster.processes import wait_for
from tests.integration.servers.real import environment, free_port, ready, stop_under_load
from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of

TRAIN = """
import sys, joblib
from sklearn.linear_model import LinearRegression
joblib.dump(LinearRegression().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]), sys.argv[1])
"""


def test_the_rendered_configuration_serves_and_stops_under_load(tmp_path: Path) -> None:
    programs = environment("mlserver") / "bin"
    model, ports = tmp_path / "model.sklearn", {old: free_port() for old in ("8080", "8081", "8082")}
    subprocess.run([programs / "python", "-c", TRAIN, model], check=True)
    pod = rendered(runtime_of(next(path for path in FILES if path.stem == "mlserver")), "sklearn", BATCHED)
    here = {"/mnt/models/model.sklearn": str(model), **{old: str(new) for old, new in ports.items()}}
    for name, content in configuration(pod).items():
        (tmp_path / name).write_text(localised(content, here))
    (server,) = pod["spec"]["containers"]
    assert server["command"] == ["mlserver", "start", "/etc/tailbound/mlserver"]
    variables = {each["name"]: each["value"] for each in server["env"]} | {"HOME": str(tmp_path)}
    command = [str(programs / "mlserver"), "start", str(tmp_path)]
    base = f"http://127.0.0.1:{ports['8080']}"
    path = server["readinessProbe"]["httpGet"]["path"]

    def call() -> None:
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP64", "data": [3.0]}
        body = json.dumps({"inputs": [tensor]}).encode()
        asked = urllib.request.Request(
            f"{base}/v2/models/churn/infer", body, {"Content-Type": "application/json"}
        )
        answer = json.load(urllib.request.urlopen(asked, timeout=30))
        assert abs(answer["outputs"][0]["data"][0] - 7.0) < 1e-9, answer

    with subprocess.Popen(command, env={**os.environ, **variables}, cwd=tmp_path) as process:
        try:
            wait_for("MLServer", lambda: process.poll() is None and ready(f"{base}{path}"), 180)
            assert ready(f"{base}{server['livenessProbe']['httpGet']['path']}")
            assert ready(f"http://127.0.0.1:{ports['8082']}/metrics")
            call()
            assert stop_under_load(process, ports["8080"], call) > 0
        finally:
            process.kill()


def configuration(pod: dict[str, Any]) -> dict[str, str]:
    """The contents of the rendered files, by their names."""
    contents = [text for name, text in pod["metadata"]["annotations"].items() if "/file-" in name]
    (items,) = (
        volume["downwardAPI"]["items"] for volume in pod["spec"]["volumes"] if "downwardAPI" in volume
    )
    return dict(zip((item["path"] for item in items), contents, strict=True))


def localised(text: str, here: dict[str, str]) -> str:
    """The text with the paths and ports of this machine."""
    for old, new in here.items():
        text = text.replace(old, new)
    return text
