"""Services of engines beside ONNX Runtime, as in examples/engine-*.yaml; one whose image lacks its engine."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.manifests import CPU, MEMORY
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene
from tests.runtime.engine_packages import output_of

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
DATATYPES: Final = {"xgboost": ("FP32", np.float32), "lightgbm": ("FP64", np.float64)}
# Trains both models, and prints what each library itself answers to each of five rows.
TRAIN: Final = """
import json, sys, lightgbm, numpy, xgboost
dice = numpy.random.default_rng(3)
x = dice.standard_normal((200, 4)).astype(numpy.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 1)
rows = x[:5]
how = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
trees = xgboost.train(how, xgboost.DMatrix(x, y), 5)
trees.save_model(sys.argv[1])
how = {"objective": "multiclass", "num_class": 3, "num_threads": 1, "verbose": -1}
light = lightgbm.train(how, lightgbm.Dataset(x, y), 5)
light.save_model(sys.argv[2])
found = {"rows": rows, "xgboost": trees.predict(xgboost.DMatrix(rows)), "lightgbm": light.predict(rows)}
print(json.dumps({name: array.tolist() for name, array in found.items()}))
"""


def _apply_example(scene: Scene, engine: str, content: bytes) -> None:
    """Apply examples/engine-ENGINE.yaml with this file as the model, under the engine's name."""
    example: Object = yaml.safe_load((EXAMPLES / f"engine-{engine}.yaml").read_text())
    model = scene.world.store.put(Model(f"{scene.namespace}-{engine}", content))
    source = {**example["spec"]["model"], "uri": scene.world.store.uri(model), "sha256": model.sha256}
    resources = {"cpu": CPU, "memory": MEMORY}  # of a small node
    spec = {**example["spec"], "model": source, "resources": resources}
    scene.api.apply(
        {**example, "metadata": {"name": engine, "namespace": scene.namespace}, "spec": spec},
    )


def _answers(scene: Scene, engine: str, rows: list[list[float]]) -> list[Any]:
    datatype, dtype = DATATYPES[engine]
    data = [value for row in rows for value in row]
    tensor = {
        "name": "input",
        "datatype": datatype,
        "shape": [len(rows), len(rows[0])],
        "data": data,
    }
    url = f"http://{engine}.{scene.namespace}.svc/v2/models/{engine}/infer"
    answer = scene.world.client.request(url, method="POST", body={"inputs": [tensor]})
    assert answer.status == 200, answer
    (output,) = answer.json()["outputs"]
    assert (output["name"], output["shape"]) == ("predict", [len(rows), 3])
    answers: list[Any] = np.asarray(output["data"], dtype).tolist()
    return answers


def test_an_engines_model_answers_as_its_library_and_a_missing_engine_names_its_build_argument(
    scene: Scene, tmp_path: Path
) -> None:
    files = {"xgboost": tmp_path / "model.ubj", "lightgbm": tmp_path / "model.txt"}
    trained = json.loads(output_of(TRAIN, *map(str, files.values())))
    for engine, file in files.items():
        _apply_example(scene, engine, file.read_bytes())
    _apply_example(scene, "litert", b"the engine is missed before the model is read")
    for engine in files:
        scene.ready(engine)
        expected = [value for row in trained[engine] for value in row]
        alone = [value for row in trained["rows"] for value in _answers(scene, engine, [row])]
        assert alone == expected
        assert _answers(scene, engine, trained["rows"]) == expected
    scene.not_ready("litert", "ModelLoadFailed", "build the image with --build-arg ENGINES=litert")
