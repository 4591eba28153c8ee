"""Operators that are killed between two writes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tailbound.kube.protocol import KubeClient

from tests.integration.controller.environment import Environment


class Cut:
    """Passes everything on until the k-th write, and is dead from then on, as a killed process would be."""

    def __init__(self, inner: KubeClient, after: int) -> None:
        self._inner = inner
        self._left = after
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in {"create", "apply", "replace_status", "delete", "create_event"}:
            return method

        async def write(*arguments: Any) -> Any:
            if self._left <= 0:
                self.dead.set()
                await asyncio.Event().wait()
            self._left -= 1
            return await method(*arguments)

        return write


async def dies(
    environment: Environment, writes: int, ended: Callable[[], Awaitable[bool]], every: float = 0.05
) -> bool:
    """Run an operator that is killed after so many writes. True if it was before the end came."""
    cuts: list[Cut] = []

    def wrap(inner: KubeClient) -> KubeClient:
        cuts.append(Cut(inner, writes))
        return cast(KubeClient, cuts[-1])

    def dead() -> bool:
        return any(cut.dead.is_set() for cut in cuts)

    async def dead_or_ended() -> bool:
        return dead() or await ended()

    async with environment.killed(environment.operator(wrap=wrap)):
        await environment.until(f"the end after {writes} writes", dead_or_ended, every=every)
    return dead()
