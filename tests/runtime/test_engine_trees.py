"""XGBoost, LightGBM, and scikit-learn as ONNX answer behind the server what they themselves do."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import engine_packages
from tests.runtime.engine_packages import ask, check_refusals, output_of
from tests.runtime.process import serving

ROWS = 12
DATA = """
import sys, numpy
dice = numpy.random.default_rng(3)
x = dice.standard_normal((300, 5)).astype(numpy.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 1)
rows = dice.standard_normal((12, 5)).astype(numpy.float32)
rows[3, 2] = numpy.nan
"""
XGBOOST = """
import xgboost
how = {"nthread": 1, "booster": BOOSTER, "objective": "multi:softprob", "num_class": 3}
model = xgboost.train(how, xgboost.DMatrix(x, y), 5)
model.save_model(sys.argv[1])
numpy.savez(sys.argv[2], rows=rows, predict=model.predict(xgboost.DMatrix(rows)))
"""
LIGHTGBM = """
import lightgbm
how = {"num_threads": 1, "verbose": -1, "objective": "multiclass", "num_class": 3}
model = lightgbm.train(how, lightgbm.Dataset(x, y), 5)
model.save_model(sys.argv[1])
numpy.savez(sys.argv[2], rows=rows.astype(float), predict=model.predict(rows.astype(float)))
"""
SKLEARN = """
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skl2onnx import to_onnx
rows[3, 2] = 0
estimator = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=5)).fit(x, y)
model = to_onnx(estimator, x[:1], options={"zipmap": False})
open(sys.argv[1], "wb").write(model.SerializeToString())
answers = {"label": estimator.predict(rows), "probabilities": estimator.predict_proba(rows)}
numpy.savez(sys.argv[2], rows=rows, **answers)
"""


@pytest.mark.parametrize(
    ("script", "file", "engine", "datatype", "name", "tolerance"),
    [
        (XGBOOST.replace("BOOSTER", "'gbtree'"), "model.json", "xgboost", "FP32", "input", 0),
        (XGBOOST.replace("BOOSTER", "'gblinear'"), "model.ubj", "xgboost", "FP32", "input", 0),
        (LIGHTGBM, "model.txt", "lightgbm", "FP64", "input", 0),
        (SKLEARN, "model.onnx", "onnxruntime", "FP32", "X", 1e-5),  # it adds trees up in FP32
    ],
    ids=["xgboost-json", "xgboost-ubj-linear", "lightgbm", "sklearn-onnx"],
)
def test_every_output_is_the_librarys_own_alone_and_batched(
    tmp_path: Path, script: str, file: str, engine: str, datatype: str, name: str, tolerance: float
) -> None:
    output_of(DATA + script, str(tmp_path / file), str(tmp_path / "out.npz"))
    expected = dict(np.load(tmp_path / "out.npz"))
    rows = expected.pop("rows")
    how = {"model_format": "onnx" if engine == "onnxruntime" else engine, "batching_mode": "dynamic"}
    env = engine_packages.path()
    with serving(tmp_path / file, env=env, cpu_limit="2", batching_max_size="8", **how) as server:
        with ThreadPoolExecutor(ROWS) as pool:
            alone = list(pool.map(lambda row: ask(server, row[None], datatype, name), rows))
        together = ask(server, rows[4:], datatype, name)
        assert set(together) == set(expected)
        for output, array in expected.items():
            joined = np.concatenate([each[output] for each in alone])
            assert np.allclose(joined.astype(array.dtype), array, rtol=0, atol=tolerance)
            assert np.allclose(together[output].astype(array.dtype), array[4:], rtol=0, atol=tolerance)
            assert ask(server, rows[:0], datatype, name)[output].shape == (0, *array.shape[1:])
        described = server.client.get("/v2/models/m/config").json()
        assert described["max_batch_size"] == 8, "the row check found that rows mix"
        assert described["backend"] == engine
    assert all("event" in line for line in server.lines), "a library prints lines of its own"


def test_what_is_no_model_is_refused_with_the_remedy(tmp_path: Path) -> None:
    contents = {
        "cut.txt": b"tree\nversion=v4\n\nTree=0\nnum_leaves=31\n",
        "pickle.txt": b"\x80\x04\x95",
        "other.txt": b"this is no model",
        "classes.txt": b"tree\nversion=v4\n\nend of trees\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    check_refusals(
        "lightgbm",
        {
            tmp_path / "cut.txt": "is cut off: it has no line 'end of trees'; upload it again",
            tmp_path / "pickle.txt": "is no LightGBM model: it is a pickle, which runs code of its author",
            tmp_path / "other.txt": "is no LightGBM model, which begins with 'tree'",
            tmp_path / "classes.txt": "Model file doesn't specify the number of classes",
            tmp_path / "none.txt": "cannot be read: No such file or directory",
        },
    )
    for name, content in {"cut.json": b'{"learner":{', "any.json": b'{"a":1}', "old.json": b"binf"}.items():
        (tmp_path / name).write_bytes(content)
    check_refusals(
        "xgboost",
        {
            tmp_path / "cut.json": "XGBoost 3.2.0 cannot load",
            tmp_path / "any.json": "XGBoost 3.2.0 cannot load",
            tmp_path / "old.json": "is no XGBoost model, which begins with '{'",
        },
    )
