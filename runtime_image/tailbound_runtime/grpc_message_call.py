"""A gRPC call whose request is one message: reading it, packed or not."""

from abc import ABC, abstractmethod
from typing import Final

from tailbound_runtime import reception
from tailbound_runtime.errors import ApiError
from tailbound_runtime.grpc_call import PREFIX_BYTES, RpcCall
from tailbound_runtime.protocol import Body

SHORT: Final = 64 * 2**10  # bytes; the message of a longer content is not copied out of it


class MessageCall(RpcCall, ABC):
    """A call whose request is one message; subclasses take it."""

    __slots__ = ()

    def receive(self, part: bytes) -> None:
        """A part of the message; the call is refused if it is too long."""
        try:
            self.share.need(len(part))
            if not self._content:
                self._content = part
            else:
                if isinstance(self._content, bytes):
                    self._content = bytearray(self._content)
                self._content += part
            self._check_length(complete=False)
        except ApiError as error:
            self.refuse(error)

    def _check_length(self, complete: bool) -> None:
        """Raises ApiError unless the content is one message, as far as it is here."""
        size = len(self._content)
        if size >= PREFIX_BYTES:
            length = int.from_bytes(self._content[1:PREFIX_BYTES], "big")
            if length > self.limits.max_bytes:
                raise self.limits.too_long()
            if size > PREFIX_BYTES + length:
                raise ApiError(400, "more than one message came for a method that takes one")
            if size == PREFIX_BYTES + length:
                return
        if complete:
            raise ApiError(400, "the call ended before its message did")

    def end(self) -> None:
        """All of the message is here."""
        self.attempt(self._end)

    def _end(self) -> None:
        self._check_length(complete=True)
        content, self._content = self._content, b""
        message = content[PREFIX_BYTES:] if len(content) < SHORT else memoryview(content)[PREFIX_BYTES:]
        if content[0] == 0:
            self.take(message)
        elif content[0] > 1:
            raise ApiError(400, f"a message begins with the byte {content[0]}, which is neither 0 nor 1")
        elif self.head.packing is None:
            raise ApiError(400, "the message is packed, but grpc-encoding does not say how")
        else:
            self.later(self._unpacked(message, self.head.packing))

    async def _unpacked(self, packed: Body, packing: bytes) -> None:
        body = await self.surface.app.aside(
            lambda: reception.unpack(packing, packed, self.limits, self.share)
        )
        self._task = None
        self.take(body)

    @abstractmethod
    def take(self, message: Body) -> None:
        """Answer this message, now or later. May raise ApiError."""
