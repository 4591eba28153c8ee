"""MLX's functions answer behind the server what MLX itself does; what it cannot serve is refused."""

import json
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.runtime.engine_packages import ask, check_answers, check_refusals, output_of, path
from tests.runtime.process import NAME, serving

ROWS: Final = 12
MAKE: Final = """
import re, sys, numpy, mlx.core as mx
from pathlib import Path
folder = Path(sys.argv[1])
dice = numpy.random.default_rng(1)
first, second = (mx.array(dice.standard_normal(shape).astype(numpy.float32)) for shape in ((4, 32), (32, 3)))
def model(*, x):
    logits = mx.tanh(x @ first) @ second
    return mx.softmax(logits, axis=-1), mx.argmax(logits, axis=-1)
def made(name, function, shapeless=True, dtype=mx.float32, rows=2):
    x = mx.zeros((rows, 4), dtype)
    mx.export_function(str(folder / f"{name}.mlxfn"), function, x=x, shapeless=shapeless)
made("model", model)
made("fixed", model, shapeless=False)
made("compiled", mx.compile(lambda *, x: mx.exp(x) * 2 + 1, shapeless=True))
made("double", lambda *, x: x * 2, dtype=mx.float64)
made("transposed", lambda *, x: x.T @ mx.ones((2, 3)))
made("total", lambda *, x: x.sum())
made("bf16", lambda *, x: x, dtype=mx.bfloat16)
made("bf16_out", lambda *, x: x.astype(mx.bfloat16))
made("complex_out", lambda *, x: x.astype(mx.complex64))
with mx.exporter(str(folder / "several.mlxfn"), lambda x: x + 1) as export:
    export(mx.zeros((1, 4)))
    export(mx.zeros((2, 4)))
rows = numpy.load(folder / "rows.npy")
call = mx.import_function(str(folder / "model.mlxfn"))
answers = [call(x=mx.array(row[None])) for row in rows]
probabilities, labels = (numpy.concatenate([each[place] for each in answers]) for place in (0, 1))
numpy.savez(folder / "out.npz", output_0=probabilities, output_1=labels)

content = (folder / "model.mlxfn").read_bytes()
def forged(name, content):
    (folder / f"{name}.mlxfn").write_bytes(content)
forged("old", content.replace(b"0.32.4", b"0.29.4"))
forged("cut", content[:100])
forged("shorter", content[: len(content) // 2])
forged("count", content[:19] + b"\\xff" * 8 + content[27:])
gpu = bytes([0, 0, 0, 0, 1]) + bytes(7)
forged("gpu", re.sub(rb"\\0{12}(?=.\\0{7}[A-Z][a-z]+)", gpu, content, flags=re.S))
forged("operation", content.replace(b"Softmax", b"Softmin"))
forged("other", b"this is no model, whatever it may be")
forged("pickle", b"\\x80\\x04\\x95")
"""
SHAPES: Final = """
import json, pathlib, sys
from tailbound_runtime.engine import Order
from tailbound_runtime.engines import mlx_function
loaded = [mlx_function.load(Order(pathlib.Path(name), "mlx", 1)) for name in sys.argv[1:]]
print(json.dumps([each.inputs["x"].shape for each in loaded]))
"""
SAID: Final = {
    "double": "loaded",
    "bf16": "input 0 of the function has type 12 of MLX's, which this server cannot carry on MLX",
    "bf16_out": "output 0 of the function has type mlx.core.bfloat16, which this server cannot carry on MLX",
    "complex_out": "output 0 of the function has type mlx.core.complex64, which this server cannot carry",
    "several": "has 2 functions, one for each set of shapes: export one, with shapeless=True",
    "old": "was written by MLX 0.29.4, and this image has 0.32.4: export it again with that version",
    "cut": "MLX 0.32.4 cannot load",
    "shorter": "MLX 0.32.4 cannot load",
    "count": "it has a count of 18446744073709551615 where at most",
    "gpu": "without gpu backend: export it after mx.set_default_device(mx.cpu)",
    "operation": "Unable to deserialize primitive",
    "other": "it has a count of",
    "pickle": "is no exported MLX function: it is a pickle, which runs code of its author",
    "none": "No such file or directory",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlx")
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    output_of(MAKE, str(folder))
    return folder


def test_every_output_is_the_librarys_own_alone_and_batched(made: Path) -> None:
    rows, expected = np.load(made / "rows.npy"), np.load(made / "out.npz")
    how = {"model_format": "mlx", "batching_mode": "dynamic", "batching_max_size": "8", "grpc_port": "0"}
    with serving(made / "model.mlxfn", env=path(), cpu_limit="2", **how) as server:
        described = server.client.get(f"/v2/models/{NAME}").json()
        assert described["platform"] == "mlx_mlx"
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        check_answers(server, rows, expected)
        assert ask(server, rows[:0])["output_0"].shape == (0, 3)
        narrow = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1.0] * 6}
        refused = server.infer({"inputs": [narrow]})
        assert (refused.status_code, "does not fit" in refused.text) == (400, True), (
            "MLX would read beyond it"
        )
        config = server.client.get(f"/v2/models/{NAME}/config").json()
        assert config["max_batch_size"] == 8, "the row check found that rows mix"
    assert all("event" in line for line in server.lines), "a library prints lines of its own"


def test_a_function_that_does_not_answer_row_by_row_takes_the_shape_of_its_export(made: Path) -> None:
    names = ("fixed", "transposed", "total", "compiled")
    shapes = json.loads(output_of(SHAPES, *(str(made / f"{name}.mlxfn") for name in names)))
    assert dict(zip(names, shapes, strict=True)) == {**{name: [2, 4] for name in names}, "compiled": [-1, 4]}


def test_what_cannot_be_served_is_refused_with_the_remedy(made: Path) -> None:
    check_refusals("mlx", {made / f"{name}.mlxfn": part for name, part in SAID.items()})
