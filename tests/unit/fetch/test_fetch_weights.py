"""The memory of weights, read from the headers of model files; nothing of them is believed."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, save_model
from tailbound.api.device_memory import PodMemory
from tailbound.api.quantities import Quantity
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.command import _check_devices
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.mounted import link_entries
from tailbound.fetch.weights import weight_bytes


def safetensors(path: Path, sizes: dict[str, int]) -> None:
    """A file with a header and no memory: what is behind the header is a hole."""
    header, at = dict[str, object](), 0
    for name, size in sizes.items():
        header[name] = {"dtype": "F16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + at)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(path: Path, data: int) -> None:
    pairs = [
        string("general.architecture") + struct.pack("<I", 8) + string("llama"),
        string("llama.block_count") + struct.pack("<II", 4, 80),
        string("tokens") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b"),
        string("scores") + struct.pack("<IIQ", 9, 6, 3) + bytes(12),
    ]
    tensor = string("output.weight") + struct.pack("<IQQIQ", 2, 64, 32, 1, 0)
    path.write_bytes(
        struct.pack("<4sIQQ", b"GGUF", 3, 1, len(pairs)) + b"".join(pairs) + tensor + bytes(data)
    )


def onnx(path: Path, external: bool = False) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT16, [16, 8], bytes(256), raw=True)
    bias = helper.make_tensor("b", TensorProto.INT4, [3], [1, 2, 3])
    graph = helper.make_graph([], "g", [], [], [values, bias])
    save_model(
        helper.make_model(graph),
        str(path),
        save_as_external_data=external,
        location="w.bin",
        size_threshold=0,
    )


def test_weights_are_counted_in_every_format_and_in_all_files(tmp_path: Path) -> None:
    onnx(tmp_path / "model.onnx")
    assert weight_bytes(tmp_path / "model.onnx", tmp_path) == 256 + 2
    onnx(tmp_path / "large.onnx", external=True)
    assert weight_bytes(tmp_path / "large.onnx", tmp_path) == 256 + 2
    gguf(tmp_path / "model.gguf", 4096)
    assert weight_bytes(tmp_path / "model.gguf", tmp_path) == 4096
    for part in (1, 2):
        gguf(tmp_path / f"m-0000{part}-of-00002.gguf", 100)
    assert weight_bytes(tmp_path / "m-00001-of-00002.gguf", tmp_path) == 200
    assert weight_bytes(tmp_path / "config.json", tmp_path) is None
    safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": 10, "b": 20})
    safetensors(tmp_path / "model-00002-of-00002.safetensors", {"c": 30})
    assert weight_bytes(tmp_path / "config.json", tmp_path) == 60


def test_weights_behind_links_to_folders_are_counted(tmp_path: Path) -> None:
    volume, root = tmp_path / "volume", tmp_path / "root"
    for folder in (volume / "unet", root):
        folder.mkdir(parents=True)
    safetensors(volume / "model.safetensors", {"a": 10})
    safetensors(volume / "unet" / "weights.safetensors", {"b": 1000})
    link_entries(volume, root)
    assert weight_bytes(root / "model.safetensors", root) == 1010


def test_seventy_billion_parameters_of_two_bytes_do_not_fit_40_gb(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", {"a": 140 * 10**9})
    weights = weight_bytes(tmp_path / "model.safetensors", tmp_path)
    assert weights == 140 * 10**9
    forty = PodMemory("a", 1, Quantity.parse("40G"), Quantity.parse("12G"))
    with pytest.raises(FetchFailedError) as failure:
        _check_devices(weights, {FetchEnv.DEVICE_MEMORY: forty.written()})
    assert failure.value.reason is TerminationReason.MODEL_TOO_LARGE
    assert str(failure.value) == (
        "the model has 140 GB of weights in its files + 12 GB of activations = 152 GB, and in HardwareClass "
        "a, 1 device of 40G holds 40 GB per pod: choose a class with at least 4 devices of this memory per "
        "pod, or with larger ones, or smaller weights"
    )
    for pod in (PodMemory("a", 4, Quantity.parse("40G")), PodMemory("a", 1, Quantity.parse("141G"))):
        _check_devices(weights, {FetchEnv.DEVICE_MEMORY: pod.written()})
    _check_devices(weights, {})
    _check_devices(None, {FetchEnv.DEVICE_MEMORY: forty.written()})


@pytest.mark.parametrize(
    ("begin", "end"), [(10, 0), (0, 1_000_000)], ids=["less than nothing", "more than the file has"]
)
def test_a_size_that_the_file_cannot_have_is_not_believed(tmp_path: Path, begin: int, end: int) -> None:
    path, header = tmp_path / "m.safetensors", json.dumps({"a": {"data_offsets": [begin, end]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(16))
    assert weight_bytes(path, tmp_path) is None


def test_dimensions_without_end_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx(path)
    dimensions = TensorProto(dims=[1] * 1_000_000)
    save_model(helper.make_model(helper.make_graph([], "g", [], [], [dimensions])), str(path))
    tracemalloc.start()
    try:
        assert weight_bytes(path, tmp_path) is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


WRITERS: dict[str, Callable[[Path], None]] = {
    "onnx": onnx,
    "gguf": lambda path: gguf(path, 50),
    "safetensors": lambda path: safetensors(path, {"a": 9}),
}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(WRITERS)),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=12)), max_size=4),
    st.integers(0, 500),
)
def test_a_file_that_lies_is_of_unknown_size_and_ends_nothing(
    tmp_path: Path, kind: str, edits: list[tuple[int, bytes]], cut: int
) -> None:
    path = tmp_path / f"model.{kind}"
    {
        "onnx": lambda: onnx(path),
        "gguf": lambda: gguf(path, 50),
        "safetensors": lambda: safetensors(path, {"a": 9}),
    }[kind]()
    content = bytearray(path.read_bytes())
    for at, text in edits:
        content[at : at + len(text)] = text
    path.write_bytes(bytes(content[: len(content) - cut]))
    found = weight_bytes(path, tmp_path)
    assert found is None or found > 0


LONG = b'{"__metadata__": [' + b"[]," * (1 << 22) + b'0], "a": {"data_offsets": [0, 8]}}'


@pytest.mark.parametrize("header", [b"[" * 100_000, b"[1]", LONG], ids=["depth", "list", "length"])
def test_a_header_that_costs_much_is_of_unknown_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes
) -> None:
    monkeypatch.setattr("tailbound.fetch.weights.MOST_MEMORY_BYTES", 1 << 25)
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert weight_bytes(path, tmp_path) is None
