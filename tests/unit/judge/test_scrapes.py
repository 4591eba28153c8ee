"""Readings out of scrapes: what Prometheus can get wrong is no data, and never a request."""

from collections.abc import Mapping

import pytest
from tailbound.judge.counters import Classes, Reading
from tailbound.judge.scrapes import expression, readings, unread
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series, Value

SERVICE = ("risk", "churn")
STARTED, STARTED_TEXT = 1_764_300_000.0, "2025-11-28T03:20:00+00:00"
Samples = Mapping[float, float]


def start(samples: Samples, pod: str = "gw-0", **labels: str) -> Series:
    """The start time of one gateway's Envoy, by the time of the scrape."""
    names = {"__name__": "tailbound_gateway_envoy_start_time_seconds", "pod": pod, **labels}
    return Series(names, tuple(Value(at, number) for at, number in samples.items()))


def requests(
    samples: Samples, class_: str = "good", revision: str = "r2", pod: str = "gw-0", **labels: str
) -> Series:
    """Counted requests by the time of the scrape."""
    names = {
        "__name__": "tailbound_requests_total",
        "namespace": "risk",
        "service": "churn",
        "revision": revision,
        "class": class_,
        "pod": pod,
        **labels,
    }
    return Series(names, tuple(Value(at, number) for at, number in samples.items()))


def read(*scraped: Series) -> Reading | Unknown:
    """The reading of the one gateway."""
    return readings(scraped, SERVICE, ["gw-0"])["gw-0"]


@pytest.mark.parametrize(
    ("scraped", "counted"),
    [
        pytest.param([start({100: STARTED})], {}, id="nothing-was-counted-yet"),
        pytest.param(
            [start({98: STARTED, 100: STARTED}), requests({98: 5, 100: 7})],
            {"r2": Classes(good=7)},
            id="the-newest-scrape-counts",
        ),
        pytest.param(
            [start({100: STARTED}), requests({100: 7}), requests({100: 2}, "slow", "r1")],
            {"r1": Classes(slow=2), "r2": Classes(good=7)},
            id="a-class-that-is-not-there-yet-has-counted-nothing",
        ),
        pytest.param(
            [start({98: STARTED, 100: STARTED}), requests({98: 7})],
            {"r2": Classes()},
            id="a-sample-of-an-earlier-scrape-is-not-of-this-one",
        ),
        pytest.param(
            [start({100: STARTED}), requests({100: 7, 101: 9})],
            {"r2": Classes(good=7)},
            id="a-sample-of-another-replica-s-later-scrape-is-not-of-this-one",
        ),
        pytest.param(
            [
                start({100: STARTED}),
                requests({100: 1}, namespace="ads"),
                requests({100: 1}, service="other"),
                requests({100: 1}, "mirrored"),
                requests({100: 1}, pod="gw-1"),
            ],
            {},
            id="others-requests-and-unknown-classes",
        ),
    ],
)
def test_one_scrape_is_one_reading(scraped: list[Series], counted: Mapping[str, Classes]) -> None:
    assert read(*scraped) == Reading(STARTED_TEXT, counted)


@pytest.mark.parametrize(
    "scraped",
    [
        pytest.param([], id="never-scraped-or-not-lately"),
        pytest.param([start({})], id="a-start-time-without-a-sample"),
        pytest.param([requests({100: 7})], id="counters-without-a-start-time"),
        pytest.param([start({100: STARTED}, pod="gw-1")], id="another-pod-s-start-time"),
        pytest.param(
            [start({100: STARTED}, replica="a"), start({101: STARTED}, replica="b")],
            id="two-replicas-that-are-not-deduplicated",
        ),
        pytest.param(
            [start({100: STARTED}), requests({100: 7}, job="a"), requests({100: 7}, job="b")],
            id="one-counter-twice",
        ),
    ],
)
def test_what_is_not_one_fresh_scrape_is_unknown(scraped: list[Series]) -> None:
    reading = read(*scraped)
    assert isinstance(reading, Unknown)
    assert unread({"gw-0": reading}) == "Prometheus has no scrape of gw-0 within 30 s"


def test_every_gateway_that_must_be_read_is_answered_for() -> None:
    found = readings([start({100: STARTED})], SERVICE, ["gw-0", "gw-1"])
    assert found == {"gw-0": Reading(STARTED_TEXT, {}), "gw-1": Unknown("it was not scraped lately")}
    assert unread({"gw-0": found["gw-0"]}) == ""


def test_one_expression_asks_for_all_services() -> None:
    asked = expression([("risk", "churn"), ("ads", "rank-1"), ("ads", "churn")])
    assert asked == (
        '{__name__=~"tailbound_requests_total|tailbound_gateway_envoy_start_time_seconds",'
        'job="tailbound-gateways",service=~"|churn|rank-1"}[30s]'
    )
