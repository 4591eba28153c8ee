"""Asks Prometheus the queries of analysis.metrics: one at a time for each namespace, within a share of time.

A query sees the series of its own namespace alone (see `judge.confinement`). Of one namespace, one query is
under way at a time, all of a round's are given up after ROUND_SECONDS, and what they cost is taken from the
namespace's share of Prometheus' time: SHARE of the time that passes, of which BURST_SECONDS can be saved up.
A namespace without a share left is not asked for until it has some again, and no other namespace waits.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tailbound.controller.share import Shares
from tailbound.judge.confinement import confined
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import TIMEOUT_SECONDS, Queries, Series

ROUND_SECONDS: Final = TIMEOUT_SECONDS
SHARE: Final = 0.2
BURST_SECONDS: Final = 10.0
MOST_BYTES: Final = 2**18
"""The size of an answer that is read: it is to be one value, and thousands of series are none."""

Answer: TypeAlias = tuple[Series, ...] | Unknown


@dataclass
class TenantQueries:
    """The queries of all namespaces, through a client that serves nothing else."""

    prometheus: Queries
    now: Callable[[], float]
    """Seconds of a clock that is never set back."""
    _shares: Shares = field(default_factory=lambda: Shares(SHARE, BURST_SECONDS))
    _rounds: int = 0

    async def answers(self, asked: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Answer]]:
        """The answers to the queries of each namespace. Of those that take too long, the reason."""
        self._rounds += 1
        found = await asyncio.gather(*(self._of(each, queries) for each, queries in asked.items()))
        return dict(zip(asked, found, strict=True))

    async def _of(self, namespace: str, queries: Sequence[str]) -> dict[str, Answer]:
        if self._shares.left(namespace, self.now()) <= 0:
            return dict.fromkeys(queries, _over(namespace))
        late = Unknown(
            f"the metrics of namespace {namespace} take Prometheus more than {ROUND_SECONDS:g} s: "
            "write cheaper queries"
        )
        found: dict[str, Answer] = dict.fromkeys(queries, late)
        # Each time another one is first, so that a slow one does not keep the same others unanswered.
        first = self._rounds % max(len(queries), 1)
        began = self.now()
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                for query in (*queries[first:], *queries[:first]):
                    text = confined(query, namespace)
                    found[query] = text if isinstance(text, Unknown) else await self.prometheus.query(text)
        except TimeoutError:
            pass  # those that are left have the reason
        finally:
            self._shares.use(namespace, self.now() - began, self.now())
        return found


def _over(namespace: str) -> Unknown:
    return Unknown(
        f"the metrics of namespace {namespace} have used up their share of Prometheus' time, {SHARE:.0%}: "
        "they are asked again in a while; write cheaper queries"
    )
