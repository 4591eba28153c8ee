"""Programs of torch.export answer behind the server what PyTorch does; code in their files does not run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from tests.runtime.engine_packages import ask, check_refusals, output_of, path, torch_folder
from tests.runtime.process import serving

ROWS: Final = 12
MAKE: Final = """
import json, os, pickle, sys, zipfile, numpy, torch
from pathlib import Path
from torch import nn
folder = Path(sys.argv[1])
torch.manual_seed(1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 32), nn.BatchNorm1d(32), nn.Linear(32, 3)
        self.count = nn.Buffer(torch.zeros(3))
        self.scale = torch.tensor([1.0, 2.0, float("inf")])
    def forward(self, x):
        hidden = nn.functional.dropout(self.norm(self.first(x)).relu(), training=self.training)
        logits = self.last(hidden) + self.count
        halves = torch.cat([part * 2 for part in x.split(2, dim=1)], dim=1).reshape(x.shape[0] * 2, 2)
        return {"probabilities": logits.softmax(1), "label": logits.argmax(1), "best": logits.topk(2).values,
                "halves": halves.reshape(x.shape[0], 4), "clipped": logits.minimum(self.scale)}
class Counting(Model):
    def forward(self, x):
        self.count[1:].add_(1)
        return super().forward(x)
def exported(model, name):
    shapes = {"x": {0: torch.export.Dim("n")}}
    program = torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=shapes)
    torch.export.save(program, folder / f"{name}.pt2")
    return program
model = Model().eval()
program = exported(model, "model")
exported(Model(), "training")
torch.export.save(program.run_decompositions(), folder / "decomposed.pt2")
exported(Counting().eval(), "counting")
rows = torch.tensor(numpy.load(folder / "rows.npy"))
with torch.inference_mode():
    answers = [model(row[None]) for row in rows]
numpy.savez(folder / "out.npz", **{name: torch.cat([each[name] for each in answers]) for name in answers[0]})
torch.jit.script(nn.Linear(4, 3)).save(str(folder / "script.pt2"))

class Evil:
    def __reduce__(self):
        return os.system, (f"touch {folder}/ran",)
CALL = f"__import__('os').system('touch {folder}/ran')"
def forged(name, change, files=None):
    with zipfile.ZipFile(folder / "model.pt2") as given:
        contents = {each: given.read(each) for each in given.namelist()}
    graph, weights = "model/models/model.json", "model/data/weights/model_weights_config.json"
    written = {each: json.loads(contents[each]) for each in (graph, weights)}
    change(*written.values())
    contents |= {each: json.dumps(one).encode() for each, one in written.items()} | (files or {})
    with zipfile.ZipFile(folder / f"{name}.pt2", "w") as made:
        for each, content in contents.items():
            made.writestr(each, content)
def sizes(program, weights):
    program["guards_code"] = [CALL]
    for value in program["graph_module"]["graph"]["sym_int_values"].values():
        value["as_expr"]["expr_str"] = CALL
    program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = CALL
forged("evaluated", sizes)
forged("sample", lambda program, weights: None, {"model/data/sample_inputs/model.pt": pickle.dumps(Evil())})
def payload(**fields):
    return lambda program, weights: weights["config"]["first.weight"].update(fields)
forged("pickled", payload(use_pickle=True), {"model/data/weights/weight_0": pickle.dumps(Evil())})
def meta(**fields):
    return lambda program, weights: weights["config"]["first.weight"]["tensor_meta"].update(fields)
forged("beyond", meta(strides=[{"as_int": 10**6}, {"as_int": 1}]))
forged("before", meta(storage_offset={"as_int": -8}))
forged("cuda", meta(device={"type": "cuda", "index": 0}))
def target(name):
    return lambda program, weights: program["graph_module"]["graph"]["nodes"][1].update(target=name)
names = ("torch.ops.aten.save.default", "torch.hub.load", "torch.ops.aten.from_file.default",
         "torch.serialization.os.system", "_operator.methodcaller", "torch.ops.aten.__class__",
         "torch.ops.torchvision.nms.default", "torch.ops.higher_order.cond")
for number, name in enumerate(names):
    forged(f"operation{number}", target(name))
forged("schema", lambda program, weights: program.update(schema_version={"major": 99, "minor": 0}))
forged("nothing", lambda program, weights: program.clear())
"""
OPERATION: Final = "which is none of ATen that this server runs"
SAID: Final = {
    "evaluated": "loaded",
    "sample": "loaded",
    "pickled": "is a pickle, which runs code of its author when it is read",
    "beyond": "out of bounds",
    "before": "is not what torch.export.save of torch 2.13.0 writes",
    "cuda": "'first.weight' of the model is on cuda: move model and inputs to the CPU",
    **{f"operation{number}": OPERATION for number in range(8)},
    "counting": "the model changes its own weights or buffers (aten::add_)",
    "training": "call eval() before the export",
    "schema": "has version 99 of the schema, and this server reads 8: export the model again",
    "nothing": "is not what torch.export.save of torch 2.13.0 writes",
    "script": "has 0 graphs named models/model.json",
    "cut": "cannot be read as a file of torch.export.save",
    "pickle": "is no file of torch.export.save: it is a pickle",
    "none": "cannot be read: No such file",
}


def test_answers_are_pytorchs_own_and_code_in_a_file_does_not_run(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    output_of(MAKE, str(tmp_path), of=torch_folder)
    expected = dict(np.load(tmp_path / "out.npz"))
    how = {"model_format": "pt2", "batching_mode": "dynamic", "batching_max_size": "8"}
    for name in ("model", "decomposed"):
        with serving(tmp_path / f"{name}.pt2", env=path(torch_folder), cpu_limit="2", **how) as server:
            described = server.client.get("/v2/models/m").json()
            assert described["platform"] == "torch_pt2"
            assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
            with ThreadPoolExecutor(ROWS) as pool:
                alone = list(pool.map(lambda row: ask(server, row[None]), rows))
            together = ask(server, rows[:8])
            assert set(together) == set(expected)
            for output, array in expected.items():
                # Sums of FP32 are ordered by the number of rows.
                joined = np.concatenate([each[output] for each in alone])
                assert np.allclose(joined, array, rtol=0, atol=1e-6), output
                assert np.allclose(together[output], array[:8], rtol=0, atol=1e-6), output
            assert ask(server, rows[:0])["label"].shape == (0,)
            described = server.client.get("/v2/models/m/config").json()
            assert described["max_batch_size"] == 8, "the row check found that rows mix"
        assert all("event" in line for line in server.lines), "a library prints lines of its own"
    (tmp_path / "cut.pt2").write_bytes((tmp_path / "model.pt2").read_bytes()[:3000])
    (tmp_path / "pickle.pt2").write_bytes(b"\x80\x04\x95")
    check_refusals("torch", {tmp_path / f"{name}.pt2": part for name, part in SAID.items()}, torch_folder)
    assert not (tmp_path / "ran").exists()
