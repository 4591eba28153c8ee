"""Two new versions of a service: a slow one is rolled back, a good one is promoted."""

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

NAME: Final = "greeter"
RATE: Final = 30
LONGEST_SECONDS: Final = 200
STEPS: Final = (50, 80)
SLOW: Final = {"SLOW_FRACTION": "0.2", "DELAY_MS": "1500"}
PROMISE: Final[dict[str, Any]] = {"latency": {"p99": "1s"}}


@dataclass(frozen=True)
class Verdicts:
    """How both rollouts ended, and what the requests saw of them."""

    rolled_back: str
    """The words of the status about the bad revision."""
    bad_seconds: float
    """From the first weight of the bad revision to its rollback."""
    promoted: str
    requests: int
    failed: int
    why: str


def show(cluster: Cluster, namespace: str, tell: Tell) -> Verdicts:
    """A first version, a slow one, a good one. Raises ProcessError if a rollout does not end as it should."""
    cluster.kubectl("delete", "inferenceservice", NAME, f"--namespace={namespace}", "--ignore-not-found")
    setting.apply(cluster, [greeter.runtime(namespace), _service(namespace, "1")])
    with Timeline(cluster, namespace, NAME) as timeline:
        first = timeline.until("Ready", Moment.ready, 120)
        tell(f"{first.stable()} serves and promises that 99 of 100 answers take less than a second")
        with _load(cluster, namespace) as results:
            bad, condemned, seconds = _slow(cluster, namespace, timeline, tell)
            promoted = _good(cluster, namespace, timeline, tell, bad)
    (result,) = results
    return Verdicts(
        condemned, seconds, promoted, result.requests, result.failed, greeter.why(cluster, namespace, NAME)
    )


def _slow(cluster: Cluster, namespace: str, timeline: Timeline, tell: Tell) -> tuple[str, str, float]:
    tell("a new version is applied. It has a flaw: one answer in five takes 1.5 seconds longer ...")
    setting.apply(cluster, [_service(namespace, "2", SLOW)])
    began = timeline.until("the slow version", lambda now: _weight(now) == STEPS[0], 90)
    name = _rollout(began)["revision"]
    tell(f"{name} gets {STEPS[0]} of 100 requests, and each answer is counted for or against it ...")
    ended = timeline.until("its rollback", lambda now: _state(now) == (name, "RolledBack"), 120)
    message = str(_rollout(ended)["message"])
    seconds = ended.at_seconds - began.at_seconds
    tell(f"rolled back after {seconds:.0f} s, nobody had to look: {message}")
    for line in greeter.why(cluster, namespace, NAME).splitlines():
        tell(f"  {line}")
    return name, message, seconds


def _good(cluster: Cluster, namespace: str, timeline: Timeline, tell: Tell, bad: str) -> str:
    tell("the flaw is mended and applied as another version ...")
    setting.apply(cluster, [_service(namespace, "3")])
    began = timeline.until("the good version", lambda now: _begun(now, bad), 90)
    name = str(_rollout(began)["revision"])
    tell(f"{name} gets {STEPS[0]} of 100 requests ...")
    for weight in (*STEPS[1:], 100):
        timeline.until(f"weight {weight}", partial(_reached, name, weight), LONGEST_SECONDS)
        tell(f"  proven good enough: {weight} of 100")
    timeline.until("its promotion", lambda now: _state(now) == (name, "Promoted"), 60)
    tell(f"{name} is promoted: the pods of the version before may go")
    return name


@contextmanager
def _load(cluster: Cluster, namespace: str) -> Iterator[list[Result]]:
    """Requests during the block, none ever repeated; the list holds their result after it."""
    options = (f"--seconds={LONGEST_SECONDS}", "--timeout=10", f"--rate={RATE}")
    load, results = (
        Load(cluster, "canary", greeter.url(namespace, NAME), {"inputs": []}, *options),
        list[Result](),
    )
    try:
        yield results
    finally:
        results.append(load.stop())


def _rollout(now: Moment) -> dict[str, Any]:
    return now.service.get("status", {}).get("rollout") or {}


def _begun(now: Moment, before: str) -> bool:
    revision, state = _state(now)
    return revision != before and state == "Analysing" and _weight(now) == STEPS[0]


def _weight(now: Moment) -> int:
    return int(_rollout(now).get("weight", 0))


def _state(now: Moment) -> tuple[str | None, str | None]:
    found = _rollout(now)
    return found.get("revision"), found.get("state")


def _reached(revision: str, weight: int, now: Moment) -> bool:
    return _rollout(now).get("revision") == revision and _weight(now) >= weight


def _service(namespace: str, version: str, faults: dict[str, str] | None = None) -> dict[str, Any]:
    return greeter.service(
        namespace,
        NAME,
        {"VERSION": version, **(faults or {})},
        timeout="5s",
        sla=PROMISE,
        rollout={
            "strategy": "canary",
            "steps": [{"weight": weight} for weight in STEPS],
            "minStepTime": "3s",
            "scaleDownDelay": "3s",
        },
    )
