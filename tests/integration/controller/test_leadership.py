"""Two operators: one leads, the other takes over, and never do both write."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from tailbound.controller.execute import NotLeaderError
from tailbound.controller.lease import LeadershipLost, LeaseTimes
from tailbound.controller.operator import Operator
from tailbound.kube.errors import Transient
from tailbound.kube.protocol import KubeClient, Listing
from tailbound.kube.resources import DEPLOYMENTS

from tests.integration.controller.environment import FAST_LEASE, Environment
from tests.integration.controller.nodes import kubelet
from tests.integration.controller.services import is_ready
from tests.support.tasks import beside

# The other operator waits for the end of a Lease that is no longer renewed.
RUNS_OUT_SOON = LeaseTimes(duration=8.0, renew_deadline=6.0, retry=0.5)
WRITES = {"create", "apply", "replace_status", "delete", "create_event"}


class Line:
    """One connection of an operator: notes when it writes, and can be cut."""

    def __init__(self, inner: KubeClient) -> None:
        self._inner = inner
        self.cut = False
        self.written: list[float] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name in {"watch", "close"}:
            return method

        async def request(*arguments: Any) -> Any:
            if self.cut:
                raise Transient("the line is cut")
            answer = await method(*arguments)
            if name in WRITES:
                self.written.append(time.monotonic())
            return answer

        return request

    async def pages(self, *arguments: Any) -> AsyncIterator[Listing]:
        """The pages of a list, unless it is cut."""
        if self.cut:
            raise Transient("the line is cut")
        async for page in self._inner.pages(*arguments):
            yield page


def operator_with_lines(
    environment: Environment, name: str, lease_times: LeaseTimes = FAST_LEASE
) -> tuple[Operator, list[Line]]:
    """An operator, and its two connections: for objects, and for the Lease."""
    lines: list[Line] = []

    def wrap(inner: KubeClient) -> KubeClient:
        lines.append(Line(inner))
        return cast(KubeClient, lines[-1])

    return environment.operator(wrap=wrap, pod_name=name, lease_times=lease_times), lines


async def has_deployment(environment: Environment, name: str) -> bool:
    return bool(await environment.children(DEPLOYMENTS, name))


async def test_standby_writes_nothing_and_takes_over_at_once_when_the_leader_stops(
    environment: Environment,
) -> None:
    first, _ = operator_with_lines(environment, "operator-0")
    second, lines = operator_with_lines(environment, "operator-1")
    async with kubelet(environment), AsyncExitStack() as standby:
        async with environment.running(first):
            await environment.until_leading(first)
            await standby.enter_async_context(environment.running(second))
            await environment.create("churn")
            await environment.until_service("churn", is_ready, "Ready")

            async def is_warm() -> bool:
                return second.synced.is_set()

            await environment.until("full stores of the standby", is_warm)
            assert lines[0].written == []
        await environment.until_leading(second)
        await environment.create("fraud")
        await environment.until_service("fraud", is_ready, "Ready")
        assert lines[0].written


async def test_leader_cut_off_from_its_lease_is_silent_before_the_other_one_writes(
    environment: Environment,
) -> None:
    first, first_lines = operator_with_lines(environment, "operator-0", RUNS_OUT_SOON)
    second, second_lines = operator_with_lines(environment, "operator-1", RUNS_OUT_SOON)
    async with ended_by_loss(first) as lost, environment.running(second, after=first):
        await environment.create("churn-0")
        await environment.until("a Deployment", lambda: has_deployment(environment, "churn-0"))
        # Only the Lease is out of reach: the leader could go on writing everything else, were it not fenced.
        first_lines[1].cut = True
        for number in range(1, 1000):
            await environment.create(f"churn-{number}")
            await asyncio.sleep(0.25)
            if second_lines[0].written:
                break
        await environment.until_leading(second)
        await environment.until("a Deployment", lambda: has_deployment(environment, f"churn-{number}"))
        assert await lost
    assert max(first_lines[0].written) < min(second_lines[0].written)


@asynccontextmanager
async def ended_by_loss(operator: Operator) -> AsyncIterator[Awaitable[bool]]:
    """Run an operator until it ends by itself; the value tells whether it was for the loss of its Lease."""

    async def run() -> bool:
        try:
            await operator.run(asyncio.Event())
        except ExceptionGroup as ended:
            # Whoever notices first: the renewal, or the fence before a write.
            return ended.subgroup((LeadershipLost, NotLeaderError)) is not None
        return False

    async with beside(run()) as task:
        yield task
