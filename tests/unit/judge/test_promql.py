"""How far back a query looks, and which functions make up events."""

import pytest
from tailbound.judge.metrics import looks_back, rates
from tailbound.objects.unknown import Unknown

from tests.unit.judge.metric_answers import metric


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        pytest.param("accuracy", 0, id="newest-samples"),
        pytest.param("sum(rate(bad[5m])) / sum(rate(all[30s]))", 300, id="longest-range"),
        pytest.param("increase(bad[1h30m])", 5400, id="two-units"),
        pytest.param("rate(bad[ 500ms ])", 0.5, id="blanks"),
        pytest.param("rate(bad[300])", 300, id="bare-seconds"),
        pytest.param("max_over_time(rate(bad[5m])[10m:1m])", 900, id="subquery"),
        pytest.param("avg_over_time(accuracy[10m:])", 600, id="subquery-without-a-step"),
        pytest.param("rate(bad[5m] offset 1h)", 300, id="offset"),
        pytest.param('rate(bad{path=~"[0-9]+[9h]"}[1m])', 60, id="brackets-in-a-matcher"),
        pytest.param("rate(bad{a='\\'[2h]',b=`[1h]`}[1m]) # [3h]", 60, id="other-quotes-and-comments"),
        pytest.param("job:errors:rate5m / job:requests:rate5m", 300, id="recording-rule"),
        pytest.param("job:latency:p99_10m", 600, id="recording-rule-of-a-quantile"),
        pytest.param("job:m3d:ratio", 0, id="recording-rule-without-a-range"),
    ],
)
def test_a_query_looks_back_as_far_as_its_ranges_say(expression: str, seconds: float) -> None:
    assert looks_back(expression) == seconds


@pytest.mark.parametrize("expression", ["rate(a[$range])", "rate(a[])", "rate(a[5m:x])", "a[step() * 2]"])
def test_a_range_that_cannot_be_read_is_named(expression: str) -> None:
    found = looks_back(expression)
    assert isinstance(found, Unknown)
    assert "write one such as [5m]" in found.reason


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        pytest.param("errors_total", "", id="as-it-is"),
        pytest.param("sum by (pod) (errors_total{job='rate(x)'})", "", id="in-a-matcher"),
        pytest.param("last_over_time(errors_total[1m])", "", id="the-newest-of-a-while"),
        pytest.param("sum(rate(errors_total[1m]))", "rate", id="rate"),
        pytest.param("increase (errors_total[1m])", "increase", id="increase"),
        pytest.param("sum_over_time(errors[1m])", "sum_over_time", id="sum-over-time"),
    ],
)
def test_functions_that_make_no_counter_of_a_counter_are_named(expression: str, function: str) -> None:
    assert rates(iter(["requests_total", expression])) == function


@pytest.mark.parametrize(
    ("query", "interval", "seconds"),
    [("rate(a[5m])", "30s", 300), ("rate(a[30s])", "5m", 300), ("accuracy", "30s", 30)],
)
def test_values_are_as_far_apart_as_they_must_be(query: str, interval: str, seconds: float) -> None:
    assert metric(query=query, max=0.5, interval=interval).interval_seconds == seconds
