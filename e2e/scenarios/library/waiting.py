"""Waiting for a state, and saying what was in its way when it does not come."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from e2e.scenarios.library.api import Api, Object, conditions, container_states

T = TypeVar("T")

POLL_SECONDS: Final = 0.25
LOG_LINES: Final = 40
SYSTEM: Final = "tailbound-system"


@dataclass(frozen=True)
class Unmet:
    """Not yet, and what is missing."""

    why: str


def wait_for(what: str, probe: Callable[[], T | Unmet], timeout_seconds: float) -> T:
    """The first value of `probe` that is not Unmet; AssertionError with the last reason if none comes."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        outcome = probe()
        if not isinstance(outcome, Unmet):
            return outcome
        if time.monotonic() >= deadline:
            raise AssertionError(f"no {what} within {timeout_seconds:g} s: {outcome.why}")
        time.sleep(POLL_SECONDS)


def stays(what: str, probe: Callable[[], T | Unmet], seconds: float) -> None:
    """`probe` holds for so long; AssertionError as soon as it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        outcome = probe()
        assert not isinstance(outcome, Unmet), f"{what} did not last: {outcome.why}"
        time.sleep(POLL_SECONDS)


def condition_lines(service: Object) -> list[str]:
    """Conditions as one line each."""
    return [
        f"{kind}={found['status']}/{found['reason']}: {found.get('message', '')}"
        for kind, found in sorted(conditions(service).items())
    ]


def pod_lines(pod: Object) -> list[str]:
    """Phase and container states of a pod."""
    lines = [f"pod {pod['metadata']['name']}: {pod.get('status', {}).get('phase')}"]
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["status"] != "True":
            lines.append(f"  {condition['type']}={condition['status']} {condition.get('message', '')}")
    for name, state in container_states(pod):
        lines.append(
            f"  {name}: ready={state['ready']} restarts={state['restartCount']} {state.get('state')}"
        )
        if state.get("lastState"):
            lines.append(f"  {name}: before: {state['lastState']}")
    return lines


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _pod_report(api: Api, pod: Object) -> str:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    logs = (
        f"  log of {container}:\n{_indented(api.log(namespace, name, container, lines=LOG_LINES))}"
        for container, _ in container_states(pod)
    )
    return "\n".join([*pod_lines(pod), *logs])


def namespace_report(api: Api, namespace: str) -> str:
    """Services, pods, logs and the last events of one namespace."""
    parts = [f"--- namespace {namespace}"]
    for service in api.list("InferenceService", namespace):
        parts.append(f"service {service['metadata']['name']}: generation {service['metadata']['generation']}")
        parts.extend(f"  {line}" for line in condition_lines(service))
        rest = {key: value for key, value in service.get("status", {}).items() if key != "conditions"}
        parts.append(f"  {rest}")
    parts.extend(_pod_report(api, pod) for pod in api.list("Pod", namespace))
    events = sorted(api.list("Event", namespace), key=lambda event: event["metadata"]["creationTimestamp"])
    parts.extend(
        f"event {event['involvedObject']['kind']}/{event['involvedObject'].get('name')} "
        f"{event.get('reason')}: {event.get('message')}"
        for event in events[-20:]
    )
    return "\n".join(parts)


def report(api: Api, *namespaces: str) -> str:
    """What a person would look at first: the scenario's namespaces, then the operator and the gateways."""
    return "\n".join(namespace_report(api, namespace) for namespace in (*namespaces, SYSTEM))
