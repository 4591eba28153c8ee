"""The metrics of foreign servers: each revision's by its own runtime's mapping, and nobody else's."""

from dataclasses import dataclass, field
from typing import Any

import promql_parser
import pytest
from tailbound.api.server_metrics import ServerMetrics, metrics_of, metrics_text
from tailbound.autoscale.model import BATCH_WINDOW, BatchSums, Known
from tailbound.controller.server_signals import (
    AT_ONCE,
    MOST_MAPPINGS,
    Part,
    ServerReading,
    expressions_of,
    take,
)
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import RevisionName, Series, Value

AT = 1_000_000.0
TRITON = ServerMetrics(
    requests="r", rows="n", batches="b", request_time=("in_us", "out_us"), unit="microseconds", queue="q"
)
MINE = RevisionName("risk", "churn", "churn-r1")
OTHERS = RevisionName("ads", "rank", "rank-r1")


def mapping(**fields: Any) -> ServerMetrics:
    return ServerMetrics.model_validate({"requests": "r", "requestTime": ["s"], **fields})


@dataclass
class Prometheus:
    """Answers each part with the same number for every revision."""

    values: dict[Part, float] = field(
        default_factory=lambda: {
            Part.REQUESTS: 40.0,
            Part.ROWS: 40.0,
            Part.BATCHES: 10.0,
            Part.SECONDS: 4e6,
            Part.PODS: 2.0,
            Part.QUEUE: 20.0,
        }
    )
    revisions: tuple[RevisionName, ...] = (MINE, OTHERS)
    asked: list[str] = field(default_factory=list)

    async def query(
        self, expression: str, *, timeout_seconds: float | None = None
    ) -> tuple[Series, ...] | Unknown:
        self.asked.append(expression)
        return tuple(
            Series({**name._asdict(), "signal": f"{number}/{part}"}, (Value(AT, value),))
            for name in self.revisions
            for part, value in self.values.items()
            for number in range(AT_ONCE)
            if f'"{number}/{part}"' in expression
        )


async def of(prometheus: Prometheus, metrics: ServerMetrics) -> ServerReading:
    found = (await take(prometheus, {MINE: metrics}, 2.0)).of(MINE)
    assert found is not None
    return found


async def test_a_mapped_server_teaches_in_its_own_words() -> None:
    reading = await of(Prometheus(), TRITON)
    assert reading == (Known(BatchSums(BATCH_WINDOW, 40, 10, 40, 160, 1.0, 4.0), AT), Known(12.0, AT))
    assert (await take(Prometheus(), {MINE: TRITON}, 2.0)).of(OTHERS) is None


@pytest.mark.parametrize("part", list(Part))
async def test_a_metric_that_nobody_exports_is_unknown_by_its_name(part: Part) -> None:
    prometheus = Prometheus()
    del prometheus.values[part]
    reading = await of(prometheus, TRITON)
    missing = reading.waiting if part is Part.QUEUE else reading.batches
    assert isinstance(missing, Unknown)
    names = {Part.REQUESTS: "r", Part.ROWS: "n", Part.BATCHES: "b", Part.PODS: "r", Part.QUEUE: "q"}
    assert f"series of {names.get(part, 'in_us + out_us')} of the pods of churn-r1" in missing.reason
    assert isinstance(reading.batches, Known) is (part is Part.QUEUE)


def test_every_selector_is_confined_to_serving_pods_of_the_namespaces_that_map_it() -> None:
    names = mapping(requests='sum{le="a b"}', batches="inf", queue="by", rows="offset")
    for expression in expressions_of(names, {"risk", "ads"}).values():
        selectors: list[promql_parser.VectorSelector] = []

        def visit(part: Any, found: list[promql_parser.VectorSelector] = selectors) -> bool:
            found.extend([part] if isinstance(part, promql_parser.VectorSelector) else [])
            return True

        promql_parser.walk(promql_parser.parse(expression), visit)
        assert selectors
        for selector in selectors:
            matchers = {(each.name, each.value) for each in selector.matchers.matchers}
            assert {("job", "tailbound-serving"), ("namespace", "ads|risk")} <= matchers, expression


async def test_a_tenant_with_hundreds_of_mappings_takes_no_place_of_another_ones() -> None:
    flood = {
        RevisionName("flood", f"s{number}", "r"): mapping(requests=f"a{number:04}") for number in range(200)
    }
    prometheus = Prometheus(revisions=(MINE, *flood))
    found = await take(prometheus, {**flood, MINE: mapping(requests="zz")}, 2.0)
    mine = found.of(MINE)
    assert mine is not None
    assert isinstance(mine.batches, Known)
    assert len(prometheus.asked) == MOST_MAPPINGS / AT_ONCE
    assert max(map(len, prometheus.asked)) < 12_000
    lost = [found.of(name) for name in flood]
    unknown = [each.batches.reason for each in lost if each and isinstance(each.batches, Unknown)]
    assert len(unknown) == len(flood) - MOST_MAPPINGS + 1
    assert all("more than 48 different sets of metrics" in reason for reason in unknown)


@pytest.mark.parametrize(
    "foreign",
    [
        None,
        "",
        "{",
        "[]",
        '{"requests": "a"}',
        '{"requests": "a} or vector(1)", "requestTime": ["s"]}',
        '{"requests": "a{__name__=\\"b\\"}", "requestTime": ["s"]}',
        '{"requests": "a", "requestTime": ["s"], "path": "//[x"}',
        f'{{"requests": "a", "requestTime": ["s"]{" " * 4096}}}',
    ],
)
def test_an_annotation_that_tailbound_did_not_write_maps_nothing(foreign: str | None) -> None:
    assert metrics_of(foreign) is None
    assert metrics_of(metrics_text(TRITON)) == TRITON
    longest = 'a{b="' + "x" * 193 + '"}'
    whole = dict.fromkeys(("requests", "rows", "batches", "queue"), longest)
    mapping = ServerMetrics.model_validate(
        {**whole, "batchTime": [longest] * 4, "path": "/" + "p" * 127, "unit": "microseconds"}
    )
    assert metrics_of(metrics_text(mapping)) == mapping
