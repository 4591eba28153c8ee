"""How many requests a service gets, from its gateways' counters. Pure."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tailbound.api.inferenceservice import InferenceService
from tailbound.cli.subject import CommandError
from tailbound.judge.counters import Classes
from tailbound.rollout.forecast import Traffic

_METRIC: Final = "tailbound_requests_total"
_CLASSES: Final = frozenset(field.name for field in fields(Classes))


def counted(metrics: str, service: InferenceService) -> dict[str, Classes]:
    """The request counts of one gateway by revision of a service, from the text of its /metrics."""
    ours = "\n".join(line for line in metrics.splitlines() if line.startswith(f"{_METRIC}{{"))
    wanted = (service.metadata.namespace, service.metadata.name)
    found: dict[str, Classes] = {}
    for family in text_string_to_metric_families(f"{ours}\n"):
        for sample in family.samples:
            labels = sample.labels
            if (labels.get("namespace"), labels.get("service")) == wanted and labels["class"] in _CLASSES:
                more = Classes(**{labels["class"]: int(sample.value)})
                found[labels["revision"]] = found.get(labels["revision"], Classes()) + more
    return found


def measured(
    before: Mapping[str, Mapping[str, Classes]], after: Mapping[str, Mapping[str, Classes]], seconds: float
) -> Traffic | None:
    """Requests and bad ones between two readings, by gateway pod and revision; None if none came.

    Raises CommandError if a gateway began to count from zero in between.
    """
    total = Classes()
    for pod, revisions in after.items():
        for revision, classes in revisions.items():
            total += classes - before.get(pod, {}).get(revision, Classes())
    if total.falls_anywhere:
        raise CommandError("a gateway was restarted while requests were counted: try again")
    judged = total.answered + total.shed
    if not judged:
        return None
    return Traffic(judged / seconds, total.late / judged, total.failed / judged)
