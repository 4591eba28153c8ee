"""The model server beside the real Triton, which comes from the package nvidia-pytriton.

`make conformance` makes an environment of its own for it, and names that in TRITON. Its model computes the
same as ours with numpy.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from e2e.cluster.ports import free_port
from tests.runtime import models
from tests.runtime.process import NAME, eventually, serving
from tests.runtime.test_triton_differences import CASES, REASONS, TABLE, said

ENVIRONMENT: Final = os.environ.get("TRITON")

MODEL: Final = """
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a, b = (pb.get_input_tensor_by_name(request, name).as_numpy() for name in "ab")
            outputs = [pb.Tensor("sum", a + b), pb.Tensor("product", a * b)]
            answers.append(pb.InferenceResponse(outputs))
        return answers
"""
CONFIG: Final = """
name: "m"
backend: "python"
max_batch_size: 8
input [{ name: "a" data_type: TYPE_FP32 dims: [4] }, { name: "b" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "sum" data_type: TYPE_FP32 dims: [4] }, { name: "product" data_type: TYPE_FP32 dims: [4] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


def _installed(packages: Path, folder: Path) -> Path:
    """Write its backends and its models into a folder; gives its home."""
    home = packages / "pytriton" / "tritonserver"
    backends, version = folder / "backends", folder / "models" / NAME / "1"
    shutil.copytree(home / "backends" / "python", backends / "python")
    stub = "triton_python_backend_stub"
    python = packages.parent.name.removeprefix("python")
    shutil.copy(home / "python_backend_stubs" / python / stub, backends / "python" / stub)
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    return home


@contextmanager
def triton(folder: Path) -> Iterator[str]:
    """The URL of a real one."""
    assert ENVIRONMENT is not None
    packages = next(Path(ENVIRONMENT).glob("lib/python3.*/site-packages"))
    home = _installed(packages, folder)
    port = free_port()
    libraries = f"{home / 'external_libs'}:{packages / 'nvidia_pytriton.libs'}"
    process = subprocess.Popen(
        [
            *(str(home / "bin" / "tritonserver"), f"--model-repository={folder / 'models'}"),
            *(f"--backend-directory={folder / 'backends'}", f"--http-port={port}"),
            *("--http-address=127.0.0.1", "--allow-grpc=false", "--allow-metrics=false"),
        ],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "PATH": f"{ENVIRONMENT}/bin:{os.environ['PATH']}",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, "Triton has ended"
            try:
                return httpx.get(f"{url}/v2/models/{NAME}/ready").status_code == 200
            except httpx.TransportError:
                return False

        eventually(ready, 120)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def test_answers_differ_from_those_of_triton_only_with_a_reason(tmp_path: Path) -> None:
    """The test writes the table again; a difference to the one before is a change to look at."""
    rows, unexpected = [], []
    with serving(models.arithmetic(tmp_path / "m.onnx")) as server, triton(tmp_path) as url:
        for case in CASES:
            theirs, ours = (case.asked(base) for base in (url, server.url))
            if (theirs != ours) != (case.name in REASONS):
                unexpected.append((case.name, theirs, ours))
            if case.name in REASONS:
                rows.append(f"| {case.name} | {said(theirs)} | {said(ours)} | {REASONS[case.name]} |")
    head = ["| request | Triton 2.51 | this server | why |", "|---|---|---|---|"]
    TABLE.write_text("\n".join([*head, *rows, ""]))
    assert unexpected == [], "\n".join(map(str, unexpected))
