"""One scenario's namespace, and the words that scenarios are written in."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from e2e.scenarios.library import models
from e2e.scenarios.library.api import Api, Object, conditions
from e2e.scenarios.library.audit import AuditLog
from e2e.scenarios.library.manifests import inference_service
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.store import Store
from e2e.scenarios.library.tools import Helm, Kubectl
from e2e.scenarios.library.traffic import Client
from e2e.scenarios.library.waiting import SYSTEM, Unmet, condition_lines, wait_for

T = TypeVar("T")

SERVICE_LABEL: Final = "tailbound.dev/service"
REVISION_LABEL: Final = "tailbound.dev/revision"
CHILD_KINDS: Final = ("ControllerRevision", "Deployment", "Service", "PodDisruptionBudget")
OPERATOR: Final = "tailbound-operator"
GATEWAY: Final = "tailbound-gateway"

# How long things may take on a small machine that runs several scenarios at once.
READY_SECONDS: Final = 300
# A cause has to show in the status this soon after it is there to be seen.
TRUTH_SECONDS: Final = 180
GONE_SECONDS: Final = 240
# A new leader has looked at everything once this long after it got the Lease.
LOOKED_AT_EVERYTHING_SECONDS: Final = 15


@dataclass(frozen=True)
class World:
    """The cluster under test with Tailbound in it, from images of this tag.

    Without an audit log it is somebody else's cluster.
    """

    api: Api
    kubectl: Kubectl
    helm: Helm
    store: Store
    client: Client
    audit: AuditLog | None
    tag: str


@dataclass(frozen=True)
class Scene:
    """A fresh namespace in that cluster."""

    world: World
    namespace: str

    @property
    def api(self) -> Api:
        """The API server."""
        return self.world.api

    def model(self, slope: float, offset: float = 0.0) -> Model:
        """A model in the store that no other scenario uses."""
        unique = f"{self.namespace}-{uuid.uuid4().hex[:6]}"
        return self.world.store.put(models.affine(unique, slope, offset))

    def manifest(self, name: str, model: Model, /, **spec: Any) -> Object:
        """An InferenceService of this namespace."""
        return inference_service(self.namespace, name, self.world.store, model, **spec)

    def apply(self, name: str, model: Model, /, **spec: Any) -> Object:
        """Apply an InferenceService; the whole spec is given each time."""
        return self.api.apply(self.manifest(name, model, **spec))

    def serve(self, name: str, model: Model, /, **spec: Any) -> Object:
        """Apply an InferenceService and wait until it serves."""
        self.apply(name, model, **spec)
        return self.ready(name)

    def service(self, name: str) -> Object:
        """The InferenceService as it is now."""
        return self.api.need("InferenceService", name, self.namespace)

    def condition(
        self,
        name: str,
        kind: str,
        status: str,
        reason: str = "",
        says: str = "",
        *,
        within: float = READY_SECONDS,
    ) -> Object:
        """Wait for a condition that speaks about the newest spec; `says` is a part of its message."""
        wanted = f"{kind}={status}" + (f"/{reason}" if reason else "") + (f" saying {says!r}" if says else "")

        def probe() -> Object | Unmet:
            service = self.service(name)
            found = conditions(service).get(kind)
            if (
                found is not None
                and found["status"] == status
                and found.get("observedGeneration") == service["metadata"]["generation"]
                and reason in ("", found["reason"])
                and says.lower() in found.get("message", "").lower()
            ):
                return found
            return Unmet("; ".join(condition_lines(service)) or "no conditions yet")

        return self.wait(f"{wanted} of {name}", probe, within)

    def ready(self, name: str, *, within: float = READY_SECONDS) -> Object:
        """Wait for Ready=True of the newest spec; the InferenceService."""
        self.condition(name, "Ready", "True", within=within)
        return self.service(name)

    def all_ready(self, names: Iterable[str]) -> None:
        """Wait for several, which become ready side by side."""
        for name in names:
            self.ready(name)

    def not_ready(self, name: str, reason: str, says: str = "", *, within: float = TRUTH_SECONDS) -> Object:
        """Wait for Ready=False with this reason."""
        return self.condition(name, "Ready", "False", reason, says, within=within)

    def predicts(self, name: str, model: Model, *, within: float = 30) -> None:
        """Wait until the answer through the service URL is that of this model."""
        self.wait(
            f"prediction of {model.name} from {name}",
            lambda: self.world.client.predicts(self.namespace, name, model),
            within,
        )

    def wait(self, what: str, probe: Callable[[], T | Unmet], within: float) -> T:
        """wait_for; the state of the cluster is added to the report of the scenario."""
        return wait_for(what, probe, within)

    def children(self, name: str) -> dict[str, list[Object]]:
        """What the operator made for a service, by kind."""
        return {kind: self.api.list(kind, self.namespace, f"{SERVICE_LABEL}={name}") for kind in CHILD_KINDS}

    def pods(self, name: str) -> list[Object]:
        """The serving pods of a service that are not on their way out."""
        return [
            pod
            for pod in self.api.list("Pod", self.namespace, f"{SERVICE_LABEL}={name}")
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def deployment(self, name: str) -> Object:
        """The Deployment of the revision that has the traffic."""
        revision = serving(self.service(name))
        return self.api.need("Deployment", revision, self.namespace)

    def gone(self, kind: str, name: str, *, within: float = GONE_SECONDS) -> None:
        """Wait until an object of this namespace does not exist."""
        self.wait(
            f"end of {kind} {name}",
            lambda: Unmet("it exists") if self.api.get(kind, name, self.namespace) else True,
            within,
        )


def serving(service: Object) -> str:
    """The one revision that gets all requests; ValueError if several share them, or none gets any."""
    (revision,) = (each["revision"] for each in service["status"]["traffic"]["backends"] if each["weight"])
    return str(revision)


def workload(api: Api, name: str, namespace: str = SYSTEM) -> list[Object]:
    """The pods of one of Tailbound's own Deployments."""
    selector = api.need("Deployment", name, namespace)["spec"]["selector"]["matchLabels"]
    return api.list("Pod", namespace, ",".join(f"{key}={value}" for key, value in selector.items()))


def restarts(pods: list[Object]) -> Mapping[str, tuple[str, int]]:
    """Uid and summed restarts of pods by name: equal before and after means that nothing restarted."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(state["restartCount"] for state in pod["status"].get("containerStatuses", [])),
        )
        for pod in pods
    }


def scale(world: World, name: str, replicas: int) -> None:
    """Scale one of Tailbound's own Deployments and wait until exactly so many pods exist and are ready."""
    world.kubectl.run("scale", "-n", SYSTEM, f"deployment/{name}", f"--replicas={replicas}")

    def probe() -> bool | Unmet:
        pods = workload(world.api, name)
        ready = world.api.need("Deployment", name, SYSTEM).get("status", {}).get("readyReplicas", 0)
        settled = len(pods) == replicas and ready == replicas
        return True if settled else Unmet(f"{len(pods)} pods, {ready} ready")

    wait_for(f"{name} at {replicas} replicas", probe, 240)


def leader(api: Api) -> Object:
    """The operator pod that holds the Lease."""
    leases = [lease for lease in api.list("Lease", SYSTEM) if OPERATOR in lease["metadata"]["name"]]
    assert len(leases) == 1, f"leases: {[lease['metadata']['name'] for lease in leases]}"
    holder = str(leases[0]["spec"].get("holderIdentity") or "")
    found = [pod for pod in workload(api, OPERATOR) if holder.startswith(pod["metadata"]["name"])]
    assert found, f"no operator pod is the holder {holder!r}"
    return found[0]
