"""scikit-learn's estimators answer behind the server as by themselves; a file that runs code is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.runtime import engine_packages
from tests.runtime.engine_packages import check_refusals, output_of
from tests.runtime.process import Server, serving

ROWS: Final = 12
MAKE: Final = """
import re, sys, zipfile, numpy, skops.io
from pathlib import Path
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import Tree
folder = Path(sys.argv[1])
def dump(name, made):
    skops.io.dump(made, folder / f"{name}.skops")
dice = numpy.random.default_rng(3)
x = dice.standard_normal((200, 5))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
rows = dice.standard_normal((12, 5))
forest = RandomForestClassifier(n_estimators=10, n_jobs=-1, random_state=1)
model = make_pipeline(StandardScaler(), forest).fit(x, numpy.array(["stays", "leaves"])[y])
dump("model", model)
answers = {"predict": model.predict(rows).astype(str), "predict_proba": model.predict_proba(rows)}
numpy.savez(folder / "out.npz", rows=rows, **answers)

dump("gradient", HistGradientBoostingRegressor(max_iter=2).fit(x, y))
dump("words", make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["a cat", "a dog"], [0, 1]))
dump("scaler", StandardScaler().fit(x))
dump("dict", {"a": 1})
def tree(name, field, value):
    one = DecisionTreeRegressor(max_depth=3).fit(x, y)
    state = one.tree_.__getstate__()
    if field == "":
        state["nodes"], state["values"] = state["nodes"][:0], state["values"][:0]
    else:
        state["nodes"][field][0] = value
    one.tree_ = Tree(5, numpy.array([1]), 1)
    one.tree_.__setstate__(state)
    dump(name, one)
tree("whole", "threshold", 0.5)
tree("empty", "", 0)
tree("feature", "feature", 10**6)
tree("loop", "left_child", 0)
tree("child", "right_child", 10**6)
dump("ufunc", make_pipeline(FunctionTransformer(numpy.log1p), LogisticRegression()).fit(abs(x), y))
def edited(name, source, pattern, by):
    with zipfile.ZipFile(folder / f"{source}.skops") as given:
        contents = {each: given.read(each) for each in given.namelist()}
    contents["schema.json"], times = re.subn(pattern, by, contents["schema.json"])
    assert times, name
    with zipfile.ZipFile(folder / f"{name}.skops", "w") as made:
        for each, content in contents.items():
            made.writestr(each, content)
edited("count", "whole", rb'("node_count": {[^}]*"content": ")', rb"\\g<1>99999")
edited("version", "model", rb'("_sklearn_version": {[^}]*"content": ").*",', rb'\\g<1>\\\\"1.2.0\\\\"",')
for name, module in (("system", b"posix"), ("eval", b"builtins")):
    function = b'"__class__": "' + name.encode() + b'", "__module__": "' + module + b'"'
    edited(name, "ufunc", rb'"__class__": "log1p",\\s*"__module__": "numpy"', function)
"""
TYPES: Final = "asks for types beside those of scikit-learn that are known to run no code"
TREE: Final = "has a decision tree whose numbers are beyond it"
SAID: Final = {
    "whole": "loaded",
    "count": "loaded",  # scikit-learn counts the nodes that there are
    "ufunc": "loaded",
    "system": f"{TYPES}: Untrusted types found in the file: ['posix.system']; leave them out",
    "eval": f"{TYPES}: Untrusted types found in the file: ['builtins.eval']; leave them out",
    "gradient": "TreePredictor']; leave them out, or convert the model to ONNX as docs/engines.md says",
    "empty": TREE,
    "feature": TREE,
    "loop": TREE,
    "child": TREE,
    "version": "was written by scikit-learn 1.2.0, and this image has 1.9.1: write it again with that",
    "words": "the Pipeline in ",
    "scaler": "holds a StandardScaler, which has no method `predict`",
    "dict": "holds a dict, which has no method `predict`",
    "cut": "scikit-learn 1.9.1 cannot load",
    "pickle": "is no skops model: it is a pickle, which runs code of its author",
    "none": "cannot be read: No such file or directory",
}


def _ask(server: Server, rows: np.ndarray[Any, Any]) -> dict[str, list[Any]]:
    tensor = {"name": "input", "datatype": "FP64", "shape": list(rows.shape), "data": rows.ravel().tolist()}
    answer = server.infer({"inputs": [tensor]})
    assert answer.status_code == 200, answer.text
    return {
        each["name"]: np.reshape(each["data"], each["shape"]).tolist() for each in answer.json()["outputs"]
    }


def test_answers_are_scikit_learns_own_and_files_that_run_code_or_lie_are_refused(tmp_path: Path) -> None:
    output_of(MAKE, str(tmp_path))
    expected = {name: array.tolist() for name, array in np.load(tmp_path / "out.npz").items()}
    rows = np.array(expected.pop("rows"))
    how = {"model_format": "skops", "batching_mode": "dynamic", "batching_max_size": "8"}
    with serving(tmp_path / "model.skops", env=engine_packages.path(), cpu_limit="2", **how) as server:
        described = server.client.get("/v2/models/m").json()
        assert described["platform"] == "sklearn_skops"
        assert described["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 5]}]
        with ThreadPoolExecutor(ROWS) as pool:
            alone = list(pool.map(lambda row: _ask(server, row[None]), rows))
        assert {name: [each[name][0] for each in alone] for name in expected} == expected
        together = _ask(server, rows[4:])
        assert together == {name: answers[4:] for name, answers in expected.items()}
        config = server.client.get("/v2/models/m/config").json()
        assert (config["max_batch_size"], config["backend"]) == (8, "sklearn"), "rows mix"
    assert all("event" in line for line in server.lines), "a library prints lines of its own"
    (tmp_path / "cut.skops").write_bytes((tmp_path / "model.skops").read_bytes()[:5000])
    (tmp_path / "pickle.skops").write_bytes(b"\x80\x04\x95")
    check_refusals("sklearn", {tmp_path / f"{name}.skops": part for name, part in SAID.items()})
