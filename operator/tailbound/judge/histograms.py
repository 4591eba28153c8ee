"""Events on either side of an edge of a histogram's buckets.

A histogram says nothing of a bound between two edges, and guessing how values spread within a bucket would
judge a revision by what was not measured.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series

_EDGE = "le"


def split(buckets: Iterable[Series], edge: float) -> dict[str, float] | Unknown:
    """Counters of the values above `edge` and of all, "bad{…}" and "total{…}", by the buckets' other labels.

    Edges are compared as numbers: Prometheus 3 writes "1.0" where 2 wrote "1".
    """
    histograms: dict[str, dict[float, float]] = defaultdict(dict)
    for series in (each for each in buckets if each.values):
        labels = ",".join(f"{name}={value}" for name, value in sorted(series.labels.items()) if name != _EDGE)
        try:
            below = float(series.labels[_EDGE])
        except (KeyError, ValueError):
            return Unknown("the query for histogram gives something else than buckets with a label le")
        histograms[labels][below] = series.values[-1].number
    found: dict[str, float] = {}
    for labels, counts in histograms.items():
        if edge not in counts or inf not in counts:
            edges = ", ".join(f"{each:g}" for each in sorted(counts))
            return Unknown(
                f"no bucket of the histogram ends at {edge:g}: write one of its edges for above ({edges})"
            )
        found[f"bad{{{labels}}}"] = counts[inf] - counts[edge]
        found[f"total{{{labels}}}"] = counts[inf]
    return found
