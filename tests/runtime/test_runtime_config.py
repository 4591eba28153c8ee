"""What the server is told by its environment, and the device that it is given."""

import re
import sys
from pathlib import Path

import pytest
from tailbound_runtime import config
from tailbound_runtime.contract import Env
from tailbound_runtime.devices import (
    CPU,
    CUDA,
    choose_device,
    choose_providers,
    device_visible,
    is_out_of_memory,
    nvidia_device_visible,
    with_options,
)
from tailbound_runtime.engine import Order
from tailbound_runtime.engines import format_of, kinds_of, load
from tailbound_runtime.errors import ModelLoadError
from tailbound_runtime.session import Session

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
        ("max_buffered_bytes", "0"),
        ("max_connections", "0"),
        ("queue_limit", "0"),
        ("batching_mode", "adaptive"),
        ("batching_max_size", "0"),
        ("batching_preferred_sizes", "1,"),
        ("batching_preferred_sizes", "2"),
        ("batching_max_delay_seconds", "-1"),
        ("model_name", ""),
        ("revision", ""),
        ("model_path", ""),
        ("providers", "CUDA"),
        ("providers", "CPUExecutionProvider,CPUExecutionProvider"),
        ("device_options", "device_id=1"),
        ("device_options", "[1]"),
        ("device_memory_limit", "4Gi"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(
        config.ConfigError, match=f"TAILBOUND_{key.upper()} is {re.escape(repr(value))}: set it to "
    ):
        config.from_env(environment(Path("/m.onnx"), **{key: value}))


def test_another_format_is_refused() -> None:
    with pytest.raises(
        config.ConfigError, match="TAILBOUND_MODEL_FORMAT is 'pmml', but this runtime serves: onnx, openvino"
    ):
        config.from_env(environment(Path("/m.onnx"), model_format="pmml"))


@pytest.mark.parametrize(
    ("name", "suffix", "said"),
    [
        ("sklearn", "pkl", "pickles, which run code of their author .* convert the model"),
        ("pickle", "pickle", "pickles, which run code of their author .* convert the model"),
        ("joblib", "joblib", "pickles, which run code of their author .* convert the model"),
        ("torchscript", "pt", "while they are loaded: export the model with torch.export.save"),
        ("tvm", "so", "machine code of its author: serve the file that it was compiled from"),
        ("coreml", "mlpackage", "predicts only on macOS, .* export the model that it was converted from"),
    ],
    ids=lambda value: value if value.isalpha() else "",
)
def test_a_format_that_cannot_be_served_here_is_refused_with_the_remedy(
    tmp_path: Path, name: str, suffix: str, said: str
) -> None:
    with pytest.raises(config.ConfigError, match=said):
        config.from_env(environment(Path("/m"), model_format=name))
    with pytest.raises(ModelLoadError, match=said):
        format_of(Path(f"/m.{suffix}"))
    if suffix == "mlpackage":  # it is a folder, as a model repository is
        (tmp_path / "m.mlpackage").mkdir()
        with pytest.raises(ModelLoadError, match=said):
            format_of(tmp_path / "m.mlpackage")


def test_the_engine_is_the_formats_first_or_the_one_that_is_asked_for() -> None:
    def engine(**extra: str) -> str:
        return config.from_env(environment(Path("/m"), **extra)).engine.name

    assert engine(model_format="onnx") == "onnxruntime"
    assert engine(model_format="onnx", engine="openvino", providers="GPU.1") == "openvino"
    with pytest.raises(
        config.ConfigError, match=r"TAILBOUND_ENGINE is 'tensorrt': .* one of onnxruntime, open"
    ):
        engine(model_format="onnx", engine="tensorrt")


@pytest.mark.parametrize(
    ("asked", "visible", "chosen"),
    [
        ((), False, "CPU"),
        (("GPU",), True, "GPU"),
        (("CPU",), True, "CPU"),
        ((), True, "given a device, and OpenVINO would leave it unused"),
        (("NPU",), False, "asks for NPU, which OpenVINO does not have here: it has CPU, GPU"),
        (("GPU", "CPU"), True, "GPU,CPU: name one of them, as OpenVINO has no fall-back"),
    ],
)
def test_the_device_of_an_engine_without_fall_backs(
    asked: tuple[str, ...], visible: bool, chosen: str
) -> None:
    if " " not in chosen:
        assert choose_device("OpenVINO", ["CPU", "GPU"], visible, asked) == chosen
        return
    with pytest.raises(ModelLoadError, match=chosen):
        choose_device("OpenVINO", ["CPU", "GPU"], visible, asked)


def test_each_known_device_is_seen(tmp_path: Path) -> None:
    assert not device_visible(tmp_path)
    for folder, name in (("n", "nvidia0"), ("d", "dri/renderD128"), ("a", "accel/accel0")):
        (tmp_path / folder / name).parent.mkdir(parents=True)
        (tmp_path / folder / name).touch()
        assert device_visible(tmp_path / folder)


def test_packages_that_are_not_installed_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "tailbound_runtime.engines.open_vino", raising=False)
    (kind,) = kinds_of("openvino")
    with pytest.raises(
        ModelLoadError, match=r"pip install 'tailbound-runtime\[openvino\]'.*ENGINES=openvino"
    ):
        load(kind, Order(Path("/m.xml"), "openvino", 1))


@pytest.mark.parametrize(
    ("available", "visible", "asked", "chosen"),
    [
        ([CUDA, CPU], True, [], [CUDA, CPU]),
        ([CUDA, CPU], False, [], [CPU]),
        ([CPU], False, [], [CPU]),
        ([CUDA, CPU], True, [CPU], [CPU]),
        ([CUDA, CPU], False, [CUDA], [CUDA]),
    ],
)
def test_providers_are_those_asked_for_or_those_of_the_device(
    available: list[str], visible: bool, asked: list[str], chosen: list[str]
) -> None:
    assert choose_providers(available, visible, asked) == chosen


@pytest.mark.parametrize(
    ("visible", "asked", "message"),
    [
        (True, [], "was given a device, but this build of ONNX Runtime has no CUDAExecutionProvider"),
        (False, [CUDA, CPU], "asks for CUDAExecutionProvider, which this build .* does not have"),
    ],
)
def test_a_provider_that_the_build_lacks_is_an_error_and_not_a_cpu(
    visible: bool, asked: list[str], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        choose_providers([CPU], visible, asked)


def test_options_and_the_memory_limit_are_the_devices() -> None:
    cuda, cpu = with_options([CUDA, CPU], {"device_id": "1"}, 2**30)
    assert cpu == (CPU, {})
    assert cuda[1] == {
        "gpu_mem_limit": str(2**30),
        "arena_extend_strategy": "kSameAsRequested",
        "device_id": "1",
    }


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("bfc_arena.cc:360 Available memory of 157854976 is smaller than requested bytes of 411041792", True),
        ("bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 17179869184", True),
        ("CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc((void**)&p, size)", True),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", True),
        ("std::bad_alloc", True),
        ("CUDNN failure 3000: CUDNN_STATUS_NOT_SUPPORTED ; GPU=0", False),
        ("Non-zero status code returned while running Div node", False),
    ],
)
def test_errors_that_mean_a_lack_of_memory_are_known(text: str, is_it: bool) -> None:
    assert is_out_of_memory(text) is is_it


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
