"""Services of engines beside ONNX Runtime, as in examples/engine-*.yaml; one whose image lacks its engine."""

from pathlib import Path
from typing import Final

from e2e.scenarios.library.api import Object
from e2e.scenarios.library.engines import IN_THE_IMAGE, JAX
from e2e.scenarios.library.manifests import CPU, MEMORY
from e2e.scenarios.library.scene import Scene

OF_A_SMALL_NODE: Final[Object] = {"cpu": CPU, "memory": MEMORY}


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
        engine.check(scene, rows, answers)
    scene.not_ready(JAX.name, "ModelLoadFailed", "build the image with --build-arg ENGINES=jax")
