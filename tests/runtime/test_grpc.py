"""The gRPC surface with clients that nobody here wrote: tritonclient, grpc.health.v1, reflection."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from onnx import TensorProto
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.runtime import models
from tests.runtime.process import NAME, Server, eventually, rpc_address, serving

FINE = [[1.0, 2.0, 3.0, 4.0]]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(
        models.arithmetic(folder / "grpc.onnx"), grpc_port="0", max_request_bytes="8000000"
    ) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(rpc_address(server)) as client:
        yield client


@pytest.fixture
def stub(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(rpc_address(server)) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(name: str, rows: Any) -> Any:
    array = np.array(rows, np.float32)
    one = triton.InferInput(name, list(array.shape), "FP32")
    one.set_data_from_numpy(array)
    return one


def test_a_triton_client_finds_its_way(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(NAME)
    assert client.is_model_ready(NAME, "1")
    assert not client.is_model_ready("other")
    assert not client.is_model_ready(NAME, "2")
    assert client.get_server_metadata().name == "tailbound-runtime"
    assert {"statistics", "model_configuration"} <= {*client.get_server_metadata().extensions}
    metadata = client.get_model_metadata(NAME, as_json=True)
    assert metadata["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": ["-1", "4"]}
    with pytest.raises(triton.InferenceServerException, match="NOT_FOUND"):
        client.get_model_metadata("other")


def test_a_triton_client_gets_the_configuration_and_the_statistics_of_rest(
    server: Server, client: Any
) -> None:
    client.infer(NAME, [tensor("a", FINE), tensor("b", FINE)])
    config = client.get_model_config(NAME).config
    told = server.client.get(f"/v2/models/{NAME}/config").json()
    assert {(one.name, triton.model_config_pb2.DataType.Name(one.data_type)) for one in config.input} == {
        (one["name"], one["data_type"]) for one in told["input"]
    }
    assert [list(one.dims) for one in config.output] == [one["dims"] for one in told["output"]]
    assert config.version_policy.latest.num_versions == 1
    assert (config.name, config.platform, config.backend) == (told["name"], told["platform"], told["backend"])
    (told,) = server.client.get(f"/v2/models/{NAME}/stats").json()["model_stats"]
    for asked in ((), (NAME,), (NAME, "1")):
        (found,) = client.get_inference_statistics(*asked, as_json=True)["model_stats"]
        assert int(found["inference_count"]) == told["inference_count"] > 0
        assert int(found["inference_stats"]["success"]["ns"]) == told["inference_stats"]["success"]["ns"]
    for ask in (client.get_model_config, client.get_inference_statistics):
        with pytest.raises(triton.InferenceServerException, match="this server has no model 'other'"):
            ask("other")


def test_a_triton_client_gets_its_answer(client: Any) -> None:
    answer = client.infer(NAME, [tensor("b", FINE), tensor("a", FINE)], request_id="7")
    assert answer.as_numpy("sum").tolist() == [[2, 4, 6, 8]]
    assert answer.as_numpy("product").tolist() == [[1, 4, 9, 16]]
    assert answer.get_response().id == "7"
    one = client.infer(
        NAME, [tensor("a", FINE), tensor("b", FINE)], outputs=[triton.InferRequestedOutput("product")]
    )
    assert [output.name for output in one.get_response().outputs] == ["product"]
    large = np.ones((100_000, 4), np.float32)
    with pytest.raises(triton.InferenceServerException, match="the model wants one size for both"):
        client.infer(NAME, [tensor("a", large), tensor("b", FINE)])
    rows = large[:90_000]
    assert client.infer(NAME, [tensor("a", rows), tensor("b", rows)]).as_numpy("sum").shape == rows.shape


def request(**changes: Any) -> Any:
    def one(name: str) -> Any:
        contents = service_pb2.InferTensorContents(fp32_contents=FINE[0])
        return service_pb2.ModelInferRequest.InferInputTensor(
            name=name, datatype="FP32", shape=[1, 4], contents=contents
        )

    asked = service_pb2.ModelInferRequest(model_name=NAME, inputs=[one("a"), one("b")])
    for name, value in changes.items():
        if name in ("raw_input_contents", "outputs"):
            getattr(asked, name).extend(value)
        elif name == "parameters":
            for key, parameter in value.items():
                asked.parameters[key].CopyFrom(parameter)
        elif name in ("model_name", "model_version"):
            setattr(asked, name, value)
        elif name == "contents":
            asked.inputs[0].contents.CopyFrom(value)
        elif name == "shape":
            asked.inputs[0].shape[:] = value
        else:
            setattr(asked.inputs[0], name, value)
    return asked


def test_typed_contents_are_answered_with_typed_contents(stub: Any) -> None:
    answer = stub.ModelInfer(request())
    assert list(answer.outputs[0].contents.fp32_contents) == [2, 4, 6, 8]
    assert list(answer.raw_output_contents) == []


contents = service_pb2.InferTensorContents
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown-model", {"model_name": "other"}, "NOT_FOUND", "it has model 'm', version '1'"),
    (
        "timeout",
        {"parameters": {"timeout": service_pb2.InferParameter(string_param="1")}},
        "INVALID_ARGUMENT",
        "parameter 'timeout' is \"1\"",
    ),
    ("unknown-version", {"model_version": "2"}, "NOT_FOUND", "version '2'"),
    ("unknown-input", {"name": "c"}, "INVALID_ARGUMENT", "the model has no input 'c'"),
    ("input-twice", {"name": "b"}, "INVALID_ARGUMENT", "input 'b' is there twice"),
    ("other-datatype", {"datatype": "FP64"}, "INVALID_ARGUMENT", "'datatype' is 'FP64'"),
    ("negative-size", {"shape": [-1, 4]}, "INVALID_ARGUMENT", "has a negative size"),
    ("other-size", {"shape": [2, 4]}, "INVALID_ARGUMENT", "has 4 elements, but shape [2, 4] means 8"),
    ("other-rank", {"shape": [4]}, "INVALID_ARGUMENT", "shape [4] does not fit"),
    ("other-field", {"contents": contents(fp64_contents=[1])}, "INVALID_ARGUMENT", "belong in fp32_contents"),
    ("both-kinds", {"raw_input_contents": [b"1" * 16] * 2}, "INVALID_ARGUMENT", "send one of both"),
    ("one-raw-of-two", {"raw_input_contents": [b"1" * 16]}, "INVALID_ARGUMENT", "but 1 raw_input_contents"),
    ("three-raw-of-two", {"raw_input_contents": [b"1"] * 3}, "INVALID_ARGUMENT", "but 3 raw_input_contents"),
    (
        "unknown-output",
        {"outputs": [service_pb2.ModelInferRequest.InferRequestedOutputTensor(name="z")]},
        "INVALID_ARGUMENT",
        "the model has no output 'z'",
    ),
]


@pytest.mark.parametrize(
    ("changes", "code", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_bad_request_is_refused_with_its_reason(
    stub: Any, changes: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request(**changes))
    error: Any = caught.value
    assert (error.code().name, said in error.details()) == (code, True), error.details()


def test_health_and_reflection_answer(server: Server) -> None:
    with grpc.insecure_channel(rpc_address(server)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "inference.GRPCInferenceService"):
            assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="other"))
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        assert next(iter(health.Watch(health_pb2.HealthCheckRequest(service="other")))).status == 3
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        symbols = ("inference.GRPCInferenceService", "grpc.reflection.v1alpha.ExtensionRequest", "none.None")
        questions = [
            b":\0",
            *[field(4, each.encode()) for each in symbols],
        ]  # services, and files with symbols
        services, file, renamed, none = ask(iter(questions), timeout=10)
        assert services.count(b".ServerReflection") == 2
        assert b"ModelInferRequest" in file
        assert b".grpc.reflection.v1alpha.ServerReflectionRequest" in renamed
        assert b"nothing of this name" in none
        file = database.FindFileContainingSymbol("inference.GRPCInferenceService")
        assert "ModelInfer" in [method.name for method in file.service[0].method]


def test_calls_count_in_the_same_metrics(server: Server, stub: Any) -> None:
    series = 'tailbound_runtime_requests_total{code="200"}'
    before = server.metric(series) or 0
    stub.ModelInfer(request())
    with pytest.raises(grpc.RpcError):
        stub.ModelInfer(request(name="c"))
    assert server.metric(series) == before + 1
    assert (server.metric('tailbound_runtime_requests_total{code="400"}') or 0) >= 1


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (TensorProto.FLOAT16, "FP16", np.array([[1.5, np.nan]], np.float16)),
        (TensorProto.BFLOAT16, "BF16", np.array([[1.5, np.nan], [-np.inf, 2.0**127]], ml_dtypes.bfloat16)),
        (TensorProto.INT64, "INT64", np.array([[2**63 - 1, -(2**63)]], np.int64)),
        (TensorProto.STRING, "BYTES", np.array([["ü", ""]], np.object_)),
    ],
    ids=["fp16", "bf16", "int64", "bytes"],
)
def test_other_datatypes_travel_raw(tmp_path: Path, kind: int, name: str, values: Any) -> None:
    with (
        serving(models.identity(tmp_path / "m.onnx", kind), grpc_port="0") as server,
        triton.InferenceServerClient(rpc_address(server)) as client,
    ):
        one = triton.InferInput("x", list(values.shape), name)
        one.set_data_from_numpy(values)
        answer = client.infer(NAME, [one]).as_numpy("y")
        if name == "BYTES":
            assert [element.decode() for element in answer.ravel()] == values.ravel().tolist()
        else:
            assert answer.tobytes() == values.tobytes()


def test_what_is_no_message_is_the_callers_fault(server: Server) -> None:
    with grpc.insecure_channel(rpc_address(server)) as channel, pytest.raises(grpc.RpcError) as refusal:
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\n\x05m", timeout=10)
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is no ModelInferRequest" in refusal.value.details()


def test_who_watches_is_told_of_the_drain_and_of_the_end(tmp_path: Path) -> None:
    with (
        serving(models.arithmetic(tmp_path / "m.onnx"), grpc_port="0", drain_seconds="1") as server,
        grpc.insecure_channel(rpc_address(server)) as channel,
    ):
        watched = iter(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()))
        assert next(watched).status == 1
        server.terminate()
        assert next(watched).status == 2
        with pytest.raises(grpc.RpcError) as ended:
            next(watched)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_packed_messages_are_unpacked_within_the_limit(server: Server, compression: Any) -> None:
    with grpc.insecure_channel(rpc_address(server), compression=compression) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert list(stub.ModelInfer(request()).outputs[0].contents.fp32_contents) == [2, 4, 6, 8]
        with pytest.raises(grpc.RpcError) as refusal:
            stub.ModelInfer(request(raw_input_contents=[bytes(9_000_000)]))
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\n\x05m", timeout=10)
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


def test_a_message_means_the_same_however_its_fields_are_ordered(server: Server) -> None:
    """Twice each: it is read anew, and then as known."""
    inputs = [field(5, one.SerializeToString()) for one in request(raw_input_contents=[]).inputs]
    bare = [field(5, b"\n\x01%c\x12\x04FP32\x1a\x02\x01\x04" % letter) for letter in b"ab"]
    raw = [field(7, np.array(FINE, np.float32).tobytes()), field(7, bytes(16))]
    name, unknown = field(1, NAME.encode()), b"\xa0\x06\x96\x01" + field(14, b"x") + b"\x7d1234"
    with grpc.insecure_channel(rpc_address(server)) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for message, first in (
            (b"".join((name, *bare, *raw)), 1),
            (b"".join((*raw, *bare, name)), 1),
            (b"".join((raw[0], bare[0], name, unknown, raw[1], bare[1])), 1),
            (b"".join((name, *bare, *reversed(raw))), 1),
            (b"".join((field(1, b"other"), name, *bare, *raw)), 1),
            (b"".join((*inputs, name)), 2),
        ):
            for _ in range(2):
                answer = service_pb2.ModelInferResponse.FromString(infer(message, timeout=10))
                if first == 2:
                    assert answer.outputs[0].contents.fp32_contents[0] == 2
                else:
                    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == FINE[0]
        for message in (
            name + b"".join(bare) + raw[0],
            name + b"".join(bare) + raw[0] + field(7, bytes(12)),
            name + b"".join(bare) + b"".join(raw) + b"\x3b",  # a group
            name + b"".join(bare) + b"".join(raw) + b"\x38\x01",  # a raw tensor that is a number
            name + b"\x2a\x00" * 5000,
            field(1, b"\xff"),
        ):
            for _ in range(2):
                with pytest.raises(grpc.RpcError) as refusal:
                    infer(message, timeout=10)
                assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def slow(rounds: int) -> Any:
    one = service_pb2.ModelInferRequest.InferInputTensor(name="rounds", datatype="INT64", shape=[1])
    one.contents.int64_contents.append(rounds)
    return service_pb2.ModelInferRequest(model_name=NAME, inputs=[one])


def test_deadlines_and_callers_that_leave_stop_the_run(slow_model: Path) -> None:
    with (
        serving(slow_model, grpc_port="0") as server,
        grpc.insecure_channel(rpc_address(server)) as channel,
    ):
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as late:
            stub.ModelInfer(slow(10**9), timeout=0.3)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        running = stub.ModelInfer.future(slow(10**9))
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 1)
        running.cancel()
        eventually(lambda: server.metric("tailbound_runtime_requests_in_flight") == 0)
        assert server.metric('tailbound_runtime_requests_total{code="499"}') is not None
        stub.ModelInfer(slow(1), timeout=10)


async def test_many_calls_share_a_connection_and_a_run(tmp_path: Path) -> None:
    model = models.arithmetic(tmp_path / "m.onnx")
    with serving(model, grpc_port="0", batching_mode="dynamic", batching_max_size="8") as server:
        async with grpc.aio.insecure_channel(rpc_address(server)) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            answers = await asyncio.gather(*(stub.ModelInfer(request()) for _ in range(300)))
            asked = service_pb2.ModelConfigRequest(name=NAME)
            config = (await stub.ModelConfig(asked)).config
    assert {answer.outputs[0].contents.fp32_contents[3] for answer in answers} == {8}
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (8, True)
