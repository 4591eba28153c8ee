"""What tenants ask of Prometheus: of their own namespace alone, and at nobody's cost but their own."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tailbound.controller import tenant_queries
from tailbound.controller.tenant_queries import BURST_SECONDS, SHARE, TenantQueries
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series

SERIES = (Series({"a": "b"}, ()),)


@dataclass
class Slow:
    """Answers after so many seconds of a clock of its own; what is `stuck` is never answered."""

    clock: float = 0.0
    seconds: float = 0.1
    asked: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.clock

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        self.asked.append(expression)
        if expression.startswith("stuck"):
            self.clock += self.seconds
            await asyncio.Event().wait()
        self.clock += self.seconds
        return SERIES


async def test_each_namespace_is_asked_about_itself() -> None:
    prometheus = Slow()
    found = await TenantQueries(prometheus, prometheus.now).answers({"risk": ["a"], "ads": ["a", "{"]})
    assert prometheus.asked == ['a{namespace="risk"}', 'a{namespace="ads"}']
    assert (found["risk"], found["ads"]["a"]) == ({"a": SERIES}, SERIES)
    refused = found["ads"]["{"]
    assert isinstance(refused, Unknown)
    assert "cannot be confined to namespace ads" in refused.reason


async def test_a_slow_query_costs_no_other_namespace_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_queries, "ROUND_SECONDS", 0.05)
    prometheus = Slow()
    queries = TenantQueries(prometheus, prometheus.now)
    asked = {"slow": ["stuck", "a", "b"], "risk": ["a"]}
    rounds = [await queries.answers(asked) for _ in range(3)]
    assert [each["risk"] for each in rounds] == [{"a": SERIES}] * 3
    answered = [{query for query, answer in each["slow"].items() if answer == SERIES} for each in rounds]
    assert set().union(*answered) == {"a", "b"}
    late = rounds[0]["slow"]["stuck"]
    assert isinstance(late, Unknown)
    assert "take Prometheus more than" in late.reason


async def test_who_has_used_up_its_share_is_asked_again_once_it_has_some() -> None:
    prometheus = Slow(seconds=BURST_SECONDS)
    queries = TenantQueries(prometheus, prometheus.now)
    assert (await queries.answers({"risk": ["a"]}))["risk"] == {"a": SERIES}
    over = (await queries.answers({"risk": ["a"], "ads": ["a"]}))["risk"]["a"]
    assert isinstance(over, Unknown)
    assert "share of Prometheus' time, 20%" in over.reason
    prometheus.clock += 1 / SHARE
    assert (await queries.answers({"risk": ["a"]}))["risk"] == {"a": SERIES}
