"""A small pure model of the cluster around one service: API server, controllers, kubelet and gateways.

It is strict where the real ones are: a create fails on an existing object, an apply or a delete on another
uid or an older resourceVersion. It checks at every write what must never happen (`UnsafeError`).
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tailbound.api.names import REVISION_LABEL
from tailbound.reconcile.model import Apply, Create, Delete, DryRun, Object, Write

from tests.unit.reconcile.gateways import START, Gateway
from tests.unit.reconcile.objects import NAME, NO_NODE, OVER_QUOTA, STARTING, as_stored, ready_status, service

GRACE = timedelta(seconds=30)
"""That a pod has to end."""

FRONTS = {NAME, f"{NAME}-preview"}
"""Services without pods of their own."""

TAKES_OVER = {"RollingOut", "PromotedManually"}
"""Reasons of a rollout that ends with its promotion."""


class UnsafeError(AssertionError):
    """Something happened that would have cost requests."""


@dataclass
class Cluster:
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
    cut_off: set[str] = field(default_factory=set)
    """Pods on a node that is gone: they are never ready, and nobody confirms their end."""
    seen_ready: set[str] = field(default_factory=set)
    """Revisions with ready endpoints when the last decision was made."""
    now: datetime = START

    # The API server.

    def of(self, kind: str) -> tuple[dict[str, Any], ...]:
        """The stored objects of a kind."""
        return tuple(stored for (stored_kind, _), stored in self.objects.items() if stored_kind == kind)

    def names(self, kind: str) -> list[str]:
        """Names of the stored objects of a kind, oldest first."""
        return [name for stored_kind, name in self.objects if stored_kind == kind]

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
        elif isinstance(write, DryRun):
            self._check_guards(write.body)
        else:
            self._delete(write)

    def _check_guards(self, body: Object) -> tuple[tuple[str, str], dict[str, Any]]:
        key = (body["kind"], body["metadata"]["name"])
        old = self.objects[key]
        for guard in ("uid", "resourceVersion"):
            assert body["metadata"][guard] == old["metadata"][guard], f"{key}: {guard} does not match"
        return key, old

    def _apply(self, body: Object) -> None:
        key, old = self._check_guards(body)
        stored = as_stored(body)
        if key[0] == "ControllerRevision":
            assert (stored["data"], stored["revision"]) == (old["data"], old["revision"]), "data is immutable"
            self.check_promotion(stored, old)
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
            own = [
                pod for pod, body in self.pods.items() if body["metadata"]["labels"][REVISION_LABEL] == name
            ]
            mine = [pod for pod in own if "deletionTimestamp" not in self.pods[pod]["metadata"]]
            # As a ReplicaSet does: of those that are not ready first, and the youngest of them.
            mine.sort(key=lambda pod: not self.pods[pod]["status"].get("ready"))
            for pod in mine[wanted:]:
                self.end(pod)
            missing = max(wanted - len(mine), 0)
            admitted = min(missing, max(self.quota - len(self.pods), 0))
            for _ in range(admitted):
                self._add_pod(name, stored["spec"]["template"])
            self.refused = self.refused - {name} | ({name} if admitted < missing else set())
            if leaving and not set(own) & set(self.pods):
                del self.objects[kind, name]
            elif not leaving:
                self.update_deployment_status(name)
        self._schedule()

    def end(self, pod: str) -> None:
        """A pod is deleted: it goes at once, unless nobody is there to end it."""
        if pod not in self.cut_off:
            del self.pods[pod]
            return
        deleted = (self.now + GRACE).isoformat()
        body = copy.deepcopy(self.pods[pod])
        body["metadata"].setdefault("deletionTimestamp", deleted)
        body["metadata"].setdefault("deletionGracePeriodSeconds", GRACE.seconds)
        self.pods[pod] = body

    def cut_off_node(self, pod: str) -> None:
        """The node of a pod is gone."""
        self.cut_off.add(pod)
        self.make_ready(pod, ready=False)

    def _schedule(self) -> None:
        self.placed &= set(self.pods)
        for name in self.pods:
            if name in self.placed:
                continue
            if len(self.placed) < self.devices:
                self.placed.add(name)
                self.pods[name] = {**self.pods[name], "status": STARTING}
            else:
                self.pods[name] = {**self.pods[name], "status": NO_NODE}

    def _add_pod(self, revision: str, template: Mapping[str, Any]) -> None:
        self.pod_count += 1
        name = f"{revision}-{self.pod_count}"
        self.pods[name] = {
            "metadata": {"name": name, "labels": dict(template["metadata"]["labels"])},
            "spec": {"nodeName": "node-1"},
            "status": {"phase": "Pending", "conditions": []},
        }

    def make_ready(self, pod: str, ready: bool = True) -> None:
        """The pod becomes ready, or is no longer; one without a place cannot."""
        if pod not in self.placed or (ready and pod in self.cut_off):
            return
        body = copy.deepcopy(self.pods[pod])
        body["status"] = ready_status() if ready else {**ready_status(), "phase": "Running"}
        body["status"]["ready"] = ready
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def hang(self, pod: str, since: datetime) -> None:
        """The pod runs, and has not been ready since this time; it does not say why."""
        if pod not in self.placed:
            return
        unready = {"type": "Ready", "status": "False", "lastTransitionTime": since.isoformat()}
        body = copy.deepcopy(self.pods[pod])
        body["status"] = {**STARTING, "phase": "Running", "conditions": [*STARTING["conditions"], unready]}
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def crash(self, pod: str, restarts: int) -> None:
        """The pod's server has ended again, and waits for another try."""
        if pod not in self.placed:
            return
        ended = {"terminated": {"exitCode": 1, "message": "no such operator"}}
        server = {"name": "server", "ready": False, "restartCount": restarts, "state": {}, "lastState": ended}
        body = copy.deepcopy(self.pods[pod])
        body["status"] = {**STARTING, "phase": "Running", "containerStatuses": [server], "ready": False}
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def update_deployment_status(self, revision: str) -> None:
        """status.replicas and readyReplicas, as the Deployment controller counts, and what was refused."""
        stored = self.objects.get(("Deployment", revision))
        if stored is None:
            return
        mine = [p for p in self.pods.values() if p["metadata"]["labels"][REVISION_LABEL] == revision]
        ready = sum(bool(p["status"].get("ready")) for p in mine)
        status: dict[str, Any] = {"replicas": len(mine), "readyReplicas": ready}
        if revision in self.refused:
            status["conditions"] = [OVER_QUOTA]
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
                    "addressType": "IPv4",
                    "ports": [{"name": "http", "port": 8080}],
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
            raise UnsafeError(f"{revision} is taken away while {users} send requests to it")

    def check_last(self, revision: str) -> None:
        """Only a dead pod gives up its place to another revision before its requests have gone."""
        if self.ready_pods(revision):
            self.check_unused(revision)

    def check_weight(self, status: Object) -> None:
        """Weight is on ready endpoints unless none is ready anywhere, and no rejected revision gets any.

        What counts is what was seen: the decision may bring back a Service, and with it ready endpoints.
        """
        ready, rejected = self.seen_ready, self.marked("rejected-at")
        recreates = self.service["spec"].get("rollout", {}).get("strategy") == "recreate"
        before = weights_in(self.service.get("status") or {})
        for name, weight in weights_in(status).items():
            others = ready - rejected - {name}
            if name not in ready and others and not recreates:
                raise UnsafeError(f"weight on {name}, while {others} are ready")
            able = any(self.ready_pods(stable) for stable in self.marked("stable") - {name})
            if name in rejected and weight > before.get(name, 0) and able:
                raise UnsafeError(f"{name} was rejected, and gets {weight} percent")
        self.check_capacity(status)

    def check_capacity(self, status: Object) -> None:
        """What never served, or was rejected, has its step, and more only if stable cannot carry that."""
        wanted, rollout = self.service["spec"], status.get("rollout") or {}
        before = weights_in(self.service.get("status") or {})
        stable = next(iter(self.marked("stable")), None)
        recreates = wanted.get("rollout", {}).get("strategy") == "recreate"
        if stable not in self.seen_ready or wanted.get("stopped") or recreates:
            return
        lacking = max(100 - 100 * self.ready_pods(stable) // self.needed(str(stable)), 0)
        served = self.marked("promoted-at") - self.marked("rejected-at")
        for name, weight in weights_in(status).items():
            under_way = rollout.get("revision") == name and rollout["state"] != "RolledBack"
            step = rollout["weight"] if under_way else 0
            if name not in served and weight > max(step, min(lacking, before.get(name, 0))):
                raise UnsafeError(f"{name} has {weight} percent, while stable lacks pods for {lacking}")
        if rollout.get("state") == "Promoted" and weights_in(status).keys() - {rollout["revision"]}:
            raise UnsafeError(f"told to be promoted, with weights {weights_in(status)}")

    def check_promotion(self, stored: Object, old: Object) -> None:
        """A revision that takes over has all its pods, unless the old ones have their places."""
        name, wanted = stored["metadata"]["name"], self.service["spec"]
        rollout, spec = (self.service.get("status") or {}).get("rollout") or {}, wanted.get("rollout", {})
        marks = [each["metadata"]["annotations"] for each in (old, stored)]
        newly = ["tailbound.dev/stable" in each for each in marks] == [False, True]
        beside = not rollout.get("inPlace") and spec.get("strategy") != "recreate"
        takes_over = rollout.get("revision") == name and rollout.get("reason") in TAKES_OVER
        waiting = [pod for pod in self.pods if pod.startswith(name) and pod not in self.placed]
        few = self.ready_pods(name) < self.needed(name)
        if newly and beside and takes_over and rollout.get("from") and few and not waiting:
            raise UnsafeError(f"{name} takes over with {self.ready_pods(name)} ready pods")

    def check_stable(self, name: str, replicas: int, before: int) -> None:
        """The stable revision keeps all its pods; `recreate` and `stopped` are for giving them up.

        In place it gives up ready pods one at a time, never the last, and only where all others are ready.
        Those that are not ready it gives up with any capacity.
        """
        wanted = self.service["spec"]
        rollout, least = wanted.get("rollout", {}), self.needed(name)
        gives_up = wanted.get("stopped") or rollout.get("strategy") == "recreate"
        if name not in self.marked("stable") or replicas >= least or gives_up:
            return
        in_place = rollout.get("capacity", "surge") != "surge"
        gone = max(min(before, self.ready_pods(name)) - replicas, 0)
        if gone and (not in_place or replicas == 0 or gone > 1 or self.ready_pods() - gone < least - 1):
            raise UnsafeError(f"stable {name} is to have {replicas} pods")

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


def weights_in(status: Object) -> dict[str, int]:
    """status.traffic by revision; nothing where somebody broke it."""
    traffic = status.get("traffic")
    backends = traffic.get("backends", []) if isinstance(traffic, dict) else []
    return {backend["revision"]: backend["weight"] for backend in backends}
