"""Pods that are to end and do not: their node is mostly gone, and nobody confirms that they have ended. Pure.

Kubernetes keeps such a pod until its node is back or somebody deletes it by force. metadata.deletionTimestamp
is when its grace period is over, and what is there for `MARGIN` after that counts as gone: it holds up no
other revision. So does at once what was deleted later than now, as after the clock was set back: no outage
lasts longer for that. Where its place is missing all the same, the scheduler says so of the pod that waits.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tailbound.reconcile.model import Object
from tailbound.reconcile.owned_state import FINISHED, revision_of, terminating

MARGIN: Final = timedelta(seconds=30)
"""A kubelet that lives needs far less to report the end of a pod; clocks of one cluster differ by less."""
_GRACE: Final = 30
"""Seconds that Kubernetes grants a pod if nothing else is said."""


def overdue(pods: Iterable[Object], now: datetime) -> list[Object]:
    """Those that should have ended, in order of their names."""
    found = [pod for pod in _ending(pods) if _gone_at(pod, now) <= now]
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


def next_overdue(pods: Iterable[Object], now: datetime) -> datetime | None:
    """When the next of them counts as gone, unless it ends; None if none is to end."""
    return min((at for pod in _ending(pods) if (at := _gone_at(pod, now)) > now), default=None)


def holding(pods: Iterable[Object], now: datetime) -> dict[str, int]:
    """By revision, the pods that may hold a device: those that are ending in time included."""
    counts: dict[str, int] = {}
    for pod in pods:
        revision, finished = revision_of(pod), pod.get("status", {}).get("phase") in FINISHED
        if revision is not None and not finished and not (terminating(pod) and _gone_at(pod, now) <= now):
            counts[revision] = counts.get(revision, 0) + 1
    return counts


def told(pods: Iterable[Object], now: datetime) -> str:
    """What to do about those that should have ended, as the end of a message; empty if there are none."""
    return "".join(f"; {_remedy(pod)}" for pod in overdue(pods, now))


def _remedy(pod: Object) -> str:
    name, by = pod["metadata"]["name"], pod["metadata"]["deletionTimestamp"]
    node = pod.get("spec", {}).get("nodeName", "unknown")
    return (
        f"pod {name} should have ended by {by} on node {node}: if that node is gone, "
        f"kubectl delete pod {name} --force"
    )


def _ending(pods: Iterable[Object]) -> Iterable[Object]:
    return (pod for pod in pods if terminating(pod) and pod.get("status", {}).get("phase") not in FINISHED)


def _gone_at(pod: Object, now: datetime) -> datetime:
    metadata = pod["metadata"]
    end = datetime.fromisoformat(metadata["deletionTimestamp"])
    begin = end - timedelta(seconds=metadata.get("deletionGracePeriodSeconds", _GRACE))
    return now if begin > now + MARGIN else end + MARGIN
