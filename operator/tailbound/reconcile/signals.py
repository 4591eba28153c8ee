"""What the autoscaler decides on: one revision's signals and pods, brought together. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import ceil
from typing import Final

from tailbound.api.conditions import PLACELESS, Reason
from tailbound.autoscale.model import (
    NO_QUEUE_REPORTED,
    Arrivals,
    Ceiling,
    Count,
    Known,
    Limit,
    Limits,
    Rate,
    Replicas,
    RevisionObservation,
    Seconds,
    Service,
)
from tailbound.autoscale.state import USUAL_COLD_START
from tailbound.objects.deployment import Deployment
from tailbound.objects.pod import Pod
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import ScalingRequest
from tailbound.reconcile.pods import PodsReport, most_restarts, report, starting_since
from tailbound.rollout.sizing import ALL

_SLOWEST: Final = 0.9
"""The quantile of the cold starts that growing reckons with."""
_LONGEST: Final = 1800.0
"""Seconds that a start is taken for at most. A pod that took longer waited for a node or an image, and recent
traffic says nothing about what will arrive after so long."""


@dataclass(frozen=True)
class RevisionSignals:
    """What the metrics say of one revision alone."""

    p99: Seconds
    in_flight: Count
    service: Service
    waiting: Count = NO_QUEUE_REPORTED


@dataclass(frozen=True)
class Signals:
    """What the metrics say of one service."""

    arrivals: Arrivals
    """Requests that arrive at all its revisions together: a changed weight is no changed traffic."""
    p99: Seconds
    late: float | None
    """Share of the last minute's requests that were late; None: there were none, or it is not known."""
    revisions: Mapping[str, RevisionSignals]
    shed: float = 0.0
    """Share of the same requests that were refused because they would have been late; a part of `late`."""


@dataclass(frozen=True)
class PodStarts:
    """Seconds from the creation of the pods of one revision to their readiness, by the pods' names.

    A pod says only when it became Ready last. One that loses its readiness for a moment after days seems to
    have taken days to start: what counts is what it said first.
    """

    took: Mapping[str, float] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset()
    """Pods that were Ready at the first look already, and seem to have taken longer than usual."""

    def after(self, pods: Sequence[Pod]) -> "PodStarts":
        """The starts with those of pods that are Ready by now.

        | pod | counts |
        |---|---|
        | was counted before | as it was |
        | is one of `unseen` | not: whether it was Ready before is unknown |
        | has been restarted, or is not Ready | not now |
        | is Ready | from its creation |
        """
        took = {}
        for pod in pods:
            seconds = self.took.get(pod.name)
            if seconds is None and pod.name not in self.unseen and not most_restarts([pod]):
                seconds = _start_of(pod)
            if seconds is not None:
                took[pod.name] = seconds
        return PodStarts(took, self.unseen)


def first_starts(pods: Sequence[Pod]) -> PodStarts:
    """The starts at the first look.

    One that took no longer than usual is believed: that a pod lost its readiness only adds to it.
    """
    slow = [pod.name for pod in pods if (_start_of(pod) or 0.0) > USUAL_COLD_START]
    return PodStarts(unseen=frozenset(slow)).after(pods)


@dataclass(frozen=True)
class RevisionPods:
    """The Deployment and the pods of one revision. What they say is found out once, for many looks."""

    deployment: Deployment
    pods: tuple[Pod, ...]
    starts: PodStarts

    @cached_property
    def report(self) -> PodsReport:
        """What the pods are at."""
        return report(self.pods, self.deployment)

    @cached_property
    def starting_since(self) -> tuple[datetime, ...]:
        """When each pod was made that is on its way."""
        return starting_since(self.pods)

    @cached_property
    def slow_start(self) -> float | None:
        """A long one of the times that pods took to start."""
        took = sorted(self.starts.took.values())
        return min(_LONGEST, took[min(len(took) - 1, int(len(took) * _SLOWEST))]) if took else None


def observed(
    signals: Signals, revision: str, share: int, there: RevisionPods, now: float
) -> RevisionObservation:
    """What there is to know of a revision that must be able to carry `share` percent of the requests.

    Where it got none itself, the latency is that of the service.
    """
    nothing = Unknown(f"there are no metrics of {revision}")
    own = signals.revisions.get(revision, RevisionSignals(nothing, nothing, nothing))
    return RevisionObservation(
        arrivals=_of_all(signals.arrivals, share),
        p99=own.p99 if isinstance(own.p99, Known) else signals.p99,
        in_flight=own.in_flight,
        service=own.service,
        replicas=_replicas(there, now),
        cold_start=_cold_start(there, now),
        waiting=own.waiting,
    )


def limits(wanted: ScalingRequest, share: int, seen: PodsReport) -> Limits:
    """The bounds of a revision that must be able to carry `share` percent of the requests.

    While pods are refused there is room for those that exist, and while pods find no node for those that have
    one. What is asked for already stays: a quota that is raised or a node that comes is used at once.
    """
    causes = (
        (frozenset({Reason.QUOTA_EXCEEDED, Reason.QUOTA_TOO_SMALL}), Limit.QUOTA, seen.count),
        (frozenset({Reason.UNSCHEDULABLE, Reason.NO_NODE_FITS}), Limit.HARDWARE, seen.scheduled),
        (PLACELESS - {Reason.QUOTA_TOO_SMALL, Reason.NO_NODE_FITS}, Limit.REFUSED, seen.count),
    )
    ceilings = tuple(Ceiling(limit, room) for reasons, limit, room in causes if seen.first_of(*reasons))
    least = max(1, ceil(wanted.least * share / ALL))
    return Limits(min=least, max=wanted.most, ceilings=ceilings)


def part(rates: Sequence[Known[float]], share: int) -> tuple[Known[float], ...]:
    """The rates of `share` percent of the requests."""
    return tuple(Known(rate.value * share / ALL, rate.at) for rate in rates)


def _of_all(arrivals: Arrivals, share: int) -> Arrivals:
    def of(rate: Rate) -> Rate:
        return part([rate], share)[0] if isinstance(rate, Known) else rate

    if share == ALL:
        return arrivals
    return Arrivals(
        of(arrivals.over_10s), of(arrivals.over_30s), of(arrivals.over_60s), of(arrivals.over_120s)
    )


def _replicas(there: RevisionPods, now: float) -> Replicas:
    seen = there.report
    return Replicas(
        requested=there.deployment.replicas,
        ready=seen.ready,
        pending=seen.count - seen.ready,
        stuck=seen.stuck,
        waited=tuple(max(0.0, now - made.timestamp()) for made in there.starting_since),
    )


def _cold_start(there: RevisionPods, now: float) -> Seconds:
    slow = there.slow_start
    return Unknown("no pod has become ready yet") if slow is None else Known(slow, now)


def _start_of(pod: Pod) -> float | None:
    """Seconds from its creation to when it became Ready last; None while it is not."""
    made, ready_at = pod.creation_timestamp, pod.condition("Ready").last_transition_time
    if not pod.ready or made is None or ready_at is None:
        return None
    return (ready_at - made).total_seconds()
