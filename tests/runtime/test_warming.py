"""Warm-up with data beside the model, and the measured time of runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto
from tailbound_runtime import samples
from tailbound_runtime.batch import UNBATCHED, Batching, Mode
from tailbound_runtime.devices import CPU
from tailbound_runtime.engine import Engine
from tailbound_runtime.errors import ModelLoadError, SamplesError
from tailbound_runtime.session import Session
from tailbound_runtime.warming import SLOW_SECONDS, sizes, warm_up

from tests.runtime import models
from tests.runtime.process import serving

DYNAMIC = Batching(Mode.DYNAMIC, 12, (3,), 0)
ROWS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


class Recording:
    """An engine that remembers what it ran on."""

    def __init__(self, path: Path) -> None:
        self._engine = Session.load(path, 1, [CPU])
        self.ran: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run(self, outputs: Any, inputs: Any, run: Any) -> Any:
        self.ran.append(dict(inputs))
        return self._engine.run(outputs, inputs, run)


def warmed(engine: Any, path: Path, batching: Batching) -> dict[int, float]:
    return dict(warm_up(cast(Engine, engine), path, batching))


def test_each_file_is_run_as_it_is_and_rows_of_the_first_are_measured(tmp_path: Path) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    np.savez(tmp_path / "m.warmup.npz", a=ROWS, b=-ROWS)
    np.savez(tmp_path / "m.warmup.other.npz", a=ROWS[:1], b=ROWS[:1])
    np.savez(tmp_path / "mm.warmup.npz", a=ROWS)
    engine = Recording(path)
    seconds = warmed(engine, path, DYNAMIC)
    assert list(seconds) == list(sizes(DYNAMIC)) == [1, 2, 3, 4, 8, 12]
    assert all(value > 0 for value in seconds.values())
    ran = [each["a"].tolist() for each in engine.ran]
    assert ROWS.tolist() in ran
    assert ROWS[:1].tolist() in ran
    assert ran[-1] == [*ROWS.tolist()] * 6
    assert np.array_equal(engine.ran[-1]["b"], -engine.ran[-1]["a"])


def test_without_data_random_tensors_are_measured_if_runs_are_short_and_on_the_cpu(tmp_path: Path) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    engine = Recording(path)
    assert list(warmed(engine, path, UNBATCHED)) == [1]
    assert list(warmed(engine, path, Batching(Mode.STATIC, 4, (), 0))) == [4]
    assert engine.ran[0]["a"].any(), "zeros"
    for name, value in (("on_device", True), ("warm_seconds", 2 * SLOW_SECONDS)):
        other = Recording(path)
        setattr(other, name, value)
        assert warmed(other, path, DYNAMIC) == {}
        assert other.ran == []


def test_texts_are_given_as_texts(tmp_path: Path) -> None:
    path = models.identity(tmp_path / "t.onnx", TensorProto.STRING)
    np.savez(tmp_path / "t.warmup.npz", x=np.array([["a", "bc"]]))
    assert list(warmed(Recording(path), path, UNBATCHED)) == [1]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": ROWS}, r"has the arrays \['a'\], and the model takes \['a', 'b'\]"),
        ({"a": ROWS, "b": ROWS, "c": ROWS}, "one array for each input"),
        ({"a": ROWS, "b": ROWS[:, :3]}, r"'b' has shape \[2, 3\], and the model takes \[-1, 4\]"),
        ({"a": ROWS, "b": ROWS.astype(np.float64)}, "'b' has type float64, and the model takes FP32"),
        ({"a": ROWS, "b": np.array(["x"], object)}, "no .npz file of arrays"),
        ({"a": ROWS, "b": np.ones((3, 4), np.float32)}, "cannot run its warm-up data .*: correct the file"),
    ],
)
def test_data_that_does_not_fit_ends_the_load_with_the_reason(
    tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    np.savez(tmp_path / "m.warmup.npz", **arrays)
    with pytest.raises(ModelLoadError, match=said):
        warmed(Recording(path), path, DYNAMIC)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:100], lambda data: data[:60] + b"?" * 9 + data[69:]]
)
def test_a_damaged_file_ends_the_load(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    file = tmp_path / "m.warmup.npz"
    np.savez_compressed(file, a=ROWS, b=ROWS)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelLoadError, match=r"no \.npz file of arrays"):
        warmed(Recording(path), path, DYNAMIC)
    with pytest.raises(SamplesError, match=r"no \.npz file of arrays"):
        samples.read([file], Session.load(path, 1, [CPU]).inputs, None)


def test_a_server_exports_what_it_measured(tmp_path: Path) -> None:
    path = models.arithmetic(tmp_path / "m.onnx")
    np.savez(tmp_path / "m.warmup.npz", a=ROWS, b=ROWS)
    with serving(path, batching_mode="dynamic", batching_max_size="4") as server:
        seconds = [server.metric(f'tailbound_runtime_warm_run_seconds{{rows="{n}"}}') for n in (1, 2, 4)]
    assert all(seconds), seconds
