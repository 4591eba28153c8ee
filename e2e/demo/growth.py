"""A service whose traffic grows: its pods follow, and the status says why.

A pod answers four requests at a time in half a second, thus eight a second. It only sleeps: its speed is
that of no machine.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from e2e.cluster import Cluster
from e2e.demo import greeter, setting
from e2e.demo.client import Load, Result
from e2e.demo.greeter import Tell
from e2e.demo.timeline import Moment, Timeline

NAME: Final = "popular"
SPEED: Final = {"SERVICE_SECONDS_BASE": "0.1", "SERVICE_SECONDS_PER_ROW": "0.1", "MAX_BATCH": "4"}
CALM, BUSY = 2, 18
RISE_SECONDS: Final = 20
PODS: Final = 3
LONGEST_SECONDS: Final = 600
FOLLOWS_SECONDS: Final = 180


@dataclass(frozen=True)
class Growth:
    """What the traffic's growth led to."""

    pods: int
    seconds: float
    """From the first request of the growth to the last pod's being ready."""
    requests: int
    failed: int
    why: str


@contextmanager
def calm(cluster: Cluster, namespace: str) -> Iterator[None]:
    """The service with little traffic, from which its pod's speed is learned, during the block."""
    cluster.kubectl("delete", "inferenceservice", NAME, f"--namespace={namespace}", "--ignore-not-found")
    setting.apply(cluster, [greeter.runtime(namespace), _service(namespace)])
    ready = ("wait", "--for=condition=Ready", f"inferenceservice/{NAME}", f"--namespace={namespace}")
    cluster.kubectl(*ready, "--timeout=120s")
    load = _load(cluster, namespace, "calm", f"--rate={CALM}")
    try:
        yield
    finally:
        load.stop()


def show(cluster: Cluster, namespace: str, tell: Tell) -> Growth:
    """Let the traffic grow to nine times. Raises ProcessError if the pods do not follow."""
    with Timeline(cluster, namespace, NAME) as timeline:
        timeline.until("its traffic is known", _measured, FOLLOWS_SECONDS)
        tell(f"{NAME} has {CALM} requests a second, which one pod answers. Now they become {BUSY} ...")
        load = _load(cluster, namespace, "busy", f"--rate={BUSY}", "--rise", str(CALM), str(RISE_SECONDS))
        try:
            began, pods = time.monotonic(), 1
            while pods < PODS:
                more = timeline.until("more pods", partial(_more_than, pods), FOLLOWS_SECONDS)
                pods = _pods(more)
                tell(f"  {more.at_seconds - began:.0f} s: {pods} pods. {_told(more)['message']}")
            ended = timeline.until("the pods are ready", _settled, FOLLOWS_SECONDS)
            words = greeter.why(cluster, namespace, NAME)
        finally:
            result: Result = load.stop()
    return Growth(_pods(ended), ended.at_seconds - began, result.requests, result.failed, words)


def _load(cluster: Cluster, namespace: str, name: str, *rate: str) -> Load:
    options = (f"--seconds={LONGEST_SECONDS}", "--timeout=30", *rate)
    return Load(cluster, f"growth-{name}", greeter.url(namespace, NAME), {"inputs": []}, *options)


def _told(now: Moment) -> dict[str, Any]:
    revisions = (now.service.get("status", {}).get("scaling") or {}).get("revisions") or [{}]
    found: dict[str, Any] = revisions[0]
    return found


def _pods(now: Moment) -> int:
    return int(_told(now).get("replicas", 0))


def _measured(now: Moment) -> bool:
    return now.condition("SLAMet").get("status") == "True"


def _more_than(pods: int, now: Moment) -> bool:
    return _pods(now) > pods


def _settled(now: Moment) -> bool:
    return _pods(now) >= PODS and now.condition("Reconciling").get("status") == "False"


def _service(namespace: str) -> dict[str, Any]:
    return greeter.service(
        namespace,
        NAME,
        SPEED,
        timeout="30s",
        sla={"latency": {"p99": "3s"}},
        scaling={"min": 1, "max": 5},
        batching={"mode": "dynamic", "maxBatchSize": 4},
    )
