"""Pods that have ended for good, as the kubelet and Kubernetes' controllers report it. Pure.

Nothing restarts them: their ReplicaSet makes others, and the API server keeps them for thousands to come.

| status.reason, or else the reason of the condition DisruptionTarget | reason |
|---|---|
| Evicted, TerminationByKubelet, EvictionByEvictionAPI | Evicted |
| Preempting, PreemptionByScheduler | Preempted |
| Terminated, Shutdown, NodeShutdown, NodeLost, DeletionByPodGC, DeletionByTaintManager | NodeShutdown |
| OutOfcpu and its like, UnexpectedAdmissionError, NodeAffinity … | NodeRefused |
| anything else | PodFailed |

The newest of a revision are kept for `KEPT_FOR`, as evidence for people and for the count of evictions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

from tailbound.api.conditions import Reason
from tailbound.api.names import REVISION_LABEL
from tailbound.objects.pod import Pod
from tailbound.objects.times import LONG_AGO

KEPT_FOR: Final = timedelta(minutes=10)
_REASONS: Final[tuple[tuple[re.Pattern[str], Reason], ...]] = (
    (re.compile("Evicted|TerminationByKubelet|EvictionByEvictionAPI"), Reason.EVICTED),
    (re.compile("Preempting|PreemptionByScheduler"), Reason.PREEMPTED),
    (
        re.compile("Terminated|Shutdown|NodeShutdown|NodeLost|DeletionByPodGC|DeletionByTaintManager"),
        Reason.NODE_SHUTDOWN,
    ),
    (
        re.compile(r"OutOf\w+|UnexpectedAdmissionError|\w+AffinityError|NodeAffinity|NodePorts"),
        Reason.NODE_REFUSED,
    ),
)
_WORDS: Final = {
    Reason.EVICTED: "was evicted from",
    Reason.PREEMPTED: "made way for a pod of a higher priority on",
    Reason.NODE_SHUTDOWN: "ended with",
    Reason.NODE_REFUSED: "was refused by the kubelet of",
    Reason.POD_FAILED: "failed on",
}
# The kubelet's words for a pod that used more than it may, and not for a node that ran low.
_OWN_USE: Final = re.compile(r"exceed(s|ed) (the|its) ")


def reason_of(pod: Pod) -> Reason:
    """Why a pod that has ended did."""
    said = pod.reason or pod.condition("DisruptionTarget").reason
    return next((reason for words, reason in _REASONS if words.fullmatch(said)), Reason.POD_FAILED)


def message_of(pod: Pod) -> str:
    """A sentence on why the pod died, with what to do."""
    reason = reason_of(pod)
    said = pod.message or pod.condition("DisruptionTarget").message or pod.reason or "no reason is given"
    where = f"node {pod.node_name}" if pod.node_name else "its node"
    text = f"pod {pod.name} {_WORDS[reason]} {where}: {said.strip().rstrip('.')}"
    if exceeds_its_limit(pod):
        return f"{text}. What to do: let the server write less to its disk, or raise the limit"
    return text


def exceeds_its_limit(pod: Pod) -> bool:
    """Whether the pod was evicted for what it used itself."""
    return reason_of(pod) is Reason.EVICTED and _OWN_USE.search(pod.message) is not None


def newest_first(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that have ended, and are not being deleted."""
    dead = (pod for pod in pods if pod.finished and not pod.terminating)
    return sorted(dead, key=lambda pod: (_ended_at(pod), pod.name), reverse=True)


def left_behind(pods: Sequence[Pod], most: int, now: datetime) -> Iterator[Pod]:
    """The pods to delete: of each revision all but the newest `most`, and those that ended long ago."""
    for dead in _by_revision(pods):
        yield from (pod for pod in dead[:most] if _ended_at(pod) + KEPT_FOR <= now)
        yield from dead[most:]


def next_left_behind(pods: Sequence[Pod], now: datetime) -> datetime | None:
    """When the next one has ended long enough ago; None if there is none."""
    ends = (_ended_at(pod) + KEPT_FOR for dead in _by_revision(pods) for pod in dead)
    return min((end for end in ends if end > now), default=None)


class _Dead(NamedTuple):
    revision: str
    pod: Pod


def _by_revision(pods: Sequence[Pod]) -> Iterator[list[Pod]]:
    """Dead pods that a ReplicaSet made, the newest of each revision first."""
    dead = [
        _Dead(revision, pod)
        for pod in newest_first(pods)
        if (revision := pod.label(REVISION_LABEL)) and pod.controller and pod.controller.kind == "ReplicaSet"
    ]
    dead.sort(key=lambda each: each.revision)
    for _, group in groupby(dead, key=lambda each: each.revision):
        yield [each.pod for each in group]


def _ended_at(pod: Pod) -> datetime:
    """The last change that it reports; its creation for one that the kubelet refused at once."""
    changes = [each.last_transition_time for each in pod.conditions]
    times = [time for time in (*changes, pod.creation_timestamp) if time is not None]
    return max(times, default=LONG_AGO)
