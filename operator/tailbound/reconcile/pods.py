"""What the pods of one revision are stuck at, in words for a condition.

Per container the image of a model that is one, then the first rule of `_CONTAINER_RULES` that fits; per pod
the first container, then scheduling. Of several pods the one whose finding is most telling (`_MOST_TELLING`)
counts, then the first by name. A container that has failed keeps its finding while it is tried again, until
it is through: a condition must not flap with every attempt.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tailbound.api.conditions import PLACELESS, Reason
from tailbound.api.runtime_contract import FETCH_CONTAINER, Termination, TerminationReason
from tailbound.objects.deployment import Deployment
from tailbound.objects.kubectl import kubectl
from tailbound.objects.pod import ContainerProbe, ContainerStatus, Pod, Terminated
from tailbound.reconcile import dead_pods, model_images, unschedulable
from tailbound.reconcile.refused_pods import refusal_in
from tailbound.rollout.problem import Problem

WITHOUT_NODE: Final = frozenset({"Unschedulable", "SchedulerError"})
"""Reasons for which a pod has no node, as the scheduler writes them."""
_LONGEST_QUOTE: Final = 600
_IMAGE_REASONS: Final = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
_ABSENT_VALUE: Final = re.compile(r'(?:secret|configmap) "[^"]*" not found|couldn\'t find key', re.IGNORECASE)
_START_REASONS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_PULL_REMEDIES: Final = {
    True: "correct image of the chart, and copy the Secrets of image.pullSecrets to this namespace",
    False: "correct the image in the runtime, or name its credentials in spec.imagePullSecrets",
}
"""Remedies for an image that cannot be pulled, by whether it is that of the fetch container."""
# The kubelet alternates between an error and the same error behind this prefix.
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(?:: \w+: )?')
# What a container says itself goes before what is seen from outside.
_MOST_TELLING: Final = (
    *(Reason(reason.value) for reason in TerminationReason if reason is not TerminationReason.FETCHED),
    Reason.OUT_OF_MEMORY,
    Reason.IMAGE_PULL_FAILED,
    Reason.CRASH_LOOP,
    *sorted(PLACELESS),
    Reason.QUOTA_EXCEEDED,
    Reason.UNSCHEDULABLE,
)


@dataclass(frozen=True)
class PodFinding(Problem):
    """The problem that keeps a pod from going on, and the container that states it, if one does."""

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
    downloading: int
    """Pods that are downloading, and of which no attempt has failed."""
    findings: tuple[PodFinding, ...]
    """The most telling first."""
    dead: tuple[PodFinding, ...] = ()
    """Pods that have ended for good within the last minutes, the newest first."""
    over_limit: int = 0
    """Those of them that were evicted for what they used themselves."""
    wanted: int = 0
    """The number that the Deployment asks for."""
    unready: str = ""
    """Which probe of a container that runs does not succeed, or which init container goes on, in words; empty
    if there is none."""

    @property
    def fetching(self) -> bool:
        """At least one pod is downloading, and no attempt of it has failed."""
        return self.downloading > 0

    @property
    def obstacle(self) -> PodFinding | None:
        """The most telling finding, if there is any; of dead pods while none is ready."""
        return next(iter(self.findings if self.ready else (*self.findings, *self.dead)), None)

    @property
    def dies(self) -> PodFinding | None:
        """The newest finding of a dead pod, if each pod has ended once within minutes, and some pod twice."""
        return self.dead[0] if self.wanted and len(self.dead) >= max(2, self.wanted) else None

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


def most_restarts(pods: Sequence[Pod]) -> int:
    """Restarts of the container that was restarted most. Fetching again is no restart."""
    return max((container.restart_count for pod in pods for container in pod.container_statuses), default=0)


def unready_since(pods: Sequence[Pod]) -> tuple[datetime, ...]:
    """Since when each pod is not Ready, of those that run and are stuck at nothing that they say."""
    ready = (pod.condition("Ready") for pod in pods if next(_findings(pod), None) is None)
    times = (each.last_transition_time for each in ready if each.status == "False")
    return tuple(time for time in times if time is not None)


def starting_since(pods: Sequence[Pod]) -> tuple[datetime, ...]:
    """When each pod was made, of those that are not Ready yet and stuck at nothing that they say."""
    unready = (pod for pod in pods if not pod.finished and not pod.ready)
    times = (pod.creation_timestamp for pod in unready if next(_findings(pod), None) is None)
    return tuple(time for time in times if time is not None)


def report(pods: Sequence[Pod], deployment: Deployment | None) -> PodsReport:
    """Read the pods of one revision, in order of their names, and the conditions of its Deployment."""
    active = [pod for pod in pods if not pod.finished]
    unready = [pod for pod in active if not pod.ready]
    refusals = tuple(_refused_pods(deployment))
    findings = [*(finding for pod in active for finding in _findings(pod)), *refusals]
    wanted = deployment.replicas if deployment is not None else 0
    dead = dead_pods.newest_first(pods)
    fetches = [status for pod in active for status in pod.init_container_statuses if _fetches(status)]
    return PodsReport(
        count=len(active),
        scheduled=sum(pod.scheduled for pod in active),
        ready=len(active) - len(unready),
        stuck=sum(next(_findings(pod), None) is not None for pod in unready),
        refused=max(wanted - len(active), 0) if refusals else 0,
        fetched=any(_succeeded(status) for status in fetches),
        downloading=sum(status.running and _failed(status) is None for status in fetches),
        dead=tuple(PodFinding(dead_pods.reason_of(pod), dead_pods.message_of(pod)) for pod in dead),
        over_limit=sum(map(dead_pods.exceeds_its_limit, dead)),
        wanted=wanted,
        findings=tuple(sorted(findings, key=lambda finding: _MOST_TELLING.index(finding.reason))),
        unready=next((why for pod in unready if (why := _awaited_init(pod) or _failing_probe(pod))), ""),
    )


def _awaited_init(pod: Pod) -> str:
    """The init container of the runtime's for which the other containers wait; empty if there is none.

    | the first one that is not through | the server waits until             |
    |-----------------------------------|------------------------------------|
    | fetch, or one that does not run   | nothing is said: findings say that |
    | a sidecar that has not started    | its startup probe succeeds         |
    | any other that runs               | it has ended                       |
    """
    specs = {each.name: each for each in pod.init_containers}
    for status in pod.init_container_statuses:
        spec = specs.get(status.name)
        is_sidecar = spec is not None and spec.always_restarted
        if status.ready or _succeeded(status) or (is_sidecar and status.started):
            continue
        if spec is None or _fetches(status) or not status.running:
            return ""
        if not is_sidecar:
            logs = kubectl(pod.namespace, "logs", pod.name, "-c", status.name)
            return (
                f"init container {status.name} of pod {pod.name} goes on, and the server starts when it has "
                f"ended; {logs} shows what it does. One that is to go on "
                "beside the server needs restartPolicy Always"
            )
        probe = spec.startup_probe
        asked = f" ({probe.request})" if probe is not None else ""
        return (
            f"sidecar {status.name} of pod {pod.name} runs, and its startup probe{asked} fails, for which "
            f"the server waits; {kubectl(pod.namespace, 'describe pod', pod.name)} shows its answers"
        )
    return ""


def _failing_probe(pod: Pod) -> str:
    """The failing probe of the first running container that is not ready; its answers are not in the pod."""
    for status in pod.container_statuses:
        if status.ready or not status.running:
            continue
        kind, probe = _awaited_probe(pod, status)
        if probe is not None:
            return (
                f"container {status.name} of pod {pod.name} runs, and its {kind} probe ({probe.request}) "
                f"fails; {kubectl(pod.namespace, 'describe pod', pod.name)} shows its answers"
            )
    return ""


def _awaited_probe(pod: Pod, status: ContainerStatus) -> tuple[str, ContainerProbe | None]:
    """The probe that must succeed next; None if the container has no such probe."""
    container = next((each for each in pod.containers if each.name == status.name), None)
    startup = container.startup_probe if container is not None else None
    if startup is not None and not status.started:
        return "startup", startup
    return "readiness", container.readiness_probe if container is not None else None


def _findings(pod: Pod) -> Iterator[PodFinding]:
    for container in (*pod.init_container_statuses, *pod.container_statuses):
        if container.ready or _succeeded(container):
            continue
        finding = _model_image(pod, container)
        finding = finding or next((f for rule in _CONTAINER_RULES if (f := rule(pod.name, container))), None)
        if finding is not None:
            yield finding
            return
    scheduled = pod.condition("PodScheduled")
    if scheduled.status == "False" and scheduled.reason in WITHOUT_NODE:
        yield _without_node(pod.name, scheduled.reason, scheduled.message)


def _without_node(pod: str, scheduler: str, why: str) -> PodFinding:
    """The finding of a pod for which the scheduler has found no node."""
    reason = Reason.SCHEDULER_ERROR if scheduler == Reason.SCHEDULER_ERROR else unschedulable.reason_in(why)
    remedy = f". What to do: {unschedulable.REMEDY}" if reason in PLACELESS else ""
    said = f"{why.rstrip('.')}{remedy}" if remedy else why or "the scheduler gave no reason"
    return PodFinding(reason, f"pod {pod} has no node: {said}")


def _refused_pods(deployment: Deployment | None) -> Iterator[PodFinding]:
    """The pods that the API server does not admit: they never exist, and only the Deployment reports them."""
    if deployment is None:
        return
    failure = deployment.condition("ReplicaFailure")
    if failure.status == "True":
        refusal = refusal_in(failure.message)
        remedy = f". What to do: {refusal.remedy}" if refusal.remedy else ""
        yield PodFinding(refusal.reason, f"the API server refuses to create pods: {failure.message}{remedy}")


def _failed(container: ContainerStatus) -> Terminated | None:
    """The last termination of a container that has not succeeded: now, or before its present attempt."""
    return container.terminated or container.last_terminated


def _own_words(pod: str, container: ContainerStatus) -> PodFinding | None:
    """The finding of a container that wrote a Termination, which says more than its exit code."""
    failed = _failed(container)
    if failed is None:
        return None
    try:
        said = Termination.read(failed.message)
    except ValueError:
        return None
    if said.reason is TerminationReason.FETCHED:
        return None
    return PodFinding(Reason(said.reason.value), f"pod {pod}: {said.message}", container.name)


def _out_of_memory(pod: str, container: ContainerStatus) -> PodFinding | None:
    failed = _failed(container)
    if failed is None or failed.reason != "OOMKilled":
        return None
    return PodFinding(
        Reason.OUT_OF_MEMORY,
        f"container {container.name} of pod {pod} exceeded its memory limit: raise spec.resources.memory",
        container.name,
    )


def _model_image(pod: Pod, container: ContainerStatus) -> PodFinding | None:
    """The finding of a fetch container that waits for the image which is its model, not for its own."""
    reference = model_images.reference_of(pod) if _fetches(container) else None
    if reference is None or container.waiting_reason not in _IMAGE_REASONS:
        return None
    why = _BACK_OFF.sub("", container.waiting_message)
    if reference not in container.waiting_message:
        return None
    reason, remedy = model_images.failure_of(why.replace(reference, ""))
    message = (
        f"image {reference} of spec.model.uri cannot be pulled for pod {pod.name}: {_quote(why)}: {remedy}"
    )
    return PodFinding(reason, message, container.name)


def _image(pod: str, container: ContainerStatus) -> PodFinding | None:
    if container.waiting_reason not in _IMAGE_REASONS:
        return None
    why = _BACK_OFF.sub("", container.waiting_message) or "the node gives no reason"
    return PodFinding(
        Reason.IMAGE_PULL_FAILED,
        f"image {container.image} of container {container.name} in pod {pod} cannot be pulled: "
        f"{_quote(why)}. What to do: {_PULL_REMEDIES[_fetches(container)]}",
        container.name,
    )


def _not_started(pod: str, container: ContainerStatus) -> PodFinding | None:
    if container.waiting_reason not in _START_REASONS:
        return None
    why = _quote(container.waiting_message)
    absent = _ABSENT_VALUE.match(container.waiting_message) is not None
    remedy = ". What to do: create it, or correct spec.env, or env of the runtime" if absent else ""
    return PodFinding(
        Reason.CRASH_LOOP,
        f"container {container.name} of pod {pod} cannot be started: {why}{remedy}",
        container.name,
    )


def _crashed(pod: str, container: ContainerStatus) -> PodFinding | None:
    failed = _failed(container)
    if failed is None:
        return None
    said = _quote(failed.message) or "it wrote no termination message; see its log"
    return PodFinding(
        Reason.CRASH_LOOP,
        f"container {container.name} of pod {pod} ended with exit code {failed.exit_code}: {said}",
        container.name,
    )


_CONTAINER_RULES: Final[tuple[Callable[[str, ContainerStatus], PodFinding | None], ...]] = (
    _own_words,
    _out_of_memory,
    _image,
    _not_started,
    _crashed,
)


def _quote(text: str) -> str:
    """The last part of a message, which holds the cause in a traceback."""
    text = text.strip()
    return text if len(text) <= _LONGEST_QUOTE else "…" + text[-_LONGEST_QUOTE:]


def _fetches(container: ContainerStatus) -> bool:
    return container.name == FETCH_CONTAINER


def _succeeded(container: ContainerStatus) -> bool:
    """Whether an init container has succeeded.

    A server has not, even with exit code 0: it must keep running.
    """
    ended = container.terminated
    return ended is not None and ended.exit_code == 0 and _fetches(container)
