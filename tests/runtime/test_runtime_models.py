"""Answers equal those of ONNX Runtime asked directly: every type, a real model, a foreign client."""

import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tritonclient.http as triton
from onnx import TensorProto

from tests.runtime import models
from tests.runtime.process import NAME, Server, serving

IDENTITIES: list[tuple[int, str, list[Any]]] = [
    (TensorProto.BOOL, "BOOL", [True, False]),
    (TensorProto.INT8, "INT8", [-128, 127]),
    (TensorProto.INT16, "INT16", [-(2**15), 2**15 - 1]),
    (TensorProto.INT32, "INT32", [-(2**31), 2**31 - 1]),
    (TensorProto.INT64, "INT64", [-(2**63), 2**63 - 1]),
    (TensorProto.UINT8, "UINT8", [0, 255]),
    (TensorProto.UINT16, "UINT16", [0, 2**16 - 1]),
    (TensorProto.UINT32, "UINT32", [0, 2**32 - 1]),
    (TensorProto.UINT64, "UINT64", [2**53 + 1, 2**64 - 1]),
    (TensorProto.FLOAT, "FP32", [0.1, -3.4028234663852886e38]),
    (TensorProto.DOUBLE, "FP64", [0.1, 1.7976931348623157e308]),
    (TensorProto.STRING, "BYTES", ["", 'ü\n"\u0000']),
]


@pytest.mark.parametrize(("kind", "name", "values"), IDENTITIES, ids=[name for _, name, _ in IDENTITIES])
def test_every_datatype_passes_through_a_model_unchanged(
    tmp_path: Path, kind: int, name: str, values: list[Any]
) -> None:
    with serving(models.identity(tmp_path / "m.onnx", kind)) as server:
        spec = server.client.get(f"/v2/models/{NAME}").json()["inputs"]
        assert spec == [{"name": "x", "datatype": name, "shape": [-1, 2]}]
        tensor = {"name": "x", "datatype": name, "shape": [1, 2], "data": values}
        output = server.infer({"inputs": [tensor]}).json()["outputs"][0]
        assert output["datatype"] == name
        if name == "FP32":
            assert np.array_equal(np.array(output["data"], np.float32), np.array(values, np.float32))
        else:
            assert output["data"] == values


def test_a_model_of_fp16_takes_and_gives_binary_tensors_and_refuses_json_in_words(tmp_path: Path) -> None:
    with serving(models.identity(tmp_path / "m.onnx", TensorProto.FLOAT16)) as server:
        assert server.client.get(f"/v2/models/{NAME}").json()["inputs"][0]["datatype"] == "FP16"
        tensor = {"name": "x", "datatype": "FP16", "shape": [1, 2], "data": [1.0, 2.0]}
        response = server.infer({"inputs": [tensor]})
        assert response.status_code == 400
        assert "no JSON form in this protocol: send a binary tensor" in response.json()["error"]
        values = np.array([[1.5, np.nan], [-np.inf, 65504]], np.float16)
        assert triton_answer(server, "x", "y", "FP16", values).tobytes() == values.tobytes()


def test_a_model_of_bf16_takes_and_gives_its_bits_alone_and_in_shared_runs(tmp_path: Path) -> None:
    values = np.array([[1.5, np.nan], [-np.inf, 2.0**127]], ml_dtypes.bfloat16)
    shared = {"TAILBOUND_BATCHING_MODE": "dynamic", "TAILBOUND_BATCHING_MAX_SIZE": "4"}
    for env in ({}, shared):
        with serving(models.identity(tmp_path / "m.onnx", TensorProto.BFLOAT16), env=env) as server:
            assert server.client.get(f"/v2/models/{NAME}").json()["outputs"][0]["datatype"] == "BF16"
            tensor = {"name": "x", "datatype": "BF16", "shape": [1, 2], "data": [1.0, 2.0]}
            response = server.infer({"inputs": [tensor]})
            assert response.status_code == 400
            assert "BF16 tensors have no JSON form" in response.json()["error"]
            assert triton_answer(server, "x", "y", "BF16", values).tobytes() == values.tobytes()
            none = values[:0]
            assert triton_answer(server, "x", "y", "BF16", none).shape == none.shape


def test_weights_of_more_than_two_gibibytes_in_a_file_beside_are_served_from_the_page_cache(
    tmp_path: Path,
) -> None:
    last = models.large_table(tmp_path / "m.onnx")
    with serving(tmp_path / "m.onnx") as server:
        tensor = {"name": "i", "datatype": "INT64", "shape": [2], "data": [0, last]}
        answer = server.infer({"inputs": [tensor]}).json()["outputs"][0]
        peak = Path(f"/proc/{server.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
    assert answer["data"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert int(peak) < 2**20, "KiB"


def test_scalars_go_in(tmp_path: Path) -> None:
    with serving(models.scaled(tmp_path / "m.onnx")) as server:
        inputs = [
            {"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]},
            {"name": "factor", "datatype": "FP32", "shape": [], "data": [10]},
        ]
        assert server.infer({"inputs": inputs}).json()["outputs"][0]["data"] == [10, 20, 30]


def test_an_input_that_the_model_itself_refuses_is_the_clients_fault(tmp_path: Path) -> None:
    with serving(models.lookup(tmp_path / "m.onnx")) as server:

        def infer(*indices: int) -> Any:
            return server.infer(
                {
                    "inputs": [
                        {"name": "i", "datatype": "INT64", "shape": [len(indices)], "data": list(indices)}
                    ]
                }
            )

        response = infer(1, 3)
        assert response.status_code == 400
        assert response.json()["error"].startswith("the model refused the input: ")
        assert "Gather" not in response.json()["error"]
        assert "Gather" in server.wait_for("the model refused an input")["error"]
        assert infer(2, 0).json()["outputs"][0]["data"] == [30, 10]


def test_a_result_that_is_no_finite_number_is_served(tmp_path: Path) -> None:
    with serving(models.unary(tmp_path / "m.onnx", "Log")) as server:
        tensor = {"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 0, -1]}
        response = server.infer({"inputs": [tensor]})
        assert response.status_code == 200
        assert response.json()["outputs"][0]["data"] == [0, "-Infinity", "NaN"]
        answer = triton_answer(server, "x", "y", "FP32", np.array([1, 0, -1], np.float32))
        assert np.array_equal(answer, np.array([0, -np.inf, np.nan], np.float32), equal_nan=True)


@pytest.fixture(scope="module")
def direct() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(models.magika_model(), options, providers=["CPUExecutionProvider"])


def magika_input(rows: int, seed: int) -> np.ndarray:
    """Rows as magika makes them: byte values, and 256 as padding."""
    return np.array(
        [[random.Random(seed + row).randint(0, 256) for _ in range(2048)] for row in range(rows)],
        dtype=np.int32,
    )


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_real_model_answers_bit_for_bit_as_when_asked_directly(
    magika_server: Server, direct: ort.InferenceSession, rows: int
) -> None:
    array = magika_input(rows, 1).reshape(rows, 2048)
    tensor = {
        "name": "bytes",
        "datatype": "INT32",
        "shape": list(array.shape),
        "data": array.ravel().tolist(),
    }
    output = magika_server.infer({"inputs": [tensor]}).json()["outputs"][0]
    expected = direct.run(None, {"bytes": array})[0]
    assert output["shape"] == list(expected.shape)
    assert np.array(output["data"], np.float32).tobytes() == expected.tobytes()


@pytest.fixture
def triton_client(magika_server: Server) -> Any:
    client = triton.InferenceServerClient(magika_server.url.removeprefix("http://"))
    yield client
    client.close()


def test_a_triton_client_finds_its_way(triton_client: Any) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready(NAME)
    assert triton_client.is_model_ready(NAME, "1")
    assert not triton_client.is_model_ready("other")
    assert triton_client.get_server_metadata()["name"] == "tailbound-runtime"
    assert triton_client.get_model_metadata(NAME)["inputs"][0]["datatype"] == "INT32"


def triton_answer(server: Server, name: str, output: str, datatype: str, values: Any) -> Any:
    """What a foreign client gets for binary tensors, which it sends and asks for by default."""
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    tensor = triton.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    try:
        return client.infer(NAME, [tensor]).as_numpy(output)
    finally:
        client.close()


@pytest.mark.parametrize("named", [True, False])
def test_a_triton_client_gets_the_same_answer_over_json(
    triton_client: Any, direct: ort.InferenceSession, named: bool
) -> None:
    array = magika_input(2, 5)
    tensor = triton.InferInput("bytes", list(array.shape), "INT32")
    tensor.set_data_from_numpy(array, binary_data=False)
    outputs = [triton.InferRequestedOutput("target_label", binary_data=False)] if named else None
    result = triton_client.infer(NAME, [tensor], outputs=outputs, request_id="7")
    assert result.get_response()["id"] == "7"
    assert result.as_numpy("target_label").tobytes() == direct.run(None, {"bytes": array})[0].tobytes()


@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_triton_client_gets_the_same_answer_over_binary_tensors_packed_or_not(
    triton_client: Any, direct: ort.InferenceSession, packing: str | None, binary: bool
) -> None:
    array = magika_input(30, 5)
    tensor = triton.InferInput("bytes", list(array.shape), "INT32")
    tensor.set_data_from_numpy(array)
    result = triton_client.infer(
        NAME,
        [tensor],
        outputs=[triton.InferRequestedOutput("target_label", binary_data=binary)],
        request_compression_algorithm=packing,
        response_compression_algorithm=packing,
    )
    assert result.as_numpy("target_label").tobytes() == direct.run(None, {"bytes": array})[0].tobytes()


def test_a_triton_client_reads_configuration_statistics_and_index(triton_client: Any) -> None:
    config = triton_client.get_model_config(NAME)
    assert (config["max_batch_size"], config["platform"]) == (0, "onnxruntime_onnx")
    assert config["input"] == [{"name": "bytes", "data_type": "TYPE_INT32", "dims": [-1, 2048]}]
    (index,) = triton_client.get_model_repository_index()
    assert index == {"name": NAME, "version": "1", "state": "READY", "reason": ""}
    tensor = triton.InferInput("bytes", [1, 2048], "INT32")
    tensor.set_data_from_numpy(magika_input(1, 5))
    before = triton_client.get_inference_statistics(NAME)["model_stats"][0]
    triton_client.infer(NAME, [tensor])
    (after,) = triton_client.get_inference_statistics(NAME, "1")["model_stats"]
    assert after["execution_count"] == before["execution_count"] + 1
    success = after["inference_stats"]["success"]
    assert success["count"] == before["inference_stats"]["success"]["count"] + 1
    assert success["ns"] > before["inference_stats"]["success"]["ns"]
    with pytest.raises(triton.InferenceServerException, match="from its start to its end"):
        triton_client.load_model(NAME)


@pytest.mark.parametrize(("kind", "name", "values"), IDENTITIES, ids=[name for _, name, _ in IDENTITIES])
def test_a_triton_client_gets_every_datatype_back_as_a_binary_tensor(
    tmp_path: Path, kind: int, name: str, values: list[Any]
) -> None:
    with serving(models.identity(tmp_path / "m.onnx", kind)) as server:
        dtype = np.object_ if name == "BYTES" else onnx.helper.tensor_dtype_to_np_dtype(kind)
        sent = np.array([values], dtype)
        answer = triton_answer(server, "x", "y", name, sent)
        if name == "BYTES":
            assert [element.decode() for element in answer.ravel()] == values
        else:
            assert answer.tobytes() == sent.tobytes()
