"""ExecuTorch's programs answer behind the server what ExecuTorch does; what it cannot serve is refused."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.runtime.engine_packages import ask, check_answers, check_refusals, output_of, path, torch_folder
from tests.runtime.process import NAME, serving, starting

ROWS: Final = 12
MAKE: Final = """
import sys, warnings, numpy, torch
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from torch import nn
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
folder = Path(sys.argv[1])
torch.manual_seed(1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 3)
    def forward(self, *, x):
        logits = self.last(self.first(x).relu())
        return {"probabilities": logits.softmax(1), "label": logits.argmax(1)}
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = nn.Buffer(torch.zeros(3))
    def forward(self, *, x):
        self.count.add_(1)
        return x[:, :3] + self.count
class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3)))
    def forward(self, *, x):
        return self.layers(x)
class Same(nn.Module):
    def forward(self, *, x):
        return x, x + 1
class Scaled(nn.Module):
    def forward(self, *, x, by):
        return x * by
def made(name, model, parts=(), free=True, dtype=torch.float32, x=None, **others):
    x = torch.randn(3, 4).to(dtype) if x is None else x
    shapes = {"x": {0: torch.export.Dim("n", max=8)} if free else None, **dict.fromkeys(others)}
    program = torch.export.export(model.eval(), (), {"x": x, **others}, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(program, partitioner=list(parts)).to_executorch()
    (folder / f"{name}.pte").write_bytes(lowered.buffer)
made("portable", Model())
made("xnnpack", Model(), [XnnpackPartitioner()])
made("slow", Slow(), free=False, x=torch.randn(16, 1024))
made("counting", Counting())
made("same", Same())
made("bf16", Same(), dtype=torch.bfloat16)
made("number", Scaled(), by=3)
made("fixed", Same(), free=False)
made("image", Same(), free=False, x=torch.randn(1, 2, 3, 3).contiguous(memory_format=torch.channels_last))
rows = torch.tensor(numpy.load(folder / "rows.npy"))
for name in ("portable", "xnnpack"):
    method = Runtime.get().load_program(folder / f"{name}.pte").load_method("forward")
    answers = [method.execute([row[None]]) for row in rows]
    outputs = {"probabilities": 0, "label": 1}
    found = {each: torch.cat([answer[place] for answer in answers]) for each, place in outputs.items()}
    numpy.savez(folder / f"{name}.npz", **found)

def forged(name, source, old, new):
    content = (folder / f"{source}.pte").read_bytes()
    assert old in content and len(old) == len(new)
    (folder / f"{name}.pte").write_bytes(content.replace(old, new))
forged("delegate", "xnnpack", b"XnnpackBackend", b"QnnBackend".ljust(14, b"\\0"))
forged("name", "same", b"forward", b"forwerd")
forged("tree", "same", b'"children_spec"', b'"children_spek"')
content = (folder / "xnnpack.pte").read_bytes()
(folder / "cut.pte").write_bytes(content[: len(content) // 2])
(folder / "other.pte").write_bytes(b"this is no model")
(folder / "pickle.pte").write_bytes(b"\\x80\\x04\\x95")
"""
REFUSED: Final = """
import json, pathlib, sys
from tailbound_runtime.engine import Order
from tailbound_runtime.engines import execu_torch_program
from tailbound_runtime.errors import ModelLoadError
for name in sys.argv[1:]:
    try:
        execu_torch_program.load(Order(pathlib.Path(name), "executorch", 1))
        print(json.dumps("loaded"))
    except ModelLoadError as error:
        print(json.dumps(str(error)))
"""
SAID: Final = {
    "same": "loaded",
    "fixed": "loaded",
    "counting": "changes its own buffers, so that requests would see what others left",
    "bf16": "input 'x' of the program has type 15 of ExecuTorch's, which this server cannot carry",
    "number": "input 'by' of the program is no tensor: export it with tensors",
    "image": "input 'x' of the program is not contiguous",
    "delegate": "was lowered for QnnBackend, which this server does not run: lower it with Xnnpack",
    "name": "has the methods forwerd, and none named forward: export it with one",
    "tree": "ExecuTorch 1.5.1, which says more on standard error, cannot load",
    "cut": "ExecuTorch 1.5.1, which says more on standard error, cannot load",
    "other": "is no ExecuTorch program, which has at offset 4 'ET12'",
    "pickle": "is no ExecuTorch program: it is a pickle, which runs code of its author",
    "none": "cannot be read: No such file",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("executorch")
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    output_of(MAKE, str(folder), of=torch_folder)
    return folder


@pytest.mark.parametrize("name", ["portable", "xnnpack"])
def test_every_output_is_the_librarys_own_alone_and_batched(made: Path, name: str) -> None:
    rows, expected = np.load(made / "rows.npy"), np.load(made / f"{name}.npz")
    how = {
        "model_format": "executorch",
        "batching_mode": "dynamic",
        "batching_max_size": "8",
        "grpc_port": "0",
    }
    with serving(made / f"{name}.pte", env=path(torch_folder), cpu_limit="2", **how) as server:
        described = server.client.get(f"/v2/models/{NAME}").json()
        assert described["platform"] == "executorch_executorch"
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        check_answers(server, rows, expected)
        assert ask(server, rows[:0])["label"].shape == (0,)
        many = {"name": "x", "datatype": "FP32", "shape": [9, 4], "data": [0.0] * 36}
        refused = server.infer({"inputs": [many]})
        assert refused.status_code == 400
        assert "has 9 rows, and the model takes 8 at most" in refused.json()["error"]
        config = server.client.get(f"/v2/models/{NAME}/config").json()
        assert config["max_batch_size"] == 8, "the row check found that rows mix"
    assert all("event" in line for line in server.lines), "a library prints lines of its own"


def test_what_cannot_be_served_is_refused_with_the_remedy(made: Path) -> None:
    names = [str(made / f"{name}.pte") for name in SAID]
    errors = [json.loads(line) for line in output_of(REFUSED, *names, of=torch_folder).splitlines()]
    assert [error for part, error in zip(SAID.values(), errors, strict=True) if part not in error] == []
    check_refusals("executorch", {made / "other.pte": SAID["other"]}, torch_folder)


def test_the_server_answers_during_a_run_and_ends_if_the_process_of_the_program_does(made: Path) -> None:
    with starting(made / "slow.pte", env=path(torch_folder), model_format="executorch") as server:
        server.wait_for("ready")
        tensor = {"name": "x", "datatype": "FP32", "shape": [16, 1024], "data": [0.5] * 16 * 1024}
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(server.infer, {"inputs": [tensor]})
            probes = 0
            while not run.done():
                assert server.client.get("/v2/health/live").status_code == 200
                probes += 1
            assert run.result().status_code == 200
        assert probes > 20, "probes waited for the run"
        os.kill(_child(server.process.pid), signal.SIGKILL)
        assert server.infer({"inputs": [tensor]}).status_code == 500
        assert server.process.wait(30) != 0


def _child(process: int) -> int:
    """The process that runs the program of this server."""
    children = [
        each for file in Path(f"/proc/{process}/task").glob("*/children") for each in file.read_text().split()
    ]
    (found,) = [each for each in children if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]
    return int(found)
