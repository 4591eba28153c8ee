"""The packages of the engines beside ONNX Runtime, for their tests, and what these share.

They are installed once, into a folder of the cache, without what the environment of the tests has already;
`python -m tests.runtime.engine_packages` does that ahead.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import tritonclient.grpc as triton

from e2e.cluster.binaries import cache_folder
from tests.runtime.process import NAME, Server, rpc_address

Rows = np.ndarray[Any, Any]

CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"
PACKAGES: Final = (
    *("ai-edge-litert", "backports.strenum", "tqdm"),
    *("mlx", "mlx-cpu"),
    "openvino",
    *("xgboost-cpu", "lightgbm", "narwhals", "scipy"),
    *(
        "scikit-learn",
        "skl2onnx",
        "joblib",
        "cloudpickle",
        "threadpoolctl",
        "skops",
        "prettytable",
        "wcwidth",
    ),
)
"""The engines, what they import, and the converter whose models ONNX Runtime serves."""

TORCH: Final = ("torch", "executorch")
"""PyTorch, whose wheel needs other versions of CUDA's libraries than ONNX Runtime's in constraints.txt, and
ExecuTorch, which needs it."""

HEAVY: Final = ("tensorflow-cpu", "jax")
"""Engines of more than a gigabyte, which `make test-servers` tests."""


def folder() -> Path:
    """The folder with these packages, which is made if need be."""
    return _made("engines", PACKAGES, "--no-deps")


def heavy_folder() -> Path:
    """The folder with the packages of the large engines and all that they need, which is made if need be."""
    return _made("engines-heavy", HEAVY, "--constraint", str(CONSTRAINTS))


def torch_folder() -> Path:
    """The folder with PyTorch, ExecuTorch and all that they need, which is made if need be."""
    return _made("engines-torch", TORCH)


def _made(name: str, packages: Sequence[str], *how_else: str) -> Path:
    found = cache_folder() / name
    found.mkdir(parents=True, exist_ok=True)
    record = found / "installed.txt"
    pinned = CONSTRAINTS.read_text().splitlines()
    wanted = [line for line in pinned if line.partition("==")[0] in packages]
    with (found / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = record.read_text().splitlines() if record.exists() else []
        if missing := [line for line in wanted if line not in installed]:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            how = (*how_else, "--upgrade", "--target", str(found / "packages"), *missing)
            subprocess.run([*pip, *how], check=True)
            record.write_text("\n".join(wanted))
    return found / "packages"


def path(of: Callable[[], Path] = folder) -> dict[str, str]:
    """The environment of a process that finds the packages of a folder."""
    return {"PYTHONPATH": os.pathsep.join([str(of()), *sys.path])}


def output_of(script: str, *arguments: str, of: Callable[[], Path] = folder) -> str:
    """What a Python program that has the packages prints."""
    env = {**os.environ, **path(of)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def ask(server: Server, rows: Rows, datatype: str = "FP32", name: str = "x") -> dict[str, Rows]:
    """The server's outputs for these rows."""
    data = ["NaN" if np.isnan(value) else value for value in rows.ravel().tolist()]
    tensor = {"name": name, "datatype": datatype, "shape": list(rows.shape), "data": data}
    answer = server.infer({"inputs": [tensor]})
    assert answer.status_code == 200, answer.text
    return {each["name"]: np.reshape(each["data"], each["shape"]) for each in answer.json()["outputs"]}


def ask_by_grpc(server: Server, rows: Rows, datatype: str, name: str) -> dict[str, Rows]:
    """The server's outputs for these rows, by gRPC."""
    tensor = triton.InferInput(name, list(rows.shape), datatype)
    tensor.set_data_from_numpy(rows)
    with triton.InferenceServerClient(rpc_address(server)) as client:
        answer = client.infer(NAME, [tensor])
    return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}


def check_answers(server: Server, rows: Rows, expected: Mapping[str, Rows]) -> None:
    """Every output is the library's own: of each row alone and at once, of eight together, and by gRPC."""
    with ThreadPoolExecutor(len(rows)) as pool:
        alone = list(pool.map(lambda row: ask(server, row[None]), rows))
    together, by_grpc = ask(server, rows[:8]), ask_by_grpc(server, rows[:8], "FP32", "x")
    assert set(together) == set(by_grpc) == set(expected)
    for output, array in expected.items():
        # Sums of FP32 are ordered by the number of rows.
        joined = np.concatenate([each[output] for each in alone])
        assert np.allclose(joined, array, rtol=0, atol=1e-6), output
        assert np.allclose(together[output], array[:8], rtol=0, atol=1e-6), output
        assert np.array_equal(by_grpc[output], together[output].astype(by_grpc[output].dtype)), output


_REFUSED: Final = """
import json, pathlib, sys
from tailbound_runtime import engines
from tailbound_runtime.engine import Order
from tailbound_runtime.errors import ModelLoadError
kind = next(each for each in engines.KINDS if each.name == sys.argv[1])
for name in sys.argv[2:]:
    try:
        engines.load(kind, Order(pathlib.Path(name), kind.formats[0], 1))
        print(json.dumps("loaded"))
    except ModelLoadError as error:
        print(json.dumps(str(error)))
"""


def check_refusals(engine: str, said: Mapping[Path, str], of: Callable[[], Path] = folder) -> None:
    """Each of these files is refused by the engine, with an error that has this part."""
    errors = [json.loads(line) for line in output_of(_REFUSED, engine, *map(str, said), of=of).splitlines()]
    assert len(errors) == len(said)
    assert [error for part, error in zip(said.values(), errors, strict=True) if part not in error] == []


if __name__ == "__main__":
    sys.stdout.write(f"{folder()}\n")
