"""Server reflection: which services there are, and the descriptors of their messages (v1 and v1alpha).

The versions differ in their names only.
"""

from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

from tailbound_runtime import reflection_pb2
from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_call import PREFIX_BYTES, Arrival, RpcCall, Surface, parsed
from tailbound_runtime.grpc_head import RpcHead
from tailbound_runtime.http2 import Http2Connection
from tailbound_runtime.http2_outflow import Stream
from tailbound_runtime.protocol import Body
from tailbound_runtime.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

V1: Final = "grpc.reflection.v1.ServerReflection"
V1ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
MOST_BYTES: Final = 4096
"""The longest question."""
_NOT_FOUND: Final = 5


def _file_of_v1alpha() -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of v1, renamed."""
    described = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(described)
    renamed = described.SerializeToString(deterministic=True)
    described = descriptor_pb2.FileDescriptorProto.FromString(renamed)
    described.name = described.name.replace("reflection", "reflection_v1alpha")
    described.package = "grpc.reflection.v1alpha"
    typed = [field for message in described.message_type for field in message.field if field.type_name]
    methods = described.service[0].method
    for each in typed:
        each.type_name = each.type_name.replace(".v1.", ".v1alpha.")
    for method in methods:
        method.input_type = method.input_type.replace(".v1.", ".v1alpha.")
        method.output_type = method.output_type.replace(".v1.", ".v1alpha.")
    return described


class Reflection:
    """What is known of these services.

    services: by their full names
    """

    def __init__(self, surface: Surface, services: tuple[str, ...]) -> None:
        self._surface = surface
        self._services = services
        self._pool = descriptor_pool.Default()
        self._pool.AddSerializedFile(_file_of_v1alpha().SerializeToString())

    def call(self, connection: Http2Connection, stream: Stream, head: RpcHead) -> "ReflectCall":
        """A call of ServerReflectionInfo."""
        return ReflectCall(self, self._surface, connection, stream, head)

    def answer(self, asked: ServerReflectionRequest) -> ServerReflectionResponse:
        """The answer to one question."""
        kind = asked.WhichOneof("message_request")
        answer = ServerReflectionResponse(valid_host=asked.host, original_request=asked)
        answers: Mapping[str | None, Callable[[], None]] = {
            "list_services": lambda: self._list(answer),
            "file_by_filename": lambda: self._files(
                answer, self._pool.FindFileByName(asked.file_by_filename)
            ),
            "file_containing_symbol": lambda: self._files(
                answer, self._pool.FindFileContainingSymbol(asked.file_containing_symbol)
            ),
            "all_extension_numbers_of_type": lambda: self._extensions(
                answer, asked.all_extension_numbers_of_type
            ),
        }
        try:
            answers[kind]()
        except KeyError:
            answer.error_response.error_code = _NOT_FOUND
            answer.error_response.error_message = "this server has nothing of this name"
        return answer

    def _list(self, answer: ServerReflectionResponse) -> None:
        for service in self._services:
            answer.list_services_response.service.add(name=service)

    def _files(self, answer: ServerReflectionResponse, file: FileDescriptor) -> None:
        """The file and all that it needs."""
        found: dict[str, FileDescriptor] = {}
        missing = [file]
        while missing:
            one = missing.pop()
            if one.name not in found:
                found[one.name] = one
                missing += one.dependencies
        for one in found.values():
            answer.file_descriptor_response.file_descriptor_proto.append(one.serialized_pb)

    def _extensions(self, answer: ServerReflectionResponse, kind: str) -> None:
        """Raises KeyError for a type that there is not; none of ours has extensions."""
        self._pool.FindMessageTypeByName(kind)
        answer.all_extension_numbers_response.base_type_name = kind


class ReflectCall(RpcCall):
    """Answers questions one by one, until the client ends the call."""

    __slots__ = ("_reflection",)

    def __init__(self, reflection: Reflection, *arrival: *Arrival) -> None:
        super().__init__(*arrival)
        self._reflection = reflection

    def receive(self, part: bytes) -> None:
        """Answer the questions that are complete by now."""
        if self.over:
            return
        self._content += part
        self.attempt(self._questions)

    def _questions(self) -> None:
        while len(self._content) >= PREFIX_BYTES and not self.over:
            ends = PREFIX_BYTES + int.from_bytes(self._content[1:PREFIX_BYTES], "big")
            if ends > MOST_BYTES or self._content[0] != 0:
                raise ApiError(400, f"a question has at most {MOST_BYTES} bytes, and is not packed")
            if self.stream.pending is not None:
                raise ApiError(413, "the answers before have not been taken")
            if len(self._content) < ends:
                return
            question, self._content = self._content[PREFIX_BYTES:ends], self._content[ends:]
            self._respond(question)

    def _respond(self, question: Body) -> None:
        asked = parsed(ServerReflectionRequest, question)
        self.say([self._reflection.answer(asked).SerializeToString()])
        self.connection.flush()

    def end(self) -> None:
        """There are no more."""
        self.succeed()
