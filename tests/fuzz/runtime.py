"""Bodies and frames for the model server, over REST and gRPC: no 5xx or its like, no hang, always alive."""

import json
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import httpx
from hpack import Encoder
from tritonclient.grpc import service_pb2 as pb

from tests.fuzz.mutation import mutated
from tests.fuzz.outcome import Outcome
from tests.runtime import models
from tests.runtime.process import NAME, Server, rpc_address, serving

INFER: Final = f"/v2/models/{NAME}/infer"
METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"
HANG_SECONDS: Final = 10
CASES_BETWEEN_PROBES: Final = 200
BINARY_HEADER: Final = "Inference-Header-Content-Length"
WORDS: Final = tuple(
    word.encode()
    for word in (
        *("null", "true", "[]", "{}", '""', "NaN", "1e999", "-0", "9223372036854775808", "1e-400"),
        *("[", "]", "{", "}", ",", ":", '"', "\\u0000", "\\ud800", "\ufeff", '"shape":[0,4],', '"data":[],'),
        *('"shape":[-1,4],', '"shape":[4294967296,4294967296],', '"datatype":"BYTES",'),
        *('"parameters":{"binary_data_size":16},', '"parameters":{"binary_data":true},', '"id":1,'),
    )
)
UNWANTED: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ANSWERED: Final = b"\x0bgrpc-status"
BLAMES_ITSELF: Final = b"internal error"
_HEAD: Final = (
    *((":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", "fuzz")),
    *(("content-type", "application/grpc"), ("te", "trailers")),
)
_INPUT: Final = {"datatype": "FP32", "shape": [2, 4], "data": [1, 2.5, -3e4, 0, 5, 6, 7, 8]}
_BODIES: Final[tuple[dict[str, Any], ...]] = (
    {"inputs": [{"name": "a", **_INPUT}, {"name": "b", **_INPUT}]},
    {
        "id": "7",
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": "a", **_INPUT}, {"name": "b", **_INPUT}],
        "outputs": [{"name": "sum", "parameters": {"binary_data": True}}, {"name": "product"}],
    },
)


def _binary() -> tuple[bytes, int]:
    """A body with binary tensors, and the length of its JSON part."""
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32}}
        for name in ("a", "b")
    ]
    head = json.dumps({"inputs": inputs}).encode()
    return head + bytes(64), len(head)


def _message(random: Random) -> Any:
    asked = pb.ModelInferRequest(model_name=NAME, id="7")
    raw = random.random() < 0.5
    for name in ("a", "b"):
        tensor = asked.inputs.add(name=name, datatype="FP32", shape=[2, 4])
        if raw:
            asked.raw_input_contents.append(bytes(32))
        else:
            tensor.contents.fp32_contents.extend([1, 2, 3, 4, 5, 6, 7, 8])
    return asked


def _odd_frames(random: Random) -> bytes:
    """What a client of HTTP/2 might send, with some bytes changed after the preface."""
    encoder = Encoder()
    frames = [struct.pack(">IBI", 4, 0, 0)]
    for stream in range(1, 2 * random.randrange(2, 8), 2):
        message = _message(random).SerializeToString()
        head = encoder.encode([*_HEAD, ("number", str(random.randrange(3)))])
        frames.append(struct.pack(">IBI", len(head) << 8 | 1, random.choice((4, 4, 4, 0, 12)), stream) + head)
        message = b"\0" + len(message).to_bytes(4, "big") + message
        frames.append(struct.pack(">IBI", len(message) << 8, random.choice((1, 1, 0, 9)), stream) + message)
        if random.random() < 0.3:
            payload = random.randbytes(random.choice((0, 4, 5, 6, 8)))
            kind = random.choice((2, 3, 4, 6, 7, 8, 9))
            frames.append(
                struct.pack(">IBI", len(payload) << 8 | kind, 0, random.choice((0, stream))) + payload
            )
    sent = b"".join(frames)
    return PREFACE + (mutated(random, sent, WORDS) if random.random() < 0.7 else sent)


def _http2(address: tuple[str, int], random: Random, outcome: Outcome) -> None:
    sent = _odd_frames(random)
    with socket.create_connection(address, timeout=HANG_SECONDS) as sock:
        got = b""
        try:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            while read := sock.recv(2**16):
                got += read
        except ConnectionError:
            outcome.ended("http2 reset")
        except TimeoutError:
            outcome.fault(f"no end to {sent!r}")
    outcome.ended("http2 answered" if ANSWERED in got else "http2 ended")
    if BLAMES_ITSELF in got:
        outcome.fault(f"INTERNAL_ERROR to {sent!r}")


def _odd_fields(random: Random) -> bytes:
    """A message that can be parsed, some of whose fields do not fit each other."""
    asked = _message(random)
    for _ in range(random.choice((1, 1, 2, 3))):
        tensor = random.choice(asked.inputs) if asked.inputs else asked.inputs.add()
        random.choice(_CHANGES)(random, asked, tensor)
    return bytes(asked.SerializeToString())


_CHANGES: Final[tuple[Callable[[Random, Any, Any], object], ...]] = (
    lambda random, _, tensor: tensor.shape.append(random.choice((0, 1, -1, 2**31, 2**62))),
    lambda random, _, tensor: tensor.shape.pop() if tensor.shape else None,
    lambda random, _, tensor: setattr(tensor, "datatype", random.choice(("", "BYTES", "INT64", "FP16", "x"))),
    lambda random, _, tensor: setattr(tensor, "name", random.choice(("", "a", "b", "\0", "x" * 5000))),
    lambda random, _, tensor: tensor.contents.fp32_contents.extend(
        [float("nan")] * random.choice((1, 8, 999))
    ),
    lambda random, _, tensor: tensor.contents.bytes_contents.append(random.randbytes(9)),
    lambda random, _, tensor: tensor.contents.int64_contents.extend([2**63 - 1]),
    lambda random, asked, _: asked.raw_input_contents.append(random.randbytes(random.choice((0, 3, 32)))),
    lambda random, asked, _: asked.outputs.add(name=random.choice(("sum", "sum", "", "none"))),
    lambda random, asked, tensor: asked.inputs.remove(tensor),
    lambda random, asked, tensor: asked.inputs.append(tensor),
    lambda random, asked, _: setattr(asked, "model_version", random.choice(("1", "2", "-1"))),
    lambda random, asked, _: asked.parameters["batch"].CopyFrom(pb.InferParameter(int64_param=-1)),
)
"""Each changes the message, or one of its inputs."""


def _rest_case(random: Random) -> tuple[bytes, dict[str, str]]:
    if random.random() < 0.3:
        body, length = _binary()
        header = random.choice((str(length), str(length), str(random.randrange(400)), "-1", "x", "9" * 30))
        return mutated(random, body, WORDS), {BINARY_HEADER: header}
    return mutated(random, json.dumps(random.choice(_BODIES)).encode(), WORDS), {}


def _rest(server: Server, random: Random, outcome: Outcome) -> None:
    body, headers = _rest_case(random)
    try:
        answer = server.client.post(INFER, content=body, headers=headers, timeout=HANG_SECONDS)
    except httpx.HTTPError as error:
        outcome.ended("rest failed")
        outcome.fault(f"{error!r} to {body!r} with {headers}")
        return
    outcome.ended(f"rest {answer.status_code}")
    if answer.status_code >= 500:
        outcome.fault(f"{answer.status_code} {answer.text[:200]} to {body!r} with {headers}")


def _grpc(call: Any, random: Random, outcome: Outcome) -> None:
    odd = random.random() < 0.5
    message = _odd_fields(random) if odd else mutated(random, _message(random).SerializeToString(), WORDS)
    try:
        call(message, timeout=HANG_SECONDS)
        outcome.ended("grpc OK")
    except grpc.RpcError as error:
        code, said = error.code(), error.details()
        outcome.ended(f"grpc {code.name}")
        if code in (*UNWANTED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            outcome.fault(f"{code.name} {str(said)[:200]} to {message!r}")


@contextmanager
def _fuzzed(folder: Path) -> Iterator[tuple[Server, Any]]:
    model = models.arithmetic(folder / "fuzzed.onnx")
    with serving(model, grpc_port="0", max_request_bytes="200000") as server:
        # A log that is not read would block the server once its pipe is full.
        threading.Thread(target=deque, args=(server.process.stdout, 0), daemon=True).start()
        with grpc.insecure_channel(rpc_address(server)) as channel:
            yield server, channel.unary_unary(METHOD)


def fuzz(seed: int, count: int, folder: Path) -> Outcome:
    """Send `count` bodies to a server of its own."""
    random, outcome = Random(seed), Outcome(seed)
    with _fuzzed(folder) as (server, call):
        host, _, port = rpc_address(server).partition(":")
        for number in range(count):
            if number % 3 == 0:
                _rest(server, random, outcome)
            elif number % 3 == 1:
                _grpc(call, random, outcome)
            else:
                _http2((host, int(port)), random, outcome)
            if number % CASES_BETWEEN_PROBES == 0:
                assert server.client.get("/v2/health/live", timeout=HANG_SECONDS).status_code == 200
        resident = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
        assert resident is not None
        outcome.answers["most MiB of memory"] = int(resident[1]) // 1024
    return outcome
