"""Which of a foreign server's own metrics tell how much it can do.

The mapping is an annotation of the pods of a revision, as a runtime may be edited while old pods serve. What
is read back from there may have been written by anybody, and passes the same rules again.
"""

import json
import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, ClassVar, Final

from pydantic import Field, StringConstraints, ValidationError

from tailbound.api.schema import ATOMIC, InOrder, Model, Rule, cel_string, matches

DEFAULT_METRICS_PATH: Final = "/metrics"
_LONGEST_TEXT: Final = 4096
"""Characters of a stored mapping. Tailbound writes at most about 2,000; longer annotations are not read,
because those that were read stay in memory."""

_SCRAPE_LABELS: Final = "namespace|service|revision|pod|instance|job"
_NAME: Final = "[a-zA-Z_:][a-zA-Z0-9_:]*"
_MATCHER: Final = '_?[a-zA-Z][a-zA-Z0-9_]*="[-A-Za-z0-9_.:/+@ ]*"'
_SELECTOR: Final = rf"{_NAME}(?:\{{{_MATCHER}(?:,{_MATCHER}){{0,3}}\}})?"
_NAMES_A_SCRAPE: Final = re.compile(f"[{{,](?:{_SCRAPE_LABELS})=")

Selector = Annotated[
    str,
    StringConstraints(max_length=200),
    InOrder(
        matches(
            _SELECTOR,
            "'{value}' is not a metric: write its name, and up to four labels that it must have, for example "
            'requests_total or requests_total{model="churn",code="200"}',
        ),
        Rule(
            cel=f"!self.matches({cel_string(_NAMES_A_SCRAPE.pattern)})",
            holds=lambda text: _NAMES_A_SCRAPE.search(text) is None,
            message="'{value}' has a label that Prometheus sets itself, and only metrics of the pods with "
            "this runtime are read: remove it, or write exported_ before it for the label that the server "
            "sets",
        ),
    ),
]


MetricsPath = Annotated[
    str,
    StringConstraints(max_length=128),
    matches(
        r"/[-A-Za-z0-9._~/]*",
        "'{value}' is not the path of metrics: write it from its first slash on, for example /metrics",
    ),
]


Times = Annotated[tuple[Selector, ...], Field(min_length=1, max_length=4), ATOMIC]


class TimeUnit(StrEnum):
    """The unit of a counter of time."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


SECONDS_OF: Final = {
    TimeUnit.SECONDS: 1.0,
    TimeUnit.MILLISECONDS: 1e-3,
    TimeUnit.MICROSECONDS: 1e-6,
    TimeUnit.NANOSECONDS: 1e-9,
}


class ServerMetrics(Model):
    """The server's own metrics from which the number of pods is reckoned. All but queue are counters.

    A metric is written as its name, or with labels that it must have, such as requests_total{model="churn"}.
    Several series of a pod count as their sum. Without these metrics, capacity is reckoned from what the
    gateways see.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.batchTime) != has(self.requestTime)",
            holds=lambda it: (it.batch_time is None) != (it.request_time is None),
            message="these metrics need the time that inference takes, once: write batchTime, the sum over "
            "all batches, or requestTime, the sum over all requests",
        ),
        Rule(
            cel="!has(self.batchTime) || has(self.batches)",
            holds=lambda it: it.batch_time is None or it.batches is not None,
            message="batchTime is the time of all batches together, and without batches it is not known how "
            "many these are: add batches, or write requestTime",
        ),
    )

    path: MetricsPath = DEFAULT_METRICS_PATH
    """Path at which Prometheus reads them, at the port metrics or else http of the server."""

    requests: Selector
    """Requests that were answered."""

    rows: Selector | None = None
    """Rows of these requests. Default: each request has one."""

    batches: Selector | None = None
    """Batches that the model was run with. Default: requests run beside each other, each as long as it takes,
    and how many of them do follows from requestTime."""

    batch_time: Times | None = None
    """Time of all batches together: each batch counts once. Several metrics, such as one for each stage, are
    added."""

    request_time: Times | None = None
    """Time of inference of all requests together: a batch counts once for each request in it. With batches,
    the time in a queue must not be part of it. Several metrics are added."""

    unit: TimeUnit = TimeUnit.SECONDS
    """Unit of batchTime or requestTime."""

    queue: Selector | None = None
    """Requests that wait in the server now, a gauge. What waits for longer than one more batch is a backlog,
    for which pods are added."""


def metrics_text(metrics: ServerMetrics) -> str:
    """The mapping as it is stored in an annotation of the pod template: the same for equal mappings."""
    return json.dumps(metrics.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=True)


def metrics_of(text: str | None) -> ServerMetrics | None:
    """The mapping in that annotation; None where it is absent or not what Tailbound writes."""
    return None if text is None or len(text) > _LONGEST_TEXT else _read(text)


@lru_cache(maxsize=4096)
def _read(text: str) -> ServerMetrics | None:
    try:
        return ServerMetrics.model_validate_json(text)
    except ValidationError:
        return None
