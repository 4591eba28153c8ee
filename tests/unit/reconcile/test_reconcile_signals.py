"""What the autoscaler decides on: signals of the service and of the revision, pods, and what limits them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound.autoscale.model import Arrivals, Ceiling, Known, LatencyTarget, Limit, Replicas
from tailbound.objects.deployment import Deployment
from tailbound.objects.pod import Pod
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.model import RevisionLoad, ScalingRequest
from tailbound.reconcile.signals import (
    PodStarts,
    RevisionPods,
    RevisionSignals,
    Signals,
    first_starts,
    limits,
    observed,
)

NOW = 1_000_000.0
MADE = datetime(2026, 1, 1, tzinfo=UTC)
NOT_KNOWN = Unknown("nobody knows")
WANTED = ScalingRequest(
    least=4, most=20, p99_seconds=0.2, revisions={"r1": RevisionLoad(100, LatencyTarget(p99=0.2))}
)


def deployment(replicas: int, *, refused: bool = False) -> Deployment:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    return Deployment(
        {"spec": {"replicas": replicas}, "status": {"conditions": [failure] if refused else []}}
    )


def there(replicas: int, pods: tuple[Pod, ...]) -> RevisionPods:
    """A revision that is looked at for the first time."""
    return RevisionPods(deployment(replicas), pods, first_starts(pods))


def pod(name: str, *, ready: int | None = None, restarts: int = 0, **condition: Any) -> Pod:
    """A pod that became ready after so many seconds, or is not ready for the reason in `condition`."""
    conditions = [{"type": "PodScheduled", "status": "True", **condition}]
    if ready is not None:
        at = (MADE + timedelta(seconds=ready)).isoformat()
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": at})
    server = {"name": "server", "ready": ready is not None, "restartCount": restarts}
    return Pod(
        {
            "metadata": {"name": name, "creationTimestamp": MADE.isoformat()},
            "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [server]},
        }
    )


UNSCHEDULABLE: dict[str, Any] = {"status": "False", "reason": "Unschedulable", "message": "no nodes"}


def signals(*, p99: Any = NOT_KNOWN, **revisions: RevisionSignals) -> Signals:
    arrivals = Arrivals(Known(10.0, NOW), Known(20.0, NOW), Known(40.0, NOW), NOT_KNOWN)
    return Signals(arrivals, p99, None, revisions)


def test_arrivals_are_the_services_times_the_share() -> None:
    seen = observed(signals(), "r1", 25, there(1, ()), NOW).arrivals
    assert (seen.over_10s, seen.over_60s) == (Known(2.5, NOW), Known(10.0, NOW))
    assert seen.over_120s == NOT_KNOWN


@pytest.mark.parametrize(
    ("own", "of_service", "expected"),
    [
        (Known(0.1, NOW), Known(0.3, NOW), Known(0.1, NOW)),
        (NOT_KNOWN, Known(0.3, NOW), Known(0.3, NOW)),
        (NOT_KNOWN, NOT_KNOWN, NOT_KNOWN),
    ],
)
def test_the_latency_is_its_own_or_else_the_services(own: Any, of_service: Any, expected: Any) -> None:
    seen = signals(p99=of_service, r1=RevisionSignals(own, NOT_KNOWN, NOT_KNOWN))
    assert observed(seen, "r1", 100, there(1, ()), NOW).p99 == expected


def test_a_revision_without_metrics_is_unknown_and_not_idle() -> None:
    seen = observed(signals(), "r9", 100, there(1, ()), NOW)
    assert isinstance(seen.in_flight, Unknown)
    assert isinstance(seen.service, Unknown)


def test_pods_that_are_made_count_and_those_that_stay_behind_are_told_apart() -> None:
    pods = (
        pod("a", ready=5),
        pod("b", ready=9),
        pod("starting"),
        pod("waiting", **UNSCHEDULABLE),
    )
    later = datetime(2026, 1, 1, 0, 0, 40, tzinfo=UTC).timestamp()
    seen = observed(signals(), "r1", 100, there(6, pods), later)
    assert seen.replicas == Replicas(requested=6, ready=2, pending=2, stuck=1, waited=(40.0,))


def test_the_cold_start_is_that_of_the_slow_ones_without_restarts() -> None:
    pods = (*(pod(f"p{seconds}", ready=seconds) for seconds in range(1, 11)), pod("r", ready=50, restarts=1))
    assert observed(signals(), "r1", 100, there(11, pods), NOW).cold_start == Known(10.0, NOW)
    assert isinstance(observed(signals(), "r1", 100, there(1, (pod("x"),)), NOW).cold_start, Unknown)


DAYS = 3 * 86400
"""Seconds that pods have lived when they lose their readiness for a moment."""


@pytest.mark.parametrize(
    ("looks", "cold_start"),
    [
        ([{"a": None}, {"a": 40}], 40.0),
        ([{"a": 40}, {"a": DAYS}], 40.0),
        ([{"a": None}, {"a": 300}, {"a": None}, {"a": DAYS}], 300.0),
        ([{"a": DAYS, "b": DAYS}], None),
        ([{"a": DAYS}, {"a": None}, {"a": DAYS + 60}], None),
        ([{"a": DAYS}, {"a": DAYS, "b": 5}], 5.0),
        ([{"a": DAYS, "b": 30}], 30.0),
        ([{"a": None}, {"a": 7200}], 1800.0),
        ([{"a": 40}, {"b": None}], None),
    ],
    ids=[
        "a start",
        "readiness lost for a moment",
        "seen to be lost",
        "a new process knows no start",
        "nor that of a pod that it saw lose its readiness",
        "until a pod starts",
        "or is no slower than usual",
        "a node came after hours",
        "pods that are gone",
    ],
)
def test_a_start_is_what_a_pod_took_to_be_ready_for_the_first_time(
    looks: list[dict[str, int | None]], cold_start: float | None
) -> None:
    starts = None
    for look in looks:
        pods = tuple(pod(name, ready=ready) for name, ready in look.items())
        starts = first_starts(pods) if starts is None else starts.after(pods)
    assert starts is not None
    assert RevisionPods(deployment(1), pods, starts).slow_start == cold_start


@pytest.mark.parametrize(
    ("stored", "pods", "ceilings"),
    [
        pytest.param(deployment(6), (pod("a", ready=1), pod("b")), (), id="a slow start limits nothing"),
        pytest.param(
            deployment(6),
            (pod("a", ready=1), pod("b"), pod("c", **UNSCHEDULABLE)),
            (Ceiling(Limit.HARDWARE, 2),),
            id="no node has capacity",
        ),
        pytest.param(
            deployment(6, refused=True), (pod("a", ready=1),), (Ceiling(Limit.QUOTA, 1),), id="a full quota"
        ),
    ],
)
def test_what_is_refused_is_a_ceiling_at_what_there_is_room_for(
    stored: Deployment, pods: tuple[Pod, ...], ceilings: tuple[Ceiling, ...]
) -> None:
    found = limits(WANTED, 100, RevisionPods(stored, pods, PodStarts()).report)
    assert (found.min, found.max, found.ceilings) == (4, 20, ceilings)


@pytest.mark.parametrize(("share", "least"), [(100, 4), (50, 2), (26, 2), (5, 1)])
def test_a_share_needs_its_part_of_the_fewest(share: int, least: int) -> None:
    assert limits(WANTED, share, there(1, ()).report).min == least
