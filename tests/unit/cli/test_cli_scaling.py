"""Why there are so many pods."""

from typing import Any

import pytest
from tailbound.cli.scaling import scaling_lines
from tailbound.cli.subject import service_of
from tailbound.cli.why import why

from tests.unit.cli.cli_objects import R2, condition, service, subject

AUTOMATIC = {"min": 2, "max": 9}
TOLD: dict[str, Any] = {
    "revision": R2,
    "share": 100,
    "replicas": 7,
    "needed": 7.0,
    "arrivalsPerSecond": 51.2,
    "forecastPerSecond": 60.0,
    "capacityPerSecond": 9.5,
    "rule": "Forecast",
    "message": "Grown to what the forecast needs.",
    "arithmetic": "7 = ceil(forecast 60 / (capacity 9.5 * usage 0.88 * correction 0.99))",
}


def lines(scaling: dict[str, Any], status: dict[str, Any] | None = None) -> list[str]:
    raw = service()
    raw["spec"] |= {"scaling": scaling, "sla": {"latency": {"p99": "200ms"}}}
    raw["status"] |= status or {}
    return "\n".join(scaling_lines(service_of(raw))).splitlines()


@pytest.mark.parametrize(
    ("scaling", "line"),
    [
        ({"min": 3}, "pods: 3, as the spec asks for."),
        ({"mode": "external", "replicas": 4}, "pods: 4, as the scale subresource asks for."),
        (AUTOMATIC, "pods: there is no decision yet; their number does not change."),
    ],
)
def test_who_decides(scaling: dict[str, Any], line: str) -> None:
    assert lines(scaling) == [line]


LEFT = (
    "  never fewer than 5: spec.scaling.replicas is 5, as kubectl scale or a HorizontalPodAutoscaler, which "
    "may be gone, has left it; kubectl scale infs churn --replicas=1 -n risk leaves it to "
    "spec.scaling.min, which is {}."
)


def test_a_floor_that_was_left_behind_is_named() -> None:
    fixed = lines({"min": 3, "replicas": 5})
    assert fixed == ["pods: 5, as spec.scaling.replicas asks for.", LEFT.format(3)]
    assert lines({**AUTOMATIC, "replicas": 5}, {"scaling": {"revisions": [TOLD]}})[-1] == LEFT.format(2)


def test_a_scale_under_min_says_that_min_counts() -> None:
    assert lines({"min": 3, "replicas": 2}) == [
        "pods: 3, as the spec asks for.",
        "  spec.scaling.replicas is 2, but spec.scaling.min is 3: lower min to get fewer pods.",
    ]


def test_the_figures_behind_a_decision_and_the_rule_that_won() -> None:
    assert lines(AUTOMATIC, {"scaling": {"revisions": [TOLD]}}) == [
        f"pods of {R2}: 7 (Forecast). Grown to what the forecast needs.",
        "  7 = ceil(forecast 60 / (capacity 9.5 * usage 0.88 * correction 0.99)).",
        "  arrivals: 51.2 requests a second, for 100% of the requests.",
        "  forecast: 60 a second by the time that a further pod is ready.",
        "  capacity: 9.5 a second for each pod.",
        "  needed for the P99 target: 7 pods.",
    ]


def test_what_is_not_as_it_should_be_is_told_and_the_rest_is_not() -> None:
    told = {**TOLD, "limitedBy": "Quota", "capacityPerSecond": None, "arithmetic": ""}
    found = lines(
        AUTOMATIC,
        {
            "scaling": {"revisions": [told]},
            "conditions": [
                condition("SLAMet", "True", "WithinTarget", "fine"),
                condition("ScalingLimited", "True", "QuotaExceeded", "raise the quota"),
                condition("MetricsStale", "False", "MetricsFresh", "fine"),
            ],
        },
    )
    assert found[0] == f"pods of {R2}: 7 (Forecast, limited by Quota). Grown to what the forecast needs."
    assert found[3] == "  capacity: unknown."
    assert found[-1] == "  ScalingLimited is True (QuotaExceeded): raise the quota."
    assert len(found) == 6


def test_why_tells_of_the_rollout_and_then_of_the_pods() -> None:
    assert why(subject()).splitlines()[-1] == "pods: 1, as the spec asks for."
