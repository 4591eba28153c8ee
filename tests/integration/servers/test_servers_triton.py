"""The real Triton serves a Python model with what the chart's runtime renders.

It loses no request when it stops under load. The server is the one inside the package nvidia-pytriton, which
has the Python backend only.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from e2e.cluster.processes import wait_for
from tests.integration.servers.real import environment, free_port, ready, stop_under_load
from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of

MODEL = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [1]})
        return config

    def execute(self, requests):
        inputs = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", each * 2)]) for each in inputs]
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """The packages of Triton's own virtual environment."""
    return next(iter(environment("triton").glob("lib/*/site-packages")))


def command(directory: Path, triton: Path, ports: dict[str, int]) -> str:
    """The rendered command, with this machine's paths and ports."""
    runtime = runtime_of(next(path for path in FILES if path.stem == "triton"))
    pod = rendered(runtime, "python", BATCHED)
    (config,) = (text for text in pod["metadata"]["annotations"].values() if "max_batch_size" in text)
    (directory / "config.pbtxt").write_text(config)
    (directory / "model.py").write_text(MODEL)
    local = " ".join(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics"))
    server = f"exec {triton}/bin/tritonserver --backend-directory={directory}/backends {local}"
    text: str = pod["spec"]["containers"][0]["command"][2]
    for old, new in {
        "/tmp/repository": f"{directory}/repository",
        "/mnt/models/model.python": f"{directory}/model.py",
        "/etc/tailbound/triton": str(directory),
        "exec tritonserver": server,
        **{old: str(new) for old, new in ports.items()},
    }.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_rendered_configuration_serves_and_stops_under_load(tmp_path: Path, packages: Path) -> None:
    triton = packages / "pytriton" / "tritonserver"
    shutil.copytree(triton / "backends", tmp_path / "backends")
    version = packages.parent.name.removeprefix("python")
    stub = "triton_python_backend_stub"
    shutil.copy(triton / "python_backend_stubs" / version / stub, tmp_path / "backends" / "python" / stub)
    ports = {old: free_port() for old in ("8080", "8081", "8082")}
    variables = {
        "PATH": f"{packages.parents[2] / 'bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
    }
    base = f"http://127.0.0.1:{ports['8080']}/v2"

    def call() -> None:
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [3]}
        body = json.dumps({"inputs": [tensor]}).encode()
        answer = json.load(urllib.request.urlopen(f"{base}/models/churn/infer", body, timeout=30))
        assert answer["outputs"][0]["data"] == [6.0]

    with subprocess.Popen(["sh", "-c", command(tmp_path, triton, ports)], env=variables) as process:
        try:
            wait_for("Triton", lambda: process.poll() is None and ready(f"{base}/health/ready"), 120)
            call()
            config = json.load(urllib.request.urlopen(f"{base}/models/churn/config", timeout=30))
            assert config["max_batch_size"] == 16
            assert config["dynamic_batching"]["preferred_batch_size"] == [4, 8]
            assert int(config["dynamic_batching"]["max_queue_delay_microseconds"]) == 5000
            assert stop_under_load(process, ports["8080"], call) > 0
        finally:
            process.kill()
