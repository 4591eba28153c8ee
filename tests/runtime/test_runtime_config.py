"""What the server is told by its environment, and the device that it is given."""

from pathlib import Path

import pytest
from tailbound_runtime import config
from tailbound_runtime.contract import Env
from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.session import CPU, CUDA, Session, choose_providers, nvidia_device_visible

from tests.runtime import models
from tests.runtime.process import environment


@pytest.mark.parametrize("name", [name for name in Env if name not in config.DEFAULTS])
def test_a_missing_variable_is_named(name: Env) -> None:
    env = environment(Path("/m.onnx"))
    del env[name]
    with pytest.raises(config.ConfigError, match=f"{name} is not set: set it to "):
        config.from_env(env)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("request_timeout_seconds", "0"),
        ("request_timeout_seconds", "-1"),
        ("request_timeout_seconds", "nan"),
        ("request_timeout_seconds", "inf"),
        ("request_timeout_seconds", "30s"),
        ("drain_seconds", "-0.1"),
        ("drain_seconds", ""),
        ("cpu_limit", "0"),
        ("cpu_limit", "1.5"),
        ("http_port", "65536"),
        ("max_request_bytes", "64Mi"),
        ("queue_limit", "0"),
        ("batching_mode", "adaptive"),
        ("batching_max_size", "0"),
        ("batching_preferred_sizes", "1,"),
        ("batching_preferred_sizes", "2"),
        ("batching_max_delay_seconds", "-1"),
        ("model_name", ""),
        ("revision", ""),
        ("model_path", ""),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(config.ConfigError, match=f"TAILBOUND_{key.upper()} is '{value}': set it to "):
        config.from_env(environment(Path("/m.onnx"), **{key: value}))


def test_another_format_is_refused() -> None:
    with pytest.raises(
        config.ConfigError, match="TAILBOUND_MODEL_FORMAT is 'pmml', but this runtime serves 'onnx'"
    ):
        config.from_env(environment(Path("/m.onnx"), model_format="pmml"))


@pytest.mark.parametrize(
    ("available", "visible", "chosen"),
    [
        ([CUDA, CPU], True, [CUDA, CPU]),
        ([CUDA, CPU], False, [CPU]),
        ([CPU], True, [CPU]),
        ([CPU], False, [CPU]),
    ],
)
def test_cuda_is_used_if_the_build_has_it_and_a_device_is_there(
    available: list[str], visible: bool, chosen: list[str]
) -> None:
    assert choose_providers(available, visible) == chosen


@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")
def test_model_does_not_run_on_the_cpu_instead_of_its_device(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as refused:
        Session.load(models.arithmetic(tmp_path / "m.onnx"), 1, [CUDA, CPU])
    assert "was given a device, but ONNX Runtime" in str(refused.value)


@pytest.mark.parametrize(
    ("names", "visible"), [(["nvidia0"], True), (["nvidia12"], True), (["nvidiactl"], False), ([], False)]
)
def test_a_device_is_seen_by_its_node(tmp_path: Path, names: list[str], visible: bool) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert nvidia_device_visible(tmp_path) is visible
