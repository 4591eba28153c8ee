"""The faulty model server over gRPC: ModelInfer of the Open Inference Protocol.

An answer names the revision as its model; a prediction that is to fail ends with INTERNAL.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

if TYPE_CHECKING:
    from .server import Server

SERVICE: Final = "inference.GRPCInferenceService"
METHOD: Final = "ModelInfer"
_MODEL_NAME: Final = b"\x0a"
"""The tag of the field model_name of a ModelInferResponse; its length and its text follow."""


@asynccontextmanager
async def answering(server: "Server", port: int, longest_seconds: float) -> AsyncIterator[int]:
    """Answer at this port, for 0 at a free one, until the block ends, then what is in flight; the port."""

    async def infer(_: bytes, context: Any) -> bytes:
        try:
            succeeded = await server.predicted(float("inf"))
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"{server.revision} is too late")
        if not succeeded:
            await context.abort(grpc.StatusCode.INTERNAL, f"{server.revision} was told to fail")
        return answer(server.revision)

    rpc = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers = {METHOD: grpc.unary_unary_rpc_method_handler(infer)}
    rpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    bound = rpc.add_insecure_port(f"0.0.0.0:{port}")
    await rpc.start()
    try:
        yield bound
    finally:
        await rpc.stop(longest_seconds)


def answer(revision: str) -> bytes:
    """A ModelInferResponse of this model and nothing else."""
    return _MODEL_NAME + bytes([len(revision.encode())]) + revision.encode()
