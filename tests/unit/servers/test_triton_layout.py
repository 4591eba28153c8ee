"""The repository that the chart's runtime makes for Triton, as ONNX Runtime reads it there."""

import subprocess
from pathlib import Path

import onnxruntime
import pytest

from e2e.scenarios.library.volumes import folder_with_weights
from tests.unit.servers.test_servers_rendered import BATCHED, FILES, rendered, runtime_of


@pytest.mark.parametrize("linked", [False, True], ids=["downloaded", "on a shared volume"])
def test_a_model_keeps_the_files_beside_it(tmp_path: Path, linked: bool) -> None:
    models, repository, kept = tmp_path / "models", tmp_path / "repository", tmp_path / "kept"
    for folder in (models, kept):
        folder.mkdir()
    folder_with_weights(kept if linked else models, slope=3.0)
    for each in kept.iterdir():
        (models / each.name).symlink_to(each)
    runtime = runtime_of(next(path for path in FILES if path.stem == "triton"))
    (server,) = rendered(runtime, "onnx", BATCHED)["spec"]["containers"]
    *shell, line = server["command"]
    for place, folder in (("/mnt/models", models), ("/tmp/repository", repository)):
        line = line.replace(place, str(folder))
    subprocess.run([*shell, line.replace("exec tritonserver", "exec true")], check=True)
    session = onnxruntime.InferenceSession(repository / "churn" / "1" / "model.onnx")
    assert len(session.get_inputs()) == 1
    assert (repository / "churn" / "config.pbtxt").is_symlink()
