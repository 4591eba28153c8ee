"""Engines of the model server in scenarios: a model for each, and what its own library answers.

Most of the models are those of the engines' own tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from e2e.scenarios.library import volumes
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.installation import TAG, registry
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import Scene
from tests.engines import test_engine_executorch, test_engine_large, test_engine_torch
from tests.runtime import test_engine_litert, test_engine_mlx, test_engine_openvino
from tests.runtime.engine_packages import Rows, folder, heavy_folder, output_of, torch_folder

Answers = Mapping[str, Rows]
Ask = Callable[[Rows], Answers]

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
_ROWS: Final = 5
_PACKAGES: Final = "packages"
_PACKAGES_PATH: Final = "/opt/engine"
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
_SKLEARN: Final = """
import skops.io
from sklearn.linear_model import LogisticRegression
model = LogisticRegression().fit(x, y)
skops.io.dump(model, sys.argv[1])
numpy.savez(sys.argv[3], predict=model.predict(rows), predict_proba=model.predict_proba(rows))
"""


@dataclass(frozen=True)
class Engine:
    """One engine.

    make: writes its model into a folder, where rows.npy is, and returns its library's answers to the rows
    model: file or folder there; a folder is uploaded as an archive
    input, datatype: of the model's only tensor
    tolerance: of answers, by whose number of rows sums of FP32 are ordered
    packages: the folder on this machine that has the engine's
    most_rows: of a batch, if the model has room for fewer than the example's
    further: files of the same model in further formats, by the format
    """

    name: str
    make: Callable[[Path], Answers]
    model: str
    input: str = "x"
    datatype: str = "FP32"
    tolerance: float = 1e-5
    packages: Callable[[], Path] = folder
    most_rows: int | None = None
    further: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of its services here, the example's first."""
        return (self._example()["spec"]["model"]["format"], *self.further)

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

    def served(self, scratch: Path) -> Path:
        """The file in this folder that a server is given, once the model is made."""
        model = scratch / self.model
        return model / Path(self._example()["spec"]["model"]["path"]).name if model.is_dir() else model

    def apply(self, scene: Scene, content: bytes, **fields: Any) -> None:
        """Apply examples/engine-NAME.yaml with this model and these fields, under the engine's name."""
        example = self._example()
        model = scene.world.store.put(Model(f"{scene.namespace}-{self.name}", content))
        source = {**example["spec"]["model"], "uri": scene.world.store.uri(model), "sha256": model.sha256}
        self._create(scene, self.name, source, fields)

    def apply_further(self, scene: Scene, scratch: Path, **fields: Any) -> dict[str, str]:
        """Apply a service of each further format, whose models are in this folder; formats by their names."""
        named = {f"{self.name}-{model_format}": model_format for model_format in self.further}
        for name, model_format in named.items():
            content = (scratch / self.further[model_format]).read_bytes()
            model = scene.world.store.put(Model(f"{scene.namespace}-{name}", content))
            source = {"uri": scene.world.store.uri(model), "sha256": model.sha256, "format": model_format}
            self._create(scene, name, source, fields)
        return named

    def with_packages_of_this_machine(self, scene: Scene) -> Object:
        """spec.runtime of a runtime with the server's plain image and a volume with the engine's packages."""
        volumes.node_folder(scene.api, scene.namespace, _PACKAGES, str(self.packages()))
        spec = scene.api.need("ClusterServingRuntime", "tailbound-xgboost")["spec"]
        server = {
            **spec["server"],
            "image": f"{registry()}/tailbound-runtime:{TAG}",
            "env": [
                {"name": "TAILBOUND_ENGINE", "value": self.name},
                {"name": "PYTHONPATH", "value": _PACKAGES_PATH},
            ],
            "volumeMounts": [{"name": _PACKAGES, "mountPath": _PACKAGES_PATH}],
        }
        changed = {
            "formats": [{"name": each} for each in self.formats],
            "server": server,
            "volumes": [{"name": _PACKAGES, "persistentVolumeClaim": {"claimName": _PACKAGES}}],
        }
        scene.api.apply(serving_runtime(scene.namespace, self.name, {**spec, **changed}))
        return {"name": self.name}

    def check(self, ask: Ask, rows: Rows, expected: Answers) -> None:
        """A server answers what the library does, to each row alone and to all together."""
        alone = [ask(row[None]) for row in rows]
        together = ask(rows)
        assert set(together) == set(expected)
        for name, array in expected.items():
            for found in (np.concatenate([each[name] for each in alone]), together[name]):
                assert found.shape == array.shape
                assert np.allclose(found, array, rtol=0, atol=self.tolerance), (name, found, array)

    def check_service(
        self, scene: Scene, name: str, model_format: str, rows: Rows, expected: Answers
    ) -> None:
        """The service of this name is run by this engine, and answers what the library does."""
        url = f"http://{name}.{scene.namespace}.svc/v2/models/{name}"
        assert scene.world.client.request(url).json()["platform"] == f"{self.name}_{model_format}"
        self.check(partial(self._answers, scene, f"{url}/infer"), rows, expected)

    def _create(self, scene: Scene, name: str, source: Object, fields: Mapping[str, Any]) -> None:
        example = self._example()
        metadata = {"name": name, "namespace": scene.namespace}
        spec = {**example["spec"], "model": source, **fields}
        if self.most_rows is not None:
            spec["batching"] = {**spec["batching"], "maxBatchSize": self.most_rows}
        scene.api.apply({**example, "metadata": metadata, "spec": spec})

    def _example(self) -> Object:
        example: Object = yaml.safe_load((EXAMPLES / f"engine-{self.name}.yaml").read_text())
        return example

    def _answers(self, scene: Scene, url: str, rows: Rows) -> dict[str, Rows]:
        tensor = {
            "name": self.input,
            "datatype": self.datatype,
            "shape": list(rows.shape),
            "data": rows.ravel().tolist(),
        }
        answer = scene.world.client.request(url, method="POST", body={"inputs": [tensor]})
        assert answer.status == 200, answer
        dtypes = {"FP32": np.float32}
        return {
            each["name"]: np.asarray(each["data"], dtypes.get(each["datatype"])).reshape(each["shape"])
            for each in answer.json()["outputs"]
        }


def _in_folder(script: str, answers: str, scratch: Path, of: Callable[[], Path] = folder) -> Answers:
    """Run a script with the folder as its argument; the answers that it wrote."""
    output_of(script, str(scratch), of=of)
    return dict(np.load(scratch / answers))


def _in_files(script: str, model: str, scratch: Path, of: Callable[[], Path] = folder) -> Answers:
    """Run a script with the files of model, rows and answers as its arguments; the answers that it wrote."""
    files = (scratch / model, scratch / "rows.npy", scratch / "out.npz")
    output_of(script, *map(str, files), of=of)
    return dict(np.load(scratch / "out.npz"))


def _openvino(scratch: Path) -> Answers:
    (scratch / "made").mkdir()
    onnx = test_engine_openvino.perceptron(scratch / "model.onnx")
    files = (onnx, scratch / "made/model.xml", scratch / "rows.npy", scratch / "out.npz")
    output_of(test_engine_openvino.REFERENCE, *map(str, files))
    found = np.load(scratch / "out.npz")
    return {"probabilities": found["arr_0"], "label": found["arr_1"]}


_TENSORFLOW: Final = test_engine_large.DATA + test_engine_large.TENSORFLOW
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
JAX: Final = Engine(
    "jax", partial(_in_files, _JAX, "model.jax", of=heavy_folder), "model.jax", packages=heavy_folder
)
IN_THE_IMAGE: Final = (XGBOOST, LIGHTGBM, MLX)
"""The engines of the image tailbound-runtime-engines of the tests."""
FROM_A_VOLUME: Final = (
    Engine("litert", partial(_in_files, test_engine_litert.MAKE, "model.tflite"), "model.tflite"),
    Engine("openvino", _openvino, "made", further={"onnx": "model.onnx"}),
    Engine(
        "sklearn",
        partial(_in_files, _TABLE + _SKLEARN, "model.skops"),
        "model.skops",
        "input",
        "FP64",
    ),
    Engine(
        "tensorflow",
        partial(_in_files, _TENSORFLOW, "made/saved_model.pb", of=heavy_folder),
        "made",
        packages=heavy_folder,
    ),
    JAX,
    Engine(
        "torch",
        partial(_in_folder, test_engine_torch.MAKE, "out.npz", of=torch_folder),
        "model.pt2",
        packages=torch_folder,
    ),
    Engine(
        "executorch",
        partial(_in_folder, test_engine_executorch.MAKE, "xnnpack.npz", of=torch_folder),
        "xnnpack.pte",
        packages=torch_folder,
        most_rows=8,
    ),
)
"""Others, whose packages the plain image gets from a volume: images with them have up to 5 GB."""
