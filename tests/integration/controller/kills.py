"""Operators that are killed before a write, and what writes there are.

tests/unit/reconcile/test_reconcile_kills.py kills after every number of writes, on a simulated API server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from tailbound.kube.protocol import KubeClient
from tailbound.objects.fields import Object

from tests.integration.controller.environment import Environment

WRITES: Final = frozenset({"create", "apply", "replace_status", "delete", "create_event"})


@dataclass(frozen=True)
class Moment:
    """The first write of this method and kind whose body is so."""

    method: str
    kind: str
    holds: Callable[[Object], bool] = lambda _: True

    def is_at(self, method: str, arguments: tuple[Any, ...]) -> bool:
        """Whether this is the write."""
        if method != self.method or method == "create_event" or arguments[0].kind != self.kind:
            return False
        return method == "delete" or self.holds(arguments[1])


class Cut:
    """Passes everything on until a moment, and is dead from then on, as a killed process would be."""

    def __init__(self, inner: KubeClient, moment: Moment) -> None:
        self._inner = inner
        self._moment = moment
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in WRITES:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            if self._moment.is_at(name, arguments):
                self.dead.set()
            if self.dead.is_set():
                await asyncio.Event().wait()
            return await method(*arguments, **options)

        return write


class Recorder:
    """Passes everything on, and keeps the writes of children that succeeded: method, kind and revision."""

    def __init__(self, inner: KubeClient, written: list[tuple[str, str, str]]) -> None:
        self._inner = inner
        self._written = written

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in {"create", "apply", "delete"}:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            made = await method(*arguments, **options)
            called = arguments[2] if name == "delete" else arguments[1]["metadata"]["name"]
            if not options.get("dry_run"):
                self._written.append((name, arguments[0].kind, number_of(called)))
            return made

        return write


def number_of(name: str) -> str:
    """r1 of NAME-r1-DIGEST; empty for what is named after the service itself."""
    return name.split("-")[-2] if "-" in name else ""


async def dies(environment: Environment, moment: Moment, ended: Callable[[], Awaitable[bool]]) -> bool:
    """Run an operator that is killed at this moment. False if the end came before it."""
    cuts: list[Cut] = []

    def wrap(inner: KubeClient) -> KubeClient:
        cuts.append(Cut(inner, moment))
        return cast(KubeClient, cuts[-1])

    def dead() -> bool:
        return any(cut.dead.is_set() for cut in cuts)

    async def dead_or_ended() -> bool:
        return dead() or await ended()

    async with environment.killed(environment.operator(wrap=wrap)):
        await environment.until(f"{moment}", dead_or_ended)
    return dead()
