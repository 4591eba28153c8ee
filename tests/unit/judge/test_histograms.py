"""What a histogram's buckets tell of a bound, whichever Prometheus wrote their edges."""

from collections.abc import Mapping

import pytest
from tailbound.judge.histograms import split
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series, Value


def buckets(counts: Mapping[str, float], **labels: str) -> list[Series]:
    """Cumulative counts by the text of their edge."""
    return [Series({"le": edge, **labels}, (Value(1.0, count),)) for edge, count in counts.items()]


OF_2 = {"0.25": 5, "1": 8, "2.5": 9, "+Inf": 10}
OF_3 = {"0.25": 5, "1.0": 8, "2.5": 9, "+Inf": 10}
OF_OTHERS = {"2.5e-01": 5, "1e+00": 8, "2.50": 9, "Inf": 10}


@pytest.mark.parametrize("counts", [OF_2, OF_3, OF_OTHERS], ids=["Prometheus 2", "Prometheus 3", "others"])
@pytest.mark.parametrize(("edge", "bad"), [(0.25, 5), (1, 2), (2.5, 1)])
def test_edges_are_numbers(counts: Mapping[str, float], edge: float, bad: float) -> None:
    assert split(buckets(counts), edge) == {"bad{}": bad, "total{}": 10}


def test_each_pod_has_a_histogram_of_its_own() -> None:
    both = buckets(OF_2, pod="a") + buckets({"1": 1, "+Inf": 4}, pod="b")
    assert split(both, 1) == {"bad{pod=a}": 2, "total{pod=a}": 10, "bad{pod=b}": 3, "total{pod=b}": 4}


def test_a_histogram_that_is_not_there_yet_has_counted_nothing() -> None:
    assert split([], 1) == {}


@pytest.mark.parametrize(
    ("series", "edge", "reason"),
    [
        pytest.param(
            buckets(OF_2),
            0.3,
            "no bucket of the histogram ends at 0.3: write one of its edges for above (0.25, 1, 2.5, inf)",
            id="between-two-edges",
        ),
        pytest.param(buckets({"1": 8}), 1, "(1)", id="without-all-of-its-values"),
        pytest.param([Series({}, (Value(1.0, 3),))], 1, "something else than buckets", id="no-buckets"),
        pytest.param(buckets({"fast": 8}), 1, "something else than buckets", id="an-edge-that-is-no-number"),
    ],
)
def test_what_no_bucket_tells_is_refused_with_what_there_is(
    series: list[Series], edge: float, reason: str
) -> None:
    found = split(series, edge)
    assert isinstance(found, Unknown)
    assert reason in found.reason
