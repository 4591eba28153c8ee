"""Metrics of the user's own: what is asked of Prometheus, and what their bounds mean."""

from typing import Any

import pytest
from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.metric_evidence import judge
from tailbound.judge.metrics import metric_of

from tests.unit.judge.metric_answers import NAMES, metric, value, watched


@pytest.mark.parametrize(
    ("fields", "queries"),
    [
        pytest.param(
            {
                "query": 'avg(a{revision="$revision",svc=~"$service$"}) / avg(a{revision="$stable"})',
                "max": 0.5,
            },
            ['avg(a{revision="churn-r2",svc=~"churn$"}) / avg(a{revision="churn-r1"})'],
            id="it-compares-by-itself",
        ),
        pytest.param(
            {"query": "a{namespace='$namespace',x='$other'}", "max": 0.5},
            ["a{namespace='risk',x='$other'}"],
            id="it-is-not-of-a-revision",
        ),
        pytest.param(
            {"query": "a{r='$revision'}", "max": 0.5},
            ["a{r='churn-r2'}", "a{r='churn-r1'}"],
            id="it-can-be-asked-of-both",
        ),
        pytest.param(
            {"bad": "b{r='$revision'}", "total": "t", "max": 0.1},
            [
                'label_replace((b{r=\'churn-r2\'}), "tailbound_part", "bad", "", "") or '
                'label_replace((t), "tailbound_part", "total", "", "")'
            ],
            id="only-one-counter-can-be-asked-of-both",
        ),
        pytest.param(
            {"bad": "b{r='$revision'}", "total": "t{r='$revision'}", "max": 0.1},
            [
                'label_replace((b{r=\'churn-r2\'}), "tailbound_part", "bad", "", "") or '
                'label_replace((t{r=\'churn-r2\'}), "tailbound_part", "total", "", "") or '
                'label_replace((b{r=\'churn-r1\'}), "tailbound_part", "stable_bad", "", "") or '
                'label_replace((t{r=\'churn-r1\'}), "tailbound_part", "stable_total", "", "")'
            ],
            id="all-counters-of-both-in-one-evaluation",
        ),
        pytest.param(
            {"histogram": "h_bucket{r='$revision'}", "above": 0.25, "max": 0.1},
            [
                'label_replace((h_bucket{r=\'churn-r2\'}), "tailbound_part", "buckets", "", "") or '
                'label_replace((h_bucket{r=\'churn-r1\'}), "tailbound_part", "stable_buckets", "", "")'
            ],
            id="a-histogram-of-both-in-one-evaluation",
        ),
    ],
)
def test_queries_get_the_names_of_the_rollout(fields: dict[str, Any], queries: list[str]) -> None:
    made = metric(**fields)
    assert list(made.queries) == queries
    assert made.compared == ("churn-r1" in queries[-1] and "$stable" not in str(fields))


def test_without_a_stable_revision_nothing_is_compared() -> None:
    spec = AnalysisMetric.model_validate({"name": "m", "query": "a{r='$revision'}", "max": 0.5})
    made = metric_of(spec, {**NAMES, "stable": ""})
    assert (made.queries, made.compared) == (("a{r='churn-r2'}",), False)


@pytest.mark.parametrize(
    ("fields", "number", "badness", "allowed"),
    [
        pytest.param({"query": "q", "max": 0.2}, 0.5, 0.5, 0.2, id="max"),
        pytest.param({"query": "q", "min": 0.9}, 0.8, 0.2, 0.1, id="min"),
        pytest.param({"query": "q", "max": 30, "range": {"low": 20, "high": 40}}, 25, 0.25, 0.5, id="range"),
        pytest.param(
            {"query": "q", "min": 30, "range": {"low": 20, "high": 40}}, 25, 0.75, 0.5, id="min-of-it"
        ),
    ],
)
def test_every_bound_is_one_of_badness(
    fields: dict[str, Any], number: float, badness: float, allowed: float
) -> None:
    made = metric(**fields)
    assert made.badness(number) == pytest.approx(badness)
    assert made.allowed == pytest.approx(allowed)
    found = judge(made, watched(made, value(number)), AnalysisPolicy.BOTH, 1, stable_serves=True)
    assert found.judged == 1
    assert found.bad == pytest.approx(badness)
    assert found.mean == pytest.approx(number)


def test_without_a_sample_there_is_no_mean() -> None:
    found = judge(
        metric(), None, AnalysisPolicy.BOTH, 1, stable_serves=True, missing="the query gives no value"
    )
    assert (found.mean, found.judged, found.missing) == (None, 0, "the query gives no value")
