"""A small pure model of what surrounds `decide`: API server, controllers, kubelet and gateways.

It is strict where the real ones are: a create fails on an existing object, an apply or a delete on another
uid or an older resourceVersion. It checks at every write what must never happen (`Unsafe`).
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tailbound.api.names import REVISION_LABEL
from tailbound.api.traffic import AppliedRoute, Observed, ServiceObservation
from tailbound.reconcile.decide import decide, wanted_rendering
from tailbound.reconcile.model import (
    Apply,
    Create,
    Delete,
    Object,
    Observation,
    Obstacle,
    Plan,
    RenderFailed,
    Settings,
    Sizes,
    Unread,
    Write,
)
from tailbound.revisions.template import expand
from tailbound.rollout.counters import Classes, Reading, Unknown
from tailbound.rollout.polls import Answers
from tailbound.telemetry.prometheus import Series, Unavailable

NAME, NAMESPACE, UID = "churn", "risk", "uid-of-churn"
FRONTS = {NAME, f"{NAME}-preview"}
"""Services without pods of their own."""
SETTINGS = Settings(
    operator_namespace="tailbound-system",
    gateway_service="tailbound-gateway",
    cluster_domain="cluster.local",
    fetch_image="registry.example.com/tailbound:1",
    image_pull_policy="IfNotPresent",
)
START = datetime(2026, 1, 1, tzinfo=UTC)


NO_NODE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        }
    ],
}


class Unsafe(AssertionError):  # noqa: N818 - what a test fails with
    """Something happened that would have cost requests."""


def spec(**fields: Any) -> dict[str, Any]:
    """The smallest valid spec, and these fields."""
    model = {"uri": "https://models.example.com/churn.onnx", "format": "onnx", "sha256": "a" * 64}
    return {"model": model, **fields}


def service(generation: int = 1, **fields: Any) -> dict[str, Any]:
    """An InferenceService with `spec(**fields)`."""
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "resourceVersion": "1",
            "generation": generation,
        },
        "spec": spec(**fields),
    }


def hardware_class(name: str = "cpu", *, default: bool = True, **fields: Any) -> dict[str, Any]:
    """A HardwareClass."""
    annotations = {"tailbound.dev/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": fields}


def runtime(name: str = "onnxruntime", *, priority: int = 0, **server: Any) -> dict[str, Any]:
    """A ServingRuntime or ClusterServingRuntime for onnx."""
    return {
        "metadata": {"name": name},
        "spec": {
            "formats": [{"name": "onnx"}],
            "priority": priority,
            "server": {
                "image": "registry.example.com/runtime:1",
                "args": ["--model={{ model.path }}", "--revision={{ revision.name }}"],
                "ports": [
                    {"name": "http", "containerPort": 8080},
                    {"name": "metrics", "containerPort": 9090},
                ],
                **server,
            },
        },
    }


@dataclass
class Gateway:
    """One gateway pod: what it has applied, and whether it can be read."""

    route: dict[str, Any] | None = None
    generation: int = 0
    readable: bool = True
    started: int = 0
    """How often its Envoy was restarted."""
    counted: dict[str, Classes] = field(default_factory=dict)
    """Requests by revision since Envoy started."""

    @property
    def backends(self) -> set[str]:
        """The revisions that it sends requests to."""
        return {
            backend["revision"] for backend in (self.route or {}).get("backends", []) if backend["weight"]
        }

    def serve(self, requests: int, slow: Mapping[str, float], ready: set[str]) -> None:
        """Share requests out as the weights say; `slow` is the fraction of slow ones by revision."""
        shares = {
            backend["revision"]: backend["weight"]
            for backend in (self.route or {}).get("backends", [])
            if backend["revision"] in ready
        }
        for revision, weight in shares.items():
            judged = round(requests * weight / sum(shares.values()))
            late = round(judged * slow.get(revision, 0.0))
            before = self.counted.get(revision, Classes())
            self.counted[revision] = before + Classes(good=judged - late, slow=late)

    def restart(self) -> None:
        """Envoy begins to count anew."""
        self.started += 1
        self.counted = {}

    def reading(self) -> Reading | Unknown:
        """Its counters."""
        if not self.readable or self.route is None:
            return Unknown.UNKNOWN
        return Reading(str(self.started), dict(self.counted))

    def report(self, key: str) -> Observed | Unread:
        """Its /observed for the service NAMESPACE/NAME."""
        if not self.readable:
            return Unread("timed out after 2 s")
        applied = None
        if self.route is not None:
            applied = AppliedRoute(generation=self.generation, traffic_generation=self.route["generation"])
        return Observed(
            envoy_start_time=START,
            synced=True,
            services={key: ServiceObservation(applied=applied)},
        )


@dataclass
class Simulator:
    """One service and its surroundings."""

    service: dict[str, Any] = field(default_factory=service)
    hardware_classes: Mapping[str, Object] = field(default_factory=lambda: {"cpu": hardware_class()})
    runtimes: Mapping[str, Object] = field(default_factory=dict)
    cluster_runtimes: Mapping[str, Object] = field(default_factory=lambda: {"onnxruntime": runtime()})
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    gateways: dict[str, Gateway] = field(
        default_factory=lambda: {"gateway-a": Gateway(), "gateway-b": Gateway()}
    )
    obstacles: tuple[Obstacle, ...] = ()
    sizes: Sizes | None = None
    now: datetime = START
    versions: int = 1
    pod_count: int = 0
    polls: bool = False
    """The last plan asks for counters."""
    queries: tuple[str, ...] = ()
    """What the last plan asks of Prometheus."""
    prometheus: Callable[[str], tuple[Series, ...] | Unavailable] = field(default=lambda _: ())
    """Answers a query."""
    devices: int = 1000
    """Places for pods on the nodes."""
    placed: set[str] = field(default_factory=set)
    """Pods that have one."""
    unscraped: str = ""
    """Why Prometheus has no counters of the gateways."""

    # The operator.

    def observation(self) -> Observation:
        """What the operator sees now."""
        key = "{namespace}/{name}".format_map(self.service["metadata"])
        return Observation(
            service=self.service,
            hardware_classes=self.hardware_classes,
            runtimes=self.runtimes,
            cluster_runtimes=self.cluster_runtimes,
            revisions=self.of("ControllerRevision"),
            deployments=self.of("Deployment"),
            services=self.of("Service"),
            disruption_budgets=self.of("PodDisruptionBudget"),
            pods=tuple(self.pods.values()),
            endpoint_slices=self.endpoint_slices(),
            gateways={name: gateway.report(key) for name, gateway in self.gateways.items()},
            settings=SETTINGS,
            obstacles=self.obstacles,
            readings=self.readings() if self.polls else None,
            sizes=self.sizes,
        )

    def readings(self) -> Answers:
        """A round of counters."""
        by_pod = {name: gateway.reading() for name, gateway in self.gateways.items()}
        metrics = {query: self.prometheus(query) for query in self.queries}
        return Answers(by_pod, frozenset(by_pod), self.unscraped, metrics)

    def plan(self) -> Plan:
        """The decision on what is, with every input left as it was."""
        observation = self.observation()
        before = copy.deepcopy(observation)
        request = wanted_rendering(observation)
        rendering = expand(request) if request is not None else None
        assert rendering is None or isinstance(rendering, RenderFailed) or json.loads(rendering.template_json)
        plan = decide(observation, rendering, self.now)
        assert observation == before
        return plan

    def reconcile(self, *, crash_after: int | None = None) -> Plan:
        """Decide and execute; `crash_after` writes the operator dies."""
        plan = self.plan()
        self.polls, self.queries = plan.poll_counters, plan.queries
        self.now += timedelta(seconds=1)
        for done, write in enumerate(plan.writes):
            if done == crash_after:
                return plan
            self.write(write)
        if plan.status is not None and crash_after is None:
            self.check_weight(plan.status)
            self.service["status"] = copy.deepcopy(dict(plan.status))
            self.touch(self.service)
        return plan

    def settle(self, rounds: int = 60) -> None:
        """Everything works: pods get ready, gateways follow, time passes, until nothing changes any more."""
        for gateway in self.gateways.values():
            gateway.readable = True
        for _ in range(rounds):
            self.run_controllers()
            for name in list(self.pods):
                self.make_ready(name)
            for name in self.gateways:
                self.sync(name)
            plan = self.reconcile()
            if plan.writes or plan.status is not None:
                continue
            if plan.requeue_after is None:
                return
            self.now += plan.requeue_after
        raise AssertionError(f"no fixed point after {rounds} rounds: {plan}")

    # The API server.

    def of(self, kind: str) -> tuple[dict[str, Any], ...]:
        """The stored objects of a kind."""
        return tuple(stored for (stored_kind, _), stored in self.objects.items() if stored_kind == kind)

    def touch(self, stored: dict[str, Any]) -> None:
        """A new version of an object."""
        self.versions += 1
        stored["metadata"]["resourceVersion"] = str(self.versions)

    def write(self, write: Write) -> None:
        """One write, as strict as the real server."""
        if isinstance(write, Create):
            key = (write.body["kind"], write.body["metadata"]["name"])
            assert key not in self.objects, f"{key} exists"
            stored = as_stored(write.body)
            stored["metadata"]["uid"] = f"uid-{self.versions}"
            self.objects[key] = stored
            self.touch(stored)
        elif isinstance(write, Apply):
            self._apply(write.body)
        else:
            self._delete(write)

    def _apply(self, body: Object) -> None:
        key = (body["kind"], body["metadata"]["name"])
        old = self.objects[key]
        for guard in ("uid", "resourceVersion"):
            assert body["metadata"][guard] == old["metadata"][guard], f"{key}: {guard} does not match"
        stored = as_stored(body)
        if key[0] == "ControllerRevision":
            assert (stored["data"], stored["revision"]) == (old["data"], old["revision"]), "data is immutable"
        if key[0] == "Deployment":
            assert stored["spec"]["selector"] == old["spec"]["selector"]
            self.check_stable(key[1], stored["spec"]["replicas"], old["spec"]["replicas"])
            if stored["spec"]["replicas"] < old["spec"]["replicas"] and stored["spec"]["replicas"] == 0:
                self.check_last(key[1])
        if "status" in old:
            stored["status"] = old["status"]
        self.objects[key] = stored
        self.touch(stored)

    def _delete(self, write: Delete) -> None:
        stored = self.objects[write.kind, write.name]
        assert (write.uid, write.resource_version) == (
            stored["metadata"]["uid"],
            stored["metadata"]["resourceVersion"],
        )
        if write.kind in ("Deployment", "Service"):
            self.check_unused(write.name)
        if write.kind == "Deployment":
            self.check_stable(write.name, 0, stored["spec"]["replicas"])
            stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.touch(stored)
        else:
            del self.objects[write.kind, write.name]

    def edit(self, **fields: Any) -> None:
        """The user edits the spec."""
        self.service["spec"].update(fields)
        self.service["metadata"]["generation"] += 1
        self.touch(self.service)

    def annotate(self, **values: str) -> None:
        """Somebody sets an annotation: `rollback_to` stands for tailbound.dev/rollback-to."""
        annotations = self.service["metadata"].setdefault("annotations", {})
        annotations |= {f"tailbound.dev/{name.replace('_', '-')}": value for name, value in values.items()}
        self.touch(self.service)

    # Controllers, kubelet, gateways.

    def run_controllers(self) -> None:
        """Deployments get their pods, and deleted ones go with theirs."""
        for (kind, name), stored in list(self.objects.items()):
            if kind != "Deployment":
                continue
            leaving = "deletionTimestamp" in stored["metadata"]
            wanted = 0 if leaving else stored["spec"]["replicas"]
            mine = [
                pod for pod, body in self.pods.items() if body["metadata"]["labels"][REVISION_LABEL] == name
            ]
            for pod in mine[wanted:]:
                del self.pods[pod]
            for _ in range(wanted - len(mine)):
                self._add_pod(name, stored["spec"]["template"])
            if leaving:
                del self.objects[kind, name]
            else:
                self.update_deployment_status(name)
        self._schedule()

    def _schedule(self) -> None:
        self.placed &= set(self.pods)
        for name in self.pods:
            if name in self.placed:
                continue
            if len(self.placed) < self.devices:
                self.placed.add(name)
            else:
                self.pods[name] = {**self.pods[name], "status": NO_NODE}

    def _add_pod(self, revision: str, template: Mapping[str, Any]) -> None:
        self.pod_count += 1
        name = f"{revision}-{self.pod_count}"
        self.pods[name] = {
            "metadata": {"name": name, "labels": dict(template["metadata"]["labels"])},
            "status": {"phase": "Pending", "conditions": []},
        }

    def make_ready(self, pod: str, ready: bool = True) -> None:
        """The pod becomes ready, or is no longer; one without a place cannot."""
        if pod not in self.placed:
            return
        body = copy.deepcopy(self.pods[pod])
        body["status"] = ready_status() if ready else {**ready_status(), "phase": "Running"}
        body["status"]["ready"] = ready
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def crash(self, pod: str, restarts: int) -> None:
        """The pod's server has ended again, and waits for another try."""
        if pod not in self.placed:
            return
        ended = {"terminated": {"exitCode": 1, "message": "no such operator"}}
        server = {"name": "server", "ready": False, "restartCount": restarts, "state": {}, "lastState": ended}
        body = copy.deepcopy(self.pods[pod])
        body["status"] = {"phase": "Running", "containerStatuses": [server], "ready": False}
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def update_deployment_status(self, revision: str) -> None:
        """status.replicas and readyReplicas, as the Deployment controller counts."""
        stored = self.objects.get(("Deployment", revision))
        if stored is None:
            return
        mine = [p for p in self.pods.values() if p["metadata"]["labels"][REVISION_LABEL] == revision]
        status = {"replicas": len(mine), "readyReplicas": sum(bool(p["status"].get("ready")) for p in mine)}
        if stored.get("status") != status:
            stored["status"] = status
            self.touch(stored)

    def ready_revisions(self) -> set[str]:
        """Revisions with a ready pod and a Service that selects it."""
        ready = {
            p["metadata"]["labels"][REVISION_LABEL] for p in self.pods.values() if p["status"].get("ready")
        }
        return {revision for revision in ready if ("Service", revision) in self.objects}

    def endpoint_slices(self) -> tuple[dict[str, Any], ...]:
        """One slice per revision's Service."""
        slices = []
        for revision in sorted({name for kind, name in self.objects if kind == "Service"} - FRONTS):
            endpoints = [
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"ready": bool(pod["status"].get("ready"))},
                    "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]},
                }
                for pod in self.pods.values()
                if pod["metadata"]["labels"][REVISION_LABEL] == revision
            ]
            slices.append(
                {
                    "metadata": {"name": f"{revision}-x", "labels": {REVISION_LABEL: revision}},
                    "endpoints": endpoints,
                }
            )
        return tuple(slices)

    def traffic(self, requests: int = 1000, **slow: float) -> None:
        """Every gateway shares out requests; `slow` by the revision's number, as in r2=0.1."""
        fractions = {
            name: slow[number]
            for name in self.names("ControllerRevision")
            if (number := name.split("-")[1]) in slow
        }
        for gateway in self.gateways.values():
            gateway.serve(requests, fractions, self.ready_revisions())

    def sync(self, name: str) -> None:
        """A gateway applies what the service says now; without a status it keeps what it has."""
        traffic = self.service.get("status", {}).get("traffic")
        if traffic is not None:
            self.gateways[name].route = copy.deepcopy(traffic)
            self.gateways[name].generation = self.service["metadata"]["generation"]

    # What must never happen.

    def check_unused(self, revision: str) -> None:
        """No gateway sends requests to a revision that is taken away."""
        users = [name for name, gateway in self.gateways.items() if revision in gateway.backends]
        if users:
            raise Unsafe(f"{revision} is taken away while {users} send requests to it")

    def check_last(self, revision: str) -> None:
        """Only a dead pod gives up its place to another revision before its requests have gone."""
        in_place = self.service["spec"].get("rollout", {}).get("capacity", "surge") != "surge"
        if not in_place or self.ready_pods(revision):
            self.check_unused(revision)

    def check_weight(self, status: Object) -> None:
        """Weight is on ready endpoints unless none is ready anywhere, and no rejected revision gets any."""
        ready, rejected = self.ready_revisions(), self.marked("rejected-at")
        recreates = self.service["spec"].get("rollout", {}).get("strategy") == "recreate"
        before = weights_in(self.service.get("status") or {})
        for name, weight in weights_in(status).items():
            others = ready - rejected - {name}
            if name not in ready and others and not recreates:
                raise Unsafe(f"weight on {name}, while {others} are ready")
            if name in rejected and weight > before.get(name, 0) and self.marked("stable") - {name}:
                raise Unsafe(f"{name} was rejected, and gets {weight} percent")

    def check_stable(self, name: str, replicas: int, before: int) -> None:
        """The stable revision keeps all its pods; `recreate` and `stopped` are for giving them up.

        In place it gives up ready pods one at a time, never the last, and only where all others are ready;
        and those that are not ready.
        """
        wanted = self.service["spec"]
        rollout, least = wanted.get("rollout", {}), wanted.get("scaling", {}).get("min", 1)
        gives_up = wanted.get("stopped") or rollout.get("strategy") == "recreate"
        if name not in self.marked("stable") or replicas >= least or gives_up:
            return
        in_place = rollout.get("capacity", "surge") != "surge"
        gone = max(min(before, self.ready_pods(name)) - replicas, 0)
        if not in_place or (gone and (replicas == 0 or gone > 1 or self.ready_pods() - gone < least - 1)):
            raise Unsafe(f"stable {name} is to have {replicas} pods")

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

    # Questions.

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = next(c for c in self.service["status"]["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        """Message of a condition."""
        found = next(c for c in self.service["status"]["conditions"] if c["type"] == kind)
        return str(found["message"])

    def names(self, kind: str) -> list[str]:
        """Names of the stored objects of a kind, oldest first."""
        return [name for stored_kind, name in self.objects if stored_kind == kind]

    @property
    def rollout(self) -> dict[str, Any]:
        """status.rollout."""
        found: dict[str, Any] = self.service["status"]["rollout"]
        return found

    def weights(self) -> dict[str, int]:
        """status.traffic by the number of the revision."""
        backends = self.service["status"]["traffic"]["backends"]
        return {backend["revision"].split("-")[1]: backend["weight"] for backend in backends}

    def serving(self) -> list[str]:
        """Where status.traffic points."""
        return [backend["revision"] for backend in self.service["status"]["traffic"]["backends"]]


def weights_in(status: Object) -> dict[str, int]:
    """status.traffic by revision; nothing where somebody broke it."""
    traffic = status.get("traffic")
    backends = traffic.get("backends", []) if isinstance(traffic, dict) else []
    return {backend["revision"]: backend["weight"] for backend in backends}


def ready_status() -> dict[str, Any]:
    """Status of a pod that is through with everything."""
    return {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [
            {"name": "fetch", "ready": True, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ],
        "containerStatuses": [{"name": "server", "ready": True, "state": {"running": {}}}],
    }


def as_stored(body: Object) -> dict[str, Any]:
    """What the API server makes of a body: empty values are gone, defaults are there."""
    stored: dict[str, Any] = without_empty(copy.deepcopy(dict(body)))
    if body["kind"] == "Deployment":
        stored["spec"].setdefault("replicas", 0)
        stored["spec"]["template"]["spec"].update(
            {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        )
        for container in stored["spec"]["template"]["spec"]["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if "httpGet" in container.get(probe, {}):
                    container[probe]["httpGet"]["scheme"] = "HTTP"
    if body["kind"] == "Service":
        stored["spec"].update({"sessionAffinity": "None", "internalTrafficPolicy": "Cluster"})
    return stored


def without_empty(value: Any) -> Any:
    """Without what Go's omitempty leaves out. An emptyDir stays: it is a pointer."""
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {
            key: item for key, item in kept.items() if key == "emptyDir" or item not in ("", [], {}, None)
        }
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    return value
