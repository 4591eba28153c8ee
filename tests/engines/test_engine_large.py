"""Servers on TensorFlow and JAX answer what these themselves do, alone and batched, by the model's names."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.engine_packages import ask, check_refusals, heavy_folder, output_of, path
from tests.runtime.process import serving

ROWS = 12
DATA = """
import os, sys, numpy
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
dice = numpy.random.default_rng(1)
first, second = (dice.standard_normal(shape).astype(numpy.float32) for shape in ((4, 32), (32, 3)))
rows = numpy.load(sys.argv[2])
"""
TENSORFLOW = """
import tensorflow as tf
class Model(tf.Module):
    def __init__(self):
        self.first, self.second = tf.Variable(first), tf.Variable(second)
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x):
        logits = tf.tanh(x @ self.first) @ self.second
        return {"probabilities": tf.nn.softmax(logits), "label": tf.argmax(logits, axis=1)}
model = Model()
tf.saved_model.save(model, os.path.dirname(sys.argv[1]), signatures={"serving_default": model.serve})
answers = [model.serve(tf.constant(row[None])) for row in rows]
found = {name: [each[name].numpy()[0] for each in answers] for name in ("probabilities", "label")}
numpy.savez(sys.argv[3], **found)
"""
JAX = """
import jax
from jax import export, numpy as jnp
def function(arguments):
    logits = jnp.tanh(arguments["x"] @ first) @ second
    return {"probabilities": jax.nn.softmax(logits), "label": jnp.argmax(logits, axis=1)}
shape = jax.ShapeDtypeStruct(export.symbolic_shape("n, 4"), jnp.float32)
exported = export.export(jax.jit(function), platforms=["cpu"])({"x": shape})
open(sys.argv[1], "wb").write(exported.serialize())
answers = [jax.jit(function)({"x": row[None]}) for row in rows]
found = {name: [numpy.asarray(each[name])[0] for each in answers] for name in ("probabilities", "label")}
numpy.savez(sys.argv[3], **found)
"""


@pytest.mark.parametrize(
    ("script", "file", "model_format", "platform"),
    [
        (TENSORFLOW, "made/saved_model.pb", "savedmodel", "tensorflow_savedmodel"),
        (JAX, "model.jax", "jax", "jax_jax"),
    ],
    ids=["tensorflow", "jax"],
)
def test_every_output_is_the_librarys_own_alone_and_batched(
    tmp_path: Path, script: str, file: str, model_format: str, platform: str
) -> None:
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    files = (tmp_path / file, tmp_path / "rows.npy", tmp_path / "out.npz")
    output_of(DATA + script, *map(str, files), of=heavy_folder)
    expected = np.load(tmp_path / "out.npz")
    how = {"model_format": model_format, "batching_mode": "dynamic", "batching_max_size": "8"}
    with serving(tmp_path / file, env=path(heavy_folder), cpu_limit="2", **how) as server:
        described = server.client.get("/v2/models/m").json()
        assert described["platform"] == platform
        assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        with ThreadPoolExecutor(ROWS) as pool:
            alone = list(pool.map(lambda row: ask(server, row[None]), rows))
        together = ask(server, rows[:8])
        assert set(together) == {"probabilities", "label"}
        for name, array in expected.items():
            # Sums of FP32 are ordered by the number of rows.
            assert np.allclose(np.concatenate([each[name] for each in alone]), array, rtol=0, atol=1e-6)
            assert np.allclose(together[name], array[:8], rtol=0, atol=1e-6)
        described = server.client.get("/v2/models/m/config").json()
        assert described["max_batch_size"] == 8, "the row check found that rows mix"


def test_what_is_no_model_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"this is no model")
    (tmp_path / "page").mkdir()
    (tmp_path / "page/saved_model.pb").write_bytes(b"<html></html>")
    (tmp_path / "any.jax").write_bytes(b"this is no model")
    (tmp_path / "pickle.jax").write_bytes(b"\x80\x04\x95")
    said = {
        tmp_path / "saved_model.pb": "cannot load",
        tmp_path / "page": "is no SavedModel: it is an HTML page",
        tmp_path / "none": "which is a folder with saved_model.pb",
    }
    check_refusals("tensorflow", said, heavy_folder)
    jax = {tmp_path / "any.jax": "cannot load", tmp_path / "pickle.jax": "is a pickle, which runs code"}
    check_refusals("jax", {**jax, tmp_path / "none.jax": "cannot load"}, heavy_folder)
