"""Our model server's gRPC behind a real Envoy: statuses, long messages, and an end that fails no call."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.integration.gateway.gateway_lab import Gateway
from tests.integration.gateway.scripted_cluster import endpoint_slice, inference_service
from tests.runtime import models
from tests.runtime.process import NAME, rpc_address, serving

LONG_ROWS = 120_000  # of 16 bytes, twice in the request and in the answer
OPTIONS = [
    ("grpc.default_authority", "churn.risk"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
]


def message(rows: int, name: str = NAME) -> Any:
    asked = service_pb2.ModelInferRequest(model_name=name)
    for tensor in ("a", "b"):
        asked.inputs.add(name=tensor, datatype="FP32", shape=[rows, 4])
        asked.raw_input_contents.append(bytes(16 * rows))
    return asked


OPTIONS = [
    ("grpc.default_authority", "churn.risk"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
]


async def test_calls_pass_through_and_none_fails_when_a_server_ends(gateway: Gateway, tmp_path: Path) -> None:
    model = models.arithmetic(tmp_path / "m.onnx")
    with (
        serving(model, grpc_port="0", drain_seconds="2") as ending,
        serving(model, grpc_port="0", drain_seconds="0") as staying,
    ):
        ports = [int(rpc_address(each).rpartition(":")[2]) for each in (ending, staying)]
        service = inference_service("risk", "churn", {"churn-r1": 100})

        async def routed(port: int) -> None:
            ready = [("127.0.0.2", "ready")]
            gateway.cluster.put(
                service, endpoint_slice("risk", "churn", "churn-r1", ready, {"http": port, "grpc": port})
            )

        await routed(ports[0])
        await gateway.until_applied("risk/churn", 1)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.http_port}", OPTIONS) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            answers = await asyncio.gather(*(stub.ModelInfer(message(1)) for _ in range(100)))
            assert {len(each.raw_output_contents[0]) for each in answers} == {16}
            long = await stub.ModelInfer(message(LONG_ROWS))
            assert [len(each) for each in long.raw_output_contents] == [16 * LONG_ROWS] * 2
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.ModelInfer(message(1, "other"))
            assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
            assert "it has model 'm'" in str(refusal.value.details())

            async def caller() -> int:
                calls = 0
                while ending.process.poll() is None:
                    await stub.ModelInfer(message(1), timeout=10)
                    calls += 1
                return calls

            calling = [asyncio.create_task(caller()) for _ in range(4)]
            await asyncio.sleep(0.2)
            ending.terminate()
            await routed(ports[1])
            assert min(await asyncio.gather(*calling)) > 0
