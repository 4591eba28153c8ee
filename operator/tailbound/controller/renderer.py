"""Expands runtime templates in a child process, so that no template can hold up or exhaust the operator.

There is one child, and a template may take a second of its time. So costly renderings of one namespace are
taken from the namespace's share: SHARE of the time that passes, of which BURST_SECONDS can be saved up. Who
has used that up has to wait, and neither the child nor a worker waits for it. Renderings that take no more
than CHEAP_SECONDS cost nothing, however many there are. What a template came to, also that it failed, is
remembered until its inputs change.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tailbound.controller.share import Shares
from tailbound.kube.errors import Transient
from tailbound.revisions.rendering import Rendered, RenderFailed, RenderRequest
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)
# Of the newest requests: `drafts` remembers what came of each service's.
REMEMBERED = 512
# The child's CPU time is limited to a second; a busy node may stretch that.
WALL_SECONDS = 10.0
# The child imports its packages first, which takes long on a node without spare CPU time.
START_SECONDS = 120.0
ANSWER_LIMIT_BYTES = 1024 * 1024
CHEAP_SECONDS = 0.1
SHARE = 0.1
BURST_SECONDS = 3.0
# What it costs to end one child and to start another.
CHILD_SECONDS = 2.0
CPU_MESSAGE = "expanding it takes more than a second of CPU time; make the template simpler"


class Renderer:
    """One child, started ahead and started again when it ends. Answers are remembered by request."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._child: asyncio.subprocess.Process | None = None
        self._is_ready = False
        self._turn = asyncio.Lock()
        self._now = now
        self._shares = Shares(SHARE, BURST_SECONDS)
        self._known: OrderedDict[RenderRequest, Rendered | RenderFailed] = OrderedDict()

    async def start(self) -> None:
        """Start the child: the first one costs most of a second."""
        if self._child is None or self._child.returncode is not None:
            self._is_ready = False
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
        """The expanded template, or why there is none.

        Raises Transient if the child was lost otherwise, or the namespace has used up its share.
        """
        known = self._known.get(request)
        if known is not None:
            self._known.move_to_end(request)
            return known
        self._check_share(request.namespace)
        async with self._turn:
            # Those before it may have used up what there was.
            self._check_share(request.namespace)
            rendering = await self._ask(request)
        self._known[request] = rendering
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return rendering

    def _check_share(self, namespace: str) -> None:
        if self._shares.left(namespace, self._now()) <= 0:
            wait = self._shares.wait(namespace, self._now())
            raise Transient(
                f"templates of namespace {namespace} have used up their share of the time, {SHARE:.0%}: make "
                "the templates of its runtimes simpler",
                wait,
            )

    def _charge(self, namespace: str, seconds: float) -> None:
        if seconds > CHEAP_SECONDS:
            self._shares.use(namespace, seconds, self._now())

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
            if not self._is_ready:
                async with asyncio.timeout(START_SECONDS):
                    self._is_ready = bool(await child.stdout.readline())
            async with asyncio.timeout(WALL_SECONDS):
                child.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
                await child.stdin.drain()
                line = await child.stdout.readline()
                answer = json.loads(line) if line else {}
                # A child that was out of memory ends with its answer: the next request needs another one.
                status = await child.wait() if not line or "over" in answer else None
        except (TimeoutError, ConnectionError) as error:
            await self.close()
            self._charge(request.namespace, CHILD_SECONDS)
            raise Transient(f"templates cannot be expanded now: {str(error) or 'no answer'}") from error
        except asyncio.CancelledError:
            await self.close()  # its answer must not be taken for that to the next request
            raise
        self._charge(request.namespace, answer.get("cpu_seconds", 0.0) if status is None else CHILD_SECONDS)
        if status is not None:
            _LOG.warning("template child ended", status=status, runtime=request.runtime)
        if answer:
            return _read(answer, request)
        if status == -signal.SIGXCPU:
            return RenderFailed(f"{request.runtime}: {CPU_MESSAGE}")
        raise Transient(f"the template child ended with status {status}")


def _read(answer: Mapping[str, Any], request: RenderRequest) -> Rendered | RenderFailed:
    if "rendered" in answer:
        return Rendered(str(answer["rendered"]), tuple(map(str, answer["further"])))
    message = str(answer["failed"])
    return RenderFailed(message if "over" not in answer else f"{request.runtime}: {message}")
