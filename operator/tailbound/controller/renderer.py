"""Expands runtime templates in a child process, so that no template can hold up or exhaust the operator."""

import asyncio
import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict

from tailbound.kube.errors import Transient
from tailbound.reconcile.model import Rendered, RenderFailed, RenderRequest
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
REMEMBERED = 2048
# The child's CPU time is limited to a second; a busy node may stretch that.
WALL_SECONDS = 10.0
ANSWER_LIMIT_BYTES = 1024 * 1024
CPU_MESSAGE = "expanding it takes more than a second of CPU time; make the template simpler"


class Renderer:
    """One child, started ahead and started again when it ends. Answers are remembered by request."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._known: OrderedDict[RenderRequest, Rendered | RenderFailed] = OrderedDict()

    async def start(self) -> None:
        """Start the child: the first one costs most of a second."""
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tailbound.controller.render_child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # It finds the same packages, and learns nothing else of this environment.
                env={"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
                limit=ANSWER_LIMIT_BYTES,
            )

    async def render(self, request: RenderRequest) -> Rendered | RenderFailed:
        """The expanded template, or why there is none. Raises Transient if the child was lost otherwise."""
        known = self._known.get(request)
        if known is not None:
            self._known.move_to_end(request)
            return known
        async with self._turn:
            rendering = await self._ask(request)
        self._known[request] = rendering
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return rendering

    async def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
            # Closing the pipes belongs to the event loop: give it a turn before it is gone.
            await asyncio.sleep(0)

    async def _ask(self, request: RenderRequest) -> Rendered | RenderFailed:
        await self.start()
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        try:
            async with asyncio.timeout(WALL_SECONDS):
                child.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
                await child.stdin.drain()
                line = await child.stdout.readline()
                answer = json.loads(line) if line else {}
                # A child that was out of memory ends with its answer: the next request needs another one.
                status = await child.wait() if not line or "over" in answer else None
        except (TimeoutError, ConnectionError) as error:
            await self.close()
            raise Transient(f"templates cannot be expanded now: {str(error) or 'no answer'}") from error
        if status is not None:
            _LOG.warning("template child ended", status=status, runtime=request.runtime)
        if answer:
            return _read(answer, request)
        if status == -signal.SIGXCPU:
            return RenderFailed(f"{request.runtime}: {CPU_MESSAGE}")
        raise Transient(f"the template child ended with status {status}")


def _read(answer: Mapping[str, object], request: RenderRequest) -> Rendered | RenderFailed:
    if "rendered" in answer:
        return Rendered(str(answer["rendered"]))
    message = str(answer["failed"])
    return RenderFailed(message if "over" not in answer else f"{request.runtime}: {message}")
