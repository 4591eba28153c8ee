"""What a simulated cluster holds: objects of one service, its pods, gateways, and limits of the nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tailbound.api.names import HARDWARE_CLASS_ANNOTATION, REVISION_LABEL
from tailbound.objects.fields import Object

from tests.support.simulated.gateways import START, Gateway
from tests.support.simulated.objects import service


@dataclass
class ClusterState:
    """One service and its surroundings."""

    service: dict[str, Any] = field(default_factory=service)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    gateways: dict[str, Gateway] = field(
        default_factory=lambda: {"gateway-a": Gateway(), "gateway-b": Gateway()}
    )
    versions: int = 1
    pod_count: int = 0
    devices: int = 1000
    """Places for pods on the nodes."""
    placed: set[str] = field(default_factory=set)
    """Pods that have one."""
    quota: int = 1000
    """Pods that the API server admits."""
    refused: set[str] = field(default_factory=set)
    """Deployments of which it refuses some."""
    denied: dict[str, str] = field(default_factory=dict)
    """By number of a revision (r2), what the API server answers instead of admitting a pod of it."""
    unfit: dict[str, str] = field(default_factory=dict)
    """By number of a revision, what the scheduler says of its pods, for which no node is fit."""
    full_classes: set[str] = field(default_factory=set)
    """Hardware classes without room, of revisions that list several."""
    cut_off: set[str] = field(default_factory=set)
    """Pods on a node that is gone: they are never ready, and nobody confirms their end."""
    seen_ready: set[str] = field(default_factory=set)
    """Revisions with ready endpoints when the last decision was made."""
    now: datetime = START

    def of(self, kind: str) -> tuple[dict[str, Any], ...]:
        """The stored objects of a kind."""
        return tuple(stored for (stored_kind, _), stored in self.objects.items() if stored_kind == kind)

    def names(self, kind: str) -> list[str]:
        """Names of the stored objects of a kind, oldest first."""
        return [name for stored_kind, name in self.objects if stored_kind == kind]

    def needed(self, revision: str) -> int:
        """Pods of a revision with all requests."""
        return int(self.service["spec"].get("scaling", {}).get("min", 1))

    def ready_pods(self, revision: str | None = None) -> int:
        """Ready pods of a revision, or of all."""
        return sum(
            bool(pod["status"].get("ready"))
            for pod in self.pods.values()
            if revision in (None, pod["metadata"]["labels"][REVISION_LABEL])
        )

    def marked(self, mark: str) -> set[str]:
        """Revisions with this mark."""
        return {
            stored["metadata"]["name"]
            for stored in self.of("ControllerRevision")
            if f"tailbound.dev/{mark}" in stored["metadata"].get("annotations", {})
        }

    def stable(self) -> str | None:
        """The stable revision: of several with the mark the one that was promoted last."""
        marked = [self.objects["ControllerRevision", name]["metadata"] for name in self.marked("stable")]
        newest = max(marked, key=lambda each: each["annotations"]["tailbound.dev/promoted-at"], default=None)
        return None if newest is None else str(newest["name"])


def number_of(name: str) -> str:
    """r2 of the revision churn-r2-6b9c, and of its pods."""
    return name.split("-")[1]


def weights_in(status: Object) -> dict[str, int]:
    """status.traffic by revision; nothing where somebody broke it."""
    traffic = status.get("traffic")
    backends = traffic.get("backends", []) if isinstance(traffic, dict) else []
    return {backend["revision"]: backend["weight"] for backend in backends}


def class_of(body: Mapping[str, Any]) -> str | None:
    """The hardware class of a pod or a template, where its revision lists several."""
    found: str | None = body["metadata"].get("annotations", {}).get(HARDWARE_CLASS_ANNOTATION)
    return found
