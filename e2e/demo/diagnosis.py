"""What a person needs to see when the demo fails: conditions, events, pods and the ends of their logs."""

import json
from collections.abc import Iterator

from e2e.cluster import Cluster
from e2e.cluster.processes import ProcessError
from e2e.demo.setting import SYSTEM

LOG_LINES = 25
EVENT_LINES = 40


def diagnose(cluster: Cluster, namespaces: list[str]) -> str:
    """Everything worth reading, as text. What can't be had is replaced by the reason why."""
    parts = [
        ("InferenceServices", _conditions(cluster)),
        ("pods", _try(cluster, "get", "pods", "--all-namespaces", "--output=wide")),
        ("events", _events(cluster, [*namespaces, SYSTEM])),
        *_logs(cluster, [*namespaces, SYSTEM]),
    ]
    return "\n".join(f"--- {title}\n{text.rstrip()}" for title, text in parts)


def _try(cluster: Cluster, *arguments: str) -> str:
    try:
        return cluster.kubectl(*arguments, timeout_seconds=20)
    except ProcessError as error:
        return f"({error})"


def _conditions(cluster: Cluster) -> str:
    try:
        listed = json.loads(cluster.kubectl("get", "inferenceservices", "--all-namespaces", "--output=json"))
    except (ProcessError, ValueError) as error:
        return f"({error})"
    lines = []
    for service in listed["items"]:
        metadata, status = service["metadata"], service.get("status", {})
        if service["spec"].get("stopped"):
            continue
        lines.append(f"{metadata['namespace']}/{metadata['name']}: traffic {status.get('traffic')}")
        lines += [
            f"  {each['type']}={each['status']} {each['reason']}: {each.get('message', '')}"
            for each in status.get("conditions", [])
        ]
    return "\n".join(lines) or "(none)"


def _events(cluster: Cluster, namespaces: list[str]) -> str:
    listed = [
        _try(cluster, "get", "events", f"--namespace={name}", "--sort-by=.metadata.creationTimestamp")
        for name in namespaces
    ]
    return "\n".join("\n".join(text.splitlines()[-EVENT_LINES:]) for text in listed)


def _logs(cluster: Cluster, namespaces: list[str]) -> Iterator[tuple[str, str]]:
    for namespace in namespaces:
        for pod in _try(cluster, "get", "pods", f"--namespace={namespace}", "--output=name").split():
            if not pod.startswith("pod/"):
                continue
            options = ("--all-containers", "--prefix", f"--tail={LOG_LINES}", "--ignore-errors")
            yield (
                f"log of {namespace}/{pod}",
                _try(cluster, "logs", pod, f"--namespace={namespace}", *options),
            )
