"""Deleted pods that do not end, mostly because their node is gone and cannot confirm it. Pure.

Kubernetes keeps such a pod until its node is back or a user deletes it by force. Its grace period ends at
metadata.deletionTimestamp. A pod that is still there `MARGIN` later counts as gone, so that no revision waits
for it. A pod whose deletion lies in the future, as after a clock was set back, counts as gone at once, so
that no outage lasts longer for that. If its capacity is in use after all, the scheduler says so of the
waiting pod.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tailbound.api.names import REVISION_LABEL
from tailbound.objects.kubectl import kubectl
from tailbound.objects.pod import Pod
from tailbound.objects.times import utc_seconds

MARGIN: Final = timedelta(seconds=30)
"""A running kubelet reports the end of a pod far sooner, and clocks of one cluster differ by less."""


class _Ending(NamedTuple):
    """A pod that is being deleted and has not ended."""

    pod: Pod
    by: datetime
    """When its grace period is over."""
    gone_at: datetime
    """When it counts as gone."""


def next_overdue(pods: Iterable[Pod], now: datetime) -> datetime | None:
    """When the next ending pod counts as gone; None if no pod is ending."""
    return min((each.gone_at for each in _ending(pods, now) if each.gone_at > now), default=None)


def holding(pods: Sequence[Pod], now: datetime) -> dict[str, int]:
    """The number of pods by revision that may hold a device, those that are ending in time included."""
    gone = {each.pod.name for each in _overdue(pods, now)}
    held = (pod.label(REVISION_LABEL) for pod in pods if not pod.finished and pod.name not in gone)
    return Counter(revision for revision in held if revision is not None)


def remedies(pods: Iterable[Pod], now: datetime) -> str:
    """The end of a message: what to do about pods that should have ended; empty if there are none."""
    late = sorted(_overdue(pods, now), key=lambda each: each.pod.name)
    return "".join(f"; {_remedy(each)}" for each in late)


def _remedy(late: _Ending) -> str:
    name, node = late.pod.name, late.pod.node_name or "unknown"
    return (
        f"pod {name} should have ended by {utc_seconds(late.by)} on node {node}: if that node is gone, "
        f"{kubectl(late.pod.namespace, 'delete pod', name, '--force')}"
    )


def _overdue(pods: Iterable[Pod], now: datetime) -> Iterator[_Ending]:
    """The pods that should have ended."""
    return (each for each in _ending(pods, now) if each.gone_at <= now)


def _ending(pods: Iterable[Pod], now: datetime) -> Iterator[_Ending]:
    for pod in pods:
        by = pod.deletion_timestamp
        if by is not None and not pod.finished:
            deleted_later_than_now = by - pod.deletion_grace_period > now + MARGIN
            yield _Ending(pod, by, now if deleted_later_than_now else by + MARGIN)
