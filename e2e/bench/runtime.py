"""`python -m e2e.bench.runtime`: what a request costs the model server in CPU time, beside the model itself.

The model is a small perceptron, so that nearly all of it is the server's own. Senders over loopback, each
with one connection, ask again as soon as they are answered. CPU time is that of the server's process, from
/proc; other work of the machine changes it little. All answers have to have the same length.

The last line is one JSON object, with microseconds for each request:

raw           `session.run` of the model alone, one row, in this process
json, binary  the server over HTTP, asked with JSON or with binary tensors both ways
grpc          the server over gRPC, asked with binary tensors
grpc_heads    the same, each head with an x-request-id of its own, as behind a gateway
dynamic_*     the same with dynamic batching, of requests that are there at one time
*_ratio       the same as a multiple of raw
"""

import asyncio
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
import onnxruntime as ort
from tritonclient.grpc import service_pb2 as pb

from e2e.bench import batching, closed_loop
from e2e.cluster.ports import free_port

WIDTHS: Final = (64, 256, 256, 8)
SENDERS: Final = 64
GRPC_SENDERS: Final = 32
REQUESTS: Final = 2000  # of one round
ROUNDS: Final = 3
MODES: Final = {
    "": {},
    "dynamic_": {"TAILBOUND_BATCHING_MODE": "dynamic", "TAILBOUND_BATCHING_MAX_SIZE": "32"},
}


def raw_microseconds(path: Path) -> float:
    """CPU time of one run of the model alone, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    row = np.ones((1, WIDTHS[0]), np.float32)

    def measured() -> float:
        started = time.process_time()
        for _ in range(REQUESTS):
            session.run(None, {"x": row})
        return (time.process_time() - started) / REQUESTS * 1e6

    measured()
    return statistics.median(measured() for _ in range(ROUNDS))


def messages() -> dict[str, bytes]:
    """One whole HTTP request of each kind."""
    row = np.random.default_rng(3).standard_normal((1, WIDTHS[0]), np.float32)
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": list(row.shape)}
    plain = json.dumps({"inputs": [{**tensor, "data": row.ravel().tolist()}]}).encode()
    head = json.dumps(
        {
            "inputs": [{**tensor, "parameters": {"binary_data_size": row.nbytes}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    length = f"Inference-Header-Content-Length: {len(head)}\r\n"
    return {"json": _request(plain, ""), "binary": _request(head + row.tobytes(), length)}


def _request(body: bytes, headers: str) -> bytes:
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: bench\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def one_grpc_round(address: str, requests: int, new_heads: bool = False) -> None:
    """The same as `one_round`, over gRPC, with fewer callers."""
    left = requests
    row = np.random.default_rng(3).standard_normal((1, WIDTHS[0]), np.float32)
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[row.tobytes()])
    message.inputs.add(name="x", datatype="FP32", shape=row.shape)
    asked = message.SerializeToString()
    lengths: set[int] = set()

    async def sender() -> None:
        nonlocal left
        # Channels to one address share a connection otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            while left > 0:
                left -= 1
                metadata = (("x-request-id", str(uuid.uuid4())),) if new_heads else ()
                lengths.add(len(await call(asked, metadata=metadata)))

    await asyncio.gather(*(sender() for _ in range(GRPC_SENDERS)))
    assert len(lengths) == 1, lengths


async def one_round(url: str, message: bytes, requests: int) -> None:
    """A closed loop of this many requests."""
    async with closed_loop.senders(url, message, SENDERS) as senders:
        await senders.turn(requests)


def server_microseconds(pid: int, one_round: Callable[[int], Coroutine[Any, Any, None]]) -> float:
    """CPU time of one request, the median over the rounds, each of so many requests."""
    asyncio.run(one_round(REQUESTS // 4))
    rounds = []
    for _ in range(ROUNDS):
        before = batching.cpu_seconds(pid)
        asyncio.run(one_round(REQUESTS))
        rounds.append((batching.cpu_seconds(pid) - before) / REQUESTS * 1e6)
    return statistics.median(rounds)


def main() -> int:
    """Run it."""
    with tempfile.TemporaryDirectory() as folder:
        path = batching.model(Path(folder) / "perceptron.onnx", WIDTHS)
        raw = raw_microseconds(path)
        document: dict[str, Any] = {"bench": "runtime", "senders": SENDERS, "raw": round(raw, 1)}
        for mode, env in MODES.items():
            port = free_port()
            with batching.server(path, {"TAILBOUND_GRPC_PORT": str(port), **env}) as (url, pid):
                kinds: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
                    kind: partial(one_round, url, message) for kind, message in messages().items()
                }
                kinds["grpc"] = partial(one_grpc_round, f"127.0.0.1:{port}")
                kinds["grpc_heads"] = partial(one_grpc_round, f"127.0.0.1:{port}", new_heads=True)
                for kind, one in kinds.items():
                    taken = server_microseconds(pid, one)
                    name = mode + kind
                    print(f"{name:20}{taken:8.1f} µs, {taken / raw:.1f} times the model's own", flush=True)
                    document |= {name: round(taken, 1), f"{name}_ratio": round(taken / raw, 1)}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
