"""Readings of the gateways out of what Prometheus scraped of them: raw samples, never rate() or increase().

Those extrapolate, and take an HA pair's step back for a reset: a few requests become many. So each gateway
pod's newest scrape is taken as it was: all of its samples have one and the same time, and what one gateway
process had counted then is the same reading that it would have given itself. The rest is for `increment`.

Prometheus holds no histogram that is read here: the counters are split at the SLA's bound by the gateway.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from tailbound.api.names import ENVOY_START_METRIC, GATEWAYS_JOB, REQUESTS_METRIC
from tailbound.judge.counters import Classes, Reading
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series

FRESH: Final = timedelta(seconds=30)
"""An older scrape says nothing about now. Gateways have to be scraped three times as often, to miss one."""

_CLASSES: Final = frozenset(Classes.__dataclass_fields__)


def expression(services: Iterable[tuple[str, str]]) -> str:
    """Fresh samples of these (namespace, name), and the start times of all gateways, in one evaluation."""
    names = "|".join(sorted({name for _, name in services}))
    window = int(FRESH.total_seconds())
    # A start time has no label `service`: it matches the empty alternative.
    wanted = f'__name__=~"{REQUESTS_METRIC}|{ENVOY_START_METRIC}",job="{GATEWAYS_JOB}",service=~"|{names}"'
    return f"{{{wanted}}}[{window}s]"


def readings(
    scraped: Iterable[Series], service: tuple[str, str], pods: Iterable[str]
) -> dict[str, Reading | Unknown]:
    """What each gateway pod had counted for one service at its newest scrape, by the pod's name.

    | start times of the pod in the window | its counters at the newest start time's own time | reading |
    |---|---|---|
    | none: not scraped, or not lately | any | Unknown |
    | of two scrapers | any | Unknown: which of them a counter is of is not known |
    | one series | two of one revision and class | Unknown |
    | one series | some | these; a class that is not there has counted nothing |
    | one series | none | nothing was counted |

    Samples of other times are of other scrapes: a series that ended, or that only another replica has yet.
    """
    by_pod: dict[str, list[Series]] = {}
    for series in scraped:
        by_pod.setdefault(series.labels.get("pod", ""), []).append(series)
    return {pod: _reading(by_pod.get(pod, ()), service) for pod in pods}


def _reading(scraped: Iterable[Series], service: tuple[str, str]) -> Reading | Unknown:
    scraped = tuple(scraped)
    starts = [series for series in scraped if series.labels.get("__name__") == ENVOY_START_METRIC]
    if not starts or not starts[0].values:
        return Unknown("it was not scraped lately")
    if len(starts) > 1:
        return Unknown("two scrapers have read it")
    at, start = starts[0].values[-1]
    counted: dict[str, dict[str, int]] = {}
    for series in scraped:
        labels = series.labels
        if labels.get("__name__") != REQUESTS_METRIC or labels.get("class") not in _CLASSES:
            continue
        if (labels.get("namespace"), labels.get("service")) != service:
            continue
        values = [number for time, number in series.values if time == at]
        of_revision = counted.setdefault(labels.get("revision", ""), {})
        if values and labels["class"] in of_revision:
            return Unknown("two series have the same revision and class")
        if values:
            of_revision[labels["class"]] = int(values[0])
    # As the gateway itself writes it: to read from elsewhere is no restart.
    started = datetime.fromtimestamp(start, UTC).isoformat()
    return Reading(started, {revision: Classes(**classes) for revision, classes in counted.items()})


def unread(pods: Mapping[str, Reading | Unknown]) -> str:
    """Which gateway pods have no fresh scrape, in words; empty if all have."""
    missing = sorted(pod for pod, reading in pods.items() if isinstance(reading, Unknown))
    seconds = int(FRESH.total_seconds())
    return f"Prometheus has no scrape of {missing[0]} within {seconds} s" if missing else ""
