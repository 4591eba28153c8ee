"""Counting requests by class, in Envoy: what is counted, and how each request finds its one class.

One access logger adds 1 to one counter when a request ends. The class is a tag of that counter, and the tag
is one CEL expression in which the first true condition decides: no request can be in two classes, and each
costs one evaluation. The latency bound is in the metadata of the route, so that a changed SLA is a changed
route and never a changed listener. First match wins:

| how the request ended                                              | in time   | late     |
|--------------------------------------------------------------------|-----------|----------|
| answered by a pod, and no inference call                           | other     | other    |
| no inference call, and not answered by a pod                       | not counted          |
| a pod refused or failed it, but its body was slow                  | abandoned | abandoned |
| refused by a pod as it would be late; spec.overload is shed        | shed      | shed     |
| refused by the gateway as it would be late (see `shedding`)        | shed      | shed     |
| answered by a pod with 5xx, or with gRPC status 2, 4, 13, 14, 15   | failed    | failed   |
| answered by a pod with neither 2xx nor 5xx, or gRPC status but 0   | other     | other    |
| answered by a pod in any other way                                 | good      | slow     |
| the service's timeout passed, or the answer stood still            | timed out | timed out |
| 5xx was begun or made up: no pod, refused, reset                   | failed    | failed   |
| the answer broke off                                               | failed    | failed   |
| the client left, its own gRPC deadline passed, or it may not have read its answer | abandoned | slow |
| the same, before a pod had been given the whole request            | abandoned | abandoned |
| the gateway refused it: the body too large or never complete       | not counted          |
| the same: more under way than it holds, spec.overload is queue     | not counted          |

What has no revision is not counted either: an unknown host, a stopped service, one without a gRPC port. Nor
are requests to a preview, whose route names no namespace: they are no evidence of how a revision serves.
A request belongs to the revision whose cluster was drawn, whether or not a pod of it was reached.

Anybody may send requests, and no client may decide a verdict. So what says nothing about how a revision
serves is `other`, which counts for nothing: probes, metadata, and calls that the server found wrong. The time
of a request is the time that the pod had: from the arrival of the request's last byte to the last byte of the
answer, or to its first one where the answer is longer than LONG_BYTES and a client may hold it up. A body is
slow if it takes longer than the route's PATIENCE_FIELD: servers give up such requests in their own ways. A
gRPC stream is counted once, when it ends; one that is answered before its client closed it is in time. Late
is what took longer than spec.sla.latency.p99, or without one than the service's timeout.

Counters start from zero with Envoy. One that has counted nothing for one to two EVICTION_INTERVALs leaves it,
which is how those of removed services and revisions go, and starts from zero when it counts again. Readers
know such a start by the age of what they read before (rollout/polls.py). An Envoy holds about 0.3 KiB for
each class that a revision had within two days.
"""

import re
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, TypeAlias

from tailbound.api.names import REQUESTS_METRIC
from tailbound.api.runtime_contract import LATENCY_BOUND_HEADER, SHED_HEADER
from tailbound.api.traffic import RequestClasses
from tailbound.gateway.script import LONG, NOTES, RECEIVED, WAITED
from tailbound.traffic.model import ServiceKey

STATS_PREFIX: Final = "tailbound"
EVICTION_INTERVAL: Final = timedelta(days=1)
"""A multiple of Envoy's stats_flush_interval, which is 5 s. Long, as a rollout that compares a class with few
requests must rarely meet a counter that began again."""
NAMESPACE_FIELD: Final = "namespace"
SERVICE_FIELD: Final = "service"
REVISION_FIELD: Final = "revision"
LATENCY_FIELD: Final = "sla"
"""A field of the route's metadata: an answer that takes longer than this is late."""
SHEDS_FIELD: Final = "sheds"
"""A field of the route's metadata: "yes" where the gateway refuses what would be late, else "no"."""
DEADLINE_FIELD: Final = "deadline"
"""A field of the route's metadata: what cut a stream earlier than this was its client's own deadline."""
PATIENCE_FIELD: Final = "patience"
"""A field of the route's metadata: a body that takes longer to arrive is slow."""
MOST_PATIENCE: Final = timedelta(seconds=2)

Counters: TypeAlias = dict[ServiceKey, dict[str, RequestClasses]]
"""By service and revision."""

_EXTENSIONS: Final = "type.googleapis.com/envoy.extensions"
_NOT_COUNTED: Final = "none"

_ROUTE = "xds.route_metadata.filter_metadata['tailbound']"
_DETAILS = "response.code_details"
_NOTES = f"metadata.filter_metadata['{NOTES}']"
_INFERENCE = f"'{NOTES}' in metadata.filter_metadata"
_COMPLETE = f"'{RECEIVED}' in {_NOTES}"
_RECEIVED = f"({_COMPLETE} ? duration({_NOTES}['{RECEIVED}']) : request.duration)"
_WAITED = (
    f"('{WAITED}' in {_NOTES} ? duration({_NOTES}['{WAITED}'])"
    f" : {_COMPLETE} ? request.duration - duration({_NOTES}['{RECEIVED}']) : duration('0s'))"
)
_LATE = f"{_WAITED} > duration({_ROUTE}['{LATENCY_FIELD}'])"
_LONG = f"'{LONG}' in {_NOTES}"
_REACHED_A_POD = "has(upstream.address)"
_SLOW_CLIENT = (
    f"{_REACHED_A_POD} && ({_RECEIVED} > duration({_ROUTE}['{PATIENCE_FIELD}'])"
    f" || ({_LONG} && request.duration > duration({_ROUTE}['{PATIENCE_FIELD}'])))"
)
_GRPC = "'content-type' in request.headers && request.headers['content-type'].startsWith('application/grpc')"
# Envoy makes up a gRPC status for every response: it means something in answers to gRPC requests only.
_FAILURE = f"response.code >= 500 || ({_GRPC} && response.grpc_status in [2, 4, 13, 14, 15])"
_REFUSAL = f"response.code >= 300 || ({_GRPC} && response.grpc_status != 0)"
# Where no bound was sent along, the pod has no such excuse.
_SHED = (
    f"response.code == 503 && '{SHED_HEADER}' in response.headers"
    f" && '{LATENCY_BOUND_HEADER}' in request.headers"
)
_TOO_MANY = f"{_DETAILS}.startsWith('upstream_reset_before_response_started{{overflow')"
_SHEDS = f"{_ROUTE}['{SHEDS_FIELD}'] == 'yes'"
_SERVER_ERROR = "has(response.code) && response.code >= 500"
_STOOD_STILL = (
    f"{_DETAILS} == 'response_timeout'"
    # 408: it was the request that stood still.
    f" || ({_DETAILS} == 'stream_idle_timeout' && response.code != 408)"
)
_TIMED_OUT = (
    f"{_COMPLETE} && !({_LONG}) && ({_STOOD_STILL}"
    f" || ({_DETAILS} == 'max_duration_timeout' && {_WAITED} >= duration({_ROUTE}['{DEADLINE_FIELD}'])))"
)
_BROKE_OFF = f"{_DETAILS}.startsWith('upstream_')"
_CLIENT_LEFT = (
    f"{_DETAILS}.startsWith('downstream_') || {_DETAILS}.startsWith('http2.')"
    f" || {_DETAILS} == 'max_duration_timeout' || {_STOOD_STILL}"
)

CLASS_EXPRESSION: Final = (
    f"!({_INFERENCE}) ? ({_DETAILS} == 'via_upstream' ? 'other' : '{_NOT_COUNTED}')"
    f" : {_DETAILS} == 'via_upstream'"
    f" ? (({_FAILURE}) ? (({_SLOW_CLIENT}) ? 'abandoned' : ({_SHED}) ? 'shed' : 'failed')"
    f" : ({_REFUSAL}) ? 'other' : {_LATE} ? 'slow' : 'good')"
    f" : {_TOO_MANY} ? ({_SHEDS} ? 'shed' : '{_NOT_COUNTED}')"
    f" : ({_TIMED_OUT}) ? 'timed_out'"
    f" : ({_SERVER_ERROR}) || {_BROKE_OFF}"
    f" ? (({_SLOW_CLIENT}) ? 'abandoned' : 'failed')"
    f" : ({_CLIENT_LEFT}) ? ({_REACHED_A_POD} && {_LATE} ? 'slow' : 'abandoned')"
    f" : '{_NOT_COUNTED}'"
)


def counting_log() -> dict[str, Any]:
    """The access logger that counts."""
    tags = [
        _tag(NAMESPACE_FIELD, f"%METADATA(ROUTE:tailbound:{NAMESPACE_FIELD})%", dropped=""),
        _tag(SERVICE_FIELD, f"%METADATA(ROUTE:tailbound:{SERVICE_FIELD})%"),
        _tag(REVISION_FIELD, f"%METADATA(CLUSTER:tailbound:{REVISION_FIELD})%", dropped=""),
        _tag("class", f"%CEL({CLASS_EXPRESSION})%", dropped=_NOT_COUNTED),
    ]
    return {
        "name": "envoy.access_loggers.stats",
        "typed_config": {
            "@type": f"{_EXTENSIONS}.access_loggers.stats.v3.Config",
            "stats_scope": {"prefix": STATS_PREFIX, "enable_eviction": True},
            "counters": [{"stat": {"name": "requests", "tags": tags}, "value_fixed": 1}],
        },
    }


def _tag(name: str, value: str, *, dropped: str | None = None) -> dict[str, Any]:
    """A tag; a request for which it has the value `dropped` is not counted."""
    tag: dict[str, Any] = {"name": name, "value_format": value}
    if dropped is not None:
        tag["rules"] = _drop(dropped)
    return tag


def _drop(value: str) -> dict[str, Any]:
    action = {"@type": f"{_EXTENSIONS}.matching.actions.transform_stat.v3.TransformStat", "drop_stat": {}}
    tag_value = {"@type": f"{_EXTENSIONS}.matching.common_inputs.stats.v3.StatTagValueInput"}
    return {
        "matcher_tree": {
            "input": {"name": "value", "typed_config": tag_value},
            "exact_match_map": {"map": {value: {"action": {"name": "drop", "typed_config": action}}}},
        }
    }


_LINE = re.compile(
    rf"^{STATS_PREFIX}\.requests\.namespace\.([^.]+)\.service\.([^.]+)"
    r"\.revision\.([^.]+)\.class\.(\w+): (\d+)$",
    re.MULTILINE,
)
_OF_ENVOY = f"envoy_{STATS_PREFIX}_requests"


MOST_NAMED: Final = 50
"""Services that are named to Envoy: its admin interface refuses a request line of more than 60 KiB, and a
longer expression costs it more than a longer answer."""


def counters_pattern(services: Collection[ServiceKey]) -> str:
    """A regular expression over the names of Envoy's counters: for these services, or for all of many."""
    if len(services) > MOST_NAMED:
        return rf"^{STATS_PREFIX}\.requests\."
    wanted = "|".join(
        rf"{re.escape(service.namespace)}\.service\.{re.escape(service.name)}" for service in sorted(services)
    )
    return rf"^{STATS_PREFIX}\.requests\.namespace\.({wanted})\."


def read_counters(text: str) -> Counters:
    """The counters by service and revision, from Envoy's plain list. Counters of other names are ignored."""
    found: dict[ServiceKey, dict[str, dict[str, int]]] = {}
    for namespace, name, revision, class_, count in _LINE.findall(text):
        if class_ in RequestClasses.model_fields:
            of_service = found.setdefault(ServiceKey(namespace, name), {})
            of_service.setdefault(revision, {})[class_] = int(count)
    return {
        service: {revision: RequestClasses(**classes) for revision, classes in revisions.items()}
        for service, revisions in found.items()
    }


_SAMPLE = re.compile(
    rf'^{REQUESTS_METRIC}\{{(?P<before>[^}}\n]*?)class="(?P<class>\w+)"(?P<after>[^}}\n]*)\}} \S+\n',
    re.MULTILINE,
)


def name_metric(text: str) -> str:
    """Envoy's metrics, with the name that ours has outside, and zeros for classes that were never counted.

    Envoy has a counter only once it has counted. Without zeros a query for failed requests would match
    nothing for as long as none failed, just as one that is misspelt.
    """
    named = text.replace(_OF_ENVOY, REQUESTS_METRIC)
    samples = list(_SAMPLE.finditer(named))
    if not samples:
        return named
    counted: dict[tuple[str, str], set[str]] = {}
    for each in samples:
        counted.setdefault((each["before"], each["after"]), set()).add(each["class"])
    zeros = "".join(
        f'{REQUESTS_METRIC}{{{before}class="{name}"{after}}} 0\n'
        for (before, after), classes in counted.items()
        for name in RequestClasses.model_fields
        if name not in classes
    )
    end = samples[-1].end()
    return named[:end] + zeros + named[end:]
