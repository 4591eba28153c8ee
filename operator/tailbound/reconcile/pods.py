"""What the pods of one revision are stuck at, in words for a condition.

Per container the first rule of `_CONTAINER_RULES` that fits, per pod the first container, then scheduling.
Of several pods the one whose finding is most telling (`_MOST_TELLING`) counts, then the first by name. A
container that has failed keeps its finding while it is tried again, until it is through: a condition must
not flap with every attempt.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from tailbound.api.conditions import Reason
from tailbound.api.runtime_contract import FETCH_CONTAINER, Termination, TerminationReason
from tailbound.reconcile.model import Object
from tailbound.reconcile.owned_state import FINISHED

_LONGEST_QUOTE: Final = 600
_IMAGE_REASONS: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
_START_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
# The kubelet alternates between an error and the same error behind this prefix.
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(?:: \w+: )?')
# What a container says itself goes before what is seen from outside.
_MOST_TELLING: Final = (
    *(Reason(reason.value) for reason in TerminationReason if reason is not TerminationReason.FETCHED),
    Reason.OUT_OF_MEMORY,
    Reason.IMAGE_PULL_FAILED,
    Reason.CRASH_LOOP,
    Reason.QUOTA_EXCEEDED,
    Reason.UNSCHEDULABLE,
)


@dataclass(frozen=True)
class PodFinding:
    """What a pod is stuck at."""

    reason: Reason
    message: str
    container: str | None = None


@dataclass(frozen=True)
class PodsReport:
    """The pods of one revision."""

    count: int
    scheduled: int
    """Pods that have a node."""
    ready: int
    """Pods that are Ready."""
    stuck: int
    """Pods that are stuck at something, and not Ready."""
    refused: int
    """Pods that do not exist, as the API server does not admit them."""
    fetched: bool
    """At least one pod has verified the model."""
    fetching: bool
    """At least one pod is downloading, and no attempt of it has failed."""
    findings: tuple[PodFinding, ...]
    """The most telling first."""
    unready: str = ""
    """Which probe of a container that runs does not succeed, in words; empty if there is none."""

    @property
    def obstacle(self) -> PodFinding | None:
        """The most telling finding, if there is any."""
        return next(iter(self.findings), None)

    @property
    def fetch_failure(self) -> PodFinding | None:
        """The most telling finding of a fetch container."""
        return next((finding for finding in self.findings if finding.container == FETCH_CONTAINER), None)

    @property
    def why_unready(self) -> str:
        """Why a pod is not ready, in words, as far as that is known."""
        return self.obstacle.message if self.obstacle is not None else self.unready

    def first_of(self, *reasons: Reason) -> PodFinding | None:
        """The most telling finding with one of these reasons."""
        return next((finding for finding in self.findings if finding.reason in reasons), None)


def most_restarts(pods: Sequence[Object]) -> int:
    """Restarts of the container that was restarted most. Fetching again is no restart."""
    return max(
        (
            int(container.get("restartCount", 0))
            for pod in pods
            for container in pod.get("status", {}).get("containerStatuses") or ()
        ),
        default=0,
    )


def unready_since(pods: Sequence[Object]) -> tuple[datetime, ...]:
    """Since when each pod is not Ready, of those that run and are stuck at nothing that they say."""
    ready = (_condition(pod, "Ready") for pod in pods if next(_findings(pod), None) is None)
    times = (each.get("lastTransitionTime") for each in ready if each.get("status") == "False")
    return tuple(datetime.fromisoformat(time) for time in times if time is not None)


def starting_since(pods: Sequence[Object]) -> tuple[datetime, ...]:
    """When each pod was made, of those that are not Ready yet and stuck at nothing that they say."""
    unready = (each for each in pods if _active(each) and _condition(each, "Ready").get("status") != "True")
    starting = (pod["metadata"] for pod in unready if next(_findings(pod), None) is None)
    times = (each.get("creationTimestamp") for each in starting)
    return tuple(datetime.fromisoformat(time) for time in times if time is not None)


def report(pods: Sequence[Object], deployment: Object | None) -> PodsReport:
    """Read the pods of one revision, in order of their names, and the conditions of its Deployment."""
    active = [pod for pod in pods if _active(pod)]
    unready = [pod for pod in active if _condition(pod, "Ready").get("status") != "True"]
    refusals = tuple(_refused_pods(deployment))
    findings = [*(finding for pod in active for finding in _findings(pod)), *refusals]
    wanted = int(deployment["spec"].get("replicas", 0)) if deployment is not None and refusals else 0
    return PodsReport(
        count=len(active),
        scheduled=sum(_condition(pod, "PodScheduled").get("status") == "True" for pod in active),
        ready=len(active) - len(unready),
        stuck=sum(next(_findings(pod), None) is not None for pod in unready),
        refused=max(wanted - len(active), 0),
        fetched=any(_succeeded(_fetch_status(pod)) for pod in active),
        fetching=any(_is_fetching(_fetch_status(pod)) for pod in active),
        findings=tuple(sorted(findings, key=lambda finding: _MOST_TELLING.index(finding.reason))),
        unready=next((probe for pod in unready if (probe := _failing_probe(pod))), ""),
    )


def _active(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") not in FINISHED


def _failing_probe(pod: Object) -> str:
    """The probe that keeps the first container that runs from being ready; what it answers no pod says."""
    specs = {each["name"]: each for each in pod.get("spec", {}).get("containers") or ()}
    for container in pod.get("status", {}).get("containerStatuses") or ():
        if container.get("ready") or "running" not in (container.get("state") or {}):
            continue
        spec = specs.get(container["name"], {})
        kind = "startup" if spec.get("startupProbe") and not container.get("started") else "readiness"
        probe = spec.get(f"{kind}Probe")
        if probe is not None:
            name = pod["metadata"]["name"]
            return (
                f"container {container['name']} of pod {name} runs, and its {kind} probe "
                f"({_probe_words(probe)}) does not succeed; kubectl describe pod {name} shows the answers"
            )
    return ""


def _probe_words(probe: Mapping[str, Any]) -> str:
    """What a probe asks."""
    if "httpGet" in probe:
        get = probe["httpGet"]
        return f"GET {get.get('path', '/')} on port {get.get('port')}"
    if "exec" in probe:
        return " ".join(probe["exec"].get("command") or ())
    handler = "grpc" if "grpc" in probe else "tcpSocket"
    return f"{handler} on port {probe.get(handler, {}).get('port')}"


def _findings(pod: Object) -> Iterator[PodFinding]:
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    for group in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(group) or ():
            if container.get("ready") or _succeeded(container):
                continue
            finding = next((f for rule in _CONTAINER_RULES if (f := rule(name, container))), None)
            if finding is not None:
                yield finding
                return
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        why = scheduled.get("message", "the scheduler gives no reason")
        yield PodFinding(Reason.UNSCHEDULABLE, f"pod {name} has no node: {why}")


def _refused_pods(deployment: Object | None) -> Iterator[PodFinding]:
    """Pods that the API server does not admit never exist: only the Deployment tells of them."""
    if deployment is None:
        return
    for condition in deployment.get("status", {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield PodFinding(
                Reason.QUOTA_EXCEEDED, f"the API server refuses pods: {condition.get('message', '')}"
            )


def _failed(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the container last ended, if it is not through: now, or before the attempt that runs."""
    for field in ("state", "lastState"):
        terminated = (container.get(field) or {}).get("terminated")
        if terminated is not None:
            return terminated if isinstance(terminated, Mapping) else None
    return None


def _own_words(pod: str, container: Mapping[str, Any]) -> PodFinding | None:
    """The container left a Termination: it knows best."""
    failed = _failed(container)
    if failed is None:
        return None
    try:
        said = Termination.model_validate_json(failed.get("message") or "")
    except ValidationError:
        return None
    if said.reason is TerminationReason.FETCHED:
        return None
    return PodFinding(Reason(said.reason.value), f"pod {pod}: {said.message}", container["name"])


def _out_of_memory(pod: str, container: Mapping[str, Any]) -> PodFinding | None:
    failed = _failed(container)
    if failed is None or failed.get("reason") != "OOMKilled":
        return None
    return PodFinding(
        Reason.OUT_OF_MEMORY,
        f"container {container['name']} of pod {pod} took too much memory: raise spec.resources.memory",
        container["name"],
    )


def _image(pod: str, container: Mapping[str, Any]) -> PodFinding | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in _IMAGE_REASONS:
        return None
    why = _BACK_OFF.sub("", waiting.get("message") or "") or "the node does not say why"
    return PodFinding(
        Reason.IMAGE_PULL_FAILED,
        f"image {container.get('image', '')} of container {container['name']} in pod {pod} cannot be had: "
        f"{_quote(why)}",
        container["name"],
    )


def _not_started(pod: str, container: Mapping[str, Any]) -> PodFinding | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in _START_REASONS:
        return None
    why = _quote(waiting.get("message") or "")
    return PodFinding(
        Reason.CRASH_LOOP,
        f"container {container['name']} of pod {pod} cannot be started: {why}",
        container["name"],
    )


def _crashed(pod: str, container: Mapping[str, Any]) -> PodFinding | None:
    failed = _failed(container)
    if failed is None:
        return None
    said = _quote(failed.get("message") or "") or "it left no message, look at its log"
    return PodFinding(
        Reason.CRASH_LOOP,
        f"container {container['name']} of pod {pod} ended with exit code {failed.get('exitCode')}: {said}",
        container["name"],
    )


_CONTAINER_RULES: Final[tuple[Callable[[str, Mapping[str, Any]], PodFinding | None], ...]] = (
    _own_words,
    _out_of_memory,
    _image,
    _not_started,
    _crashed,
)


def _quote(text: str) -> str:
    """The end of a message, where a traceback says what happened."""
    text = text.strip()
    return text if len(text) <= _LONGEST_QUOTE else "…" + text[-_LONGEST_QUOTE:]


def _condition(pod: Object, kind: str) -> Mapping[str, Any]:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _fetch_status(pod: Object) -> Mapping[str, Any]:
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    return next((status for status in statuses if status.get("name") == FETCH_CONTAINER), {})


def _succeeded(container: Mapping[str, Any]) -> bool:
    """An init container that is through. A server that ends with 0 has not succeeded: it is to run on."""
    terminated = (container.get("state") or {}).get("terminated")
    return (
        terminated is not None
        and terminated.get("exitCode") == 0
        and container.get("name") == FETCH_CONTAINER
    )


def _is_fetching(container: Mapping[str, Any]) -> bool:
    return "running" in (container.get("state") or {}) and _failed(container) is None
