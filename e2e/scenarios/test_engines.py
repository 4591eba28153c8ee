"""Services of engines beside ONNX Runtime, as in examples/engine-*.yaml; one whose image lacks its engine."""

from pathlib import Path
from typing import Final

import pytest

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.engines import FROM_A_VOLUME, IN_THE_IMAGE, JAX, Engine
from e2e.scenarios.library.manifests import CPU, MEMORY
from e2e.scenarios.library.scene import Scene

OF_A_SMALL_NODE: Final[Object] = {"cpu": CPU, "memory": MEMORY}
OF_A_LARGE_ENGINE: Final[Object] = {"cpu": "500m", "memory": "2Gi", "ephemeralStorage": "1Gi"}


def test_an_engines_model_answers_as_its_library_and_a_missing_engine_names_its_build_argument(
    scene: Scene, tmp_path: Path
) -> None:
    made = {}
    for engine in IN_THE_IMAGE:
        scratch = tmp_path / engine.name
        scratch.mkdir()
        content, rows, answers = engine.made(scratch)
        made[engine] = rows, answers
        engine.apply(scene, content, resources=OF_A_SMALL_NODE)
    JAX.apply(scene, b"the engine is missed before the model is read", resources=OF_A_SMALL_NODE)
    for engine, (rows, answers) in made.items():
        scene.ready(engine.name)
        engine.check_service(scene, engine.name, engine.formats[0], rows, answers)
    scene.not_ready(JAX.name, "ModelLoadFailed", "build the image with --build-arg ENGINES=jax")


@pytest.mark.heavy
@pytest.mark.needs_own_cluster
@pytest.mark.parametrize("engine", FROM_A_VOLUME, ids=lambda engine: engine.name)
def test_a_large_engines_model_answers_as_its_library(scene: Scene, tmp_path: Path, engine: Engine) -> None:
    content, rows, answers = engine.made(tmp_path)
    fields = {"runtime": engine.with_packages_of_this_machine(scene), "resources": OF_A_LARGE_ENGINE}
    engine.apply(scene, content, **fields)
    services = {engine.name: engine.formats[0], **engine.apply_further(scene, tmp_path, **fields)}
    for name, model_format in services.items():
        scene.ready(name)
        engine.check_service(scene, name, model_format, rows, answers)
