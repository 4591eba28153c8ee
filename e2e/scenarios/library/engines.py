"""Engines of the model server in scenarios: a model for each, and what its own library answers.

Most of the models are those of the engines' own tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from e2e.scenarios.library import volumes
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene
from tests.engines import test_engine_large
from tests.runtime import test_engine_mlx
from tests.runtime.engine_packages import Rows, folder, heavy_folder, output_of

Answers = Mapping[str, Rows]

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
_ROWS: Final = 5
_TABLE: Final = """
import sys, numpy
dice = numpy.random.default_rng(3)
x = dice.standard_normal((200, 4)).astype(numpy.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 1)
rows = numpy.load(sys.argv[2])
"""
_XGBOOST: Final = """
import xgboost
how = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
trees = xgboost.train(how, xgboost.DMatrix(x, y), 5)
trees.save_model(sys.argv[1])
numpy.savez(sys.argv[3], predict=trees.predict(xgboost.DMatrix(rows)))
"""
_LIGHTGBM: Final = """
import lightgbm
how = {"objective": "multiclass", "num_class": 3, "num_threads": 1, "verbose": -1}
trees = lightgbm.train(how, lightgbm.Dataset(x, y), 5)
trees.save_model(sys.argv[1])
numpy.savez(sys.argv[3], predict=trees.predict(rows))
"""


@dataclass(frozen=True)
class Engine:
    """One engine.

    make: writes its model into a folder, where rows.npy is, and returns its library's answers to the rows
    model: file or folder there; a folder is uploaded as an archive
    input, datatype: of the model's only tensor
    tolerance: of answers, by whose number of rows sums of FP32 are ordered
    """

    name: str
    make: Callable[[Path], Answers]
    model: str
    input: str = "x"
    datatype: str = "FP32"
    tolerance: float = 1e-5

    def made(self, scratch: Path) -> tuple[bytes, Rows, Answers]:
        """The model as it is uploaded, rows for it, and its library's answers to them."""
        rows = np.random.default_rng(0).standard_normal((_ROWS, 4)).astype(np.float32)
        np.save(scratch / "rows.npy", rows)
        answers = self.make(scratch)
        model = scratch / self.model
        if model.is_file():
            return model.read_bytes(), rows, answers
        files = {f"churn/{each.relative_to(model)}": each for each in model.rglob("*") if each.is_file()}
        content = volumes.packed({name: each.read_bytes() for name, each in files.items()})
        return content, rows, answers

    def apply(self, scene: Scene, content: bytes, **fields: Any) -> None:
        """Apply examples/engine-NAME.yaml with this model and these fields, under the engine's name."""
        example = self._example()
        model = scene.world.store.put(Model(f"{scene.namespace}-{self.name}", content))
        source = {**example["spec"]["model"], "uri": scene.world.store.uri(model), "sha256": model.sha256}
        metadata = {"name": self.name, "namespace": scene.namespace}
        scene.api.apply(
            {**example, "metadata": metadata, "spec": {**example["spec"], "model": source, **fields}}
        )

    def check(self, scene: Scene, rows: Rows, expected: Answers) -> None:
        """The service answers what the library does, to each row alone and to all together."""
        alone = [self._answers(scene, row[None]) for row in rows]
        together = self._answers(scene, rows)
        assert set(together) == set(expected)
        for name, array in expected.items():
            for found in (np.concatenate([each[name] for each in alone]), together[name]):
                assert found.shape == array.shape
                assert np.allclose(found, array, rtol=0, atol=self.tolerance), (name, found, array)

    def _example(self) -> Object:
        example: Object = yaml.safe_load((EXAMPLES / f"engine-{self.name}.yaml").read_text())
        return example

    def _answers(self, scene: Scene, rows: Rows) -> dict[str, Rows]:
        tensor = {
            "name": self.input,
            "datatype": self.datatype,
            "shape": list(rows.shape),
            "data": rows.ravel().tolist(),
        }
        url = f"http://{self.name}.{scene.namespace}.svc/v2/models/{self.name}/infer"
        answer = scene.world.client.request(url, method="POST", body={"inputs": [tensor]})
        assert answer.status == 200, answer
        dtypes = {"FP32": np.float32}
        return {
            each["name"]: np.asarray(each["data"], dtypes.get(each["datatype"])).reshape(each["shape"])
            for each in answer.json()["outputs"]
        }


def _in_folder(script: str, answers: str, scratch: Path, of: Callable[[], Path] = folder) -> Answers:
    """What a script does that gets the folder."""
    output_of(script, str(scratch), of=of)
    return dict(np.load(scratch / answers))


def _in_files(script: str, model: str, scratch: Path, of: Callable[[], Path] = folder) -> Answers:
    """What a script does that gets the file of the model, that of the rows, and that of the answers."""
    files = (scratch / model, scratch / "rows.npy", scratch / "out.npz")
    output_of(script, *map(str, files), of=of)
    return dict(np.load(scratch / "out.npz"))


_JAX: Final = test_engine_large.DATA + test_engine_large.JAX
XGBOOST: Final = Engine(
    "xgboost", partial(_in_files, _TABLE + _XGBOOST, "model.ubj"), "model.ubj", "input", tolerance=0
)
LIGHTGBM: Final = Engine(
    "lightgbm",
    partial(_in_files, _TABLE + _LIGHTGBM, "model.txt"),
    "model.txt",
    "input",
    "FP64",
    tolerance=0,
)
MLX: Final = Engine("mlx", partial(_in_folder, test_engine_mlx.MAKE, "out.npz"), "model.mlxfn")
JAX: Final = Engine("jax", partial(_in_files, _JAX, "model.jax", of=heavy_folder), "model.jax")
IN_THE_IMAGE: Final = (XGBOOST, LIGHTGBM, MLX)
"""The engines of the image tailbound-runtime-engines of the tests."""
