"""A small pure model of the cluster around one service: API server, controllers, kubelet and gateways.

It is strict where the real ones are: a create fails on an existing object, an apply or a delete on another
uid or an older resourceVersion. It checks at every write what must never happen (`UnsafeError`).
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tailbound.api.names import REVISION_LABEL
from tailbound.objects.fields import Object
from tailbound.reconcile.model import Apply, Create, Delete, DryRun, Write

from tests.support.copies import copied
from tests.support.simulated.cluster_safety import SafetyChecks
from tests.support.simulated.cluster_state import class_of, number_of
from tests.support.simulated.objects import NAME, NO_NODE, OVER_QUOTA, STARTING, as_stored, ready_status

GRACE = timedelta(seconds=30)
"""That a pod has to end."""

FRONTS = {NAME, f"{NAME}-preview"}
"""Services without pods of their own."""

SERVER = {"name": "server", "ports": [{"name": "http", "containerPort": 8080}]}
"""What matters of the server container of a pod."""


@dataclass
class Cluster(SafetyChecks):
    """One service, and those that work for it."""

    # The API server.

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
        if write.kind == "Pod":
            assert self.pods[write.name]["metadata"]["uid"] == write.uid
            del self.pods[write.name]
            return
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

    def work(self, kubelet: Callable[[str], object] | None = None, behind: Set[str] = frozenset()) -> None:
        """Controllers, kubelets and gateways do their part once.

        `kubelet` is what happens to each pod, which is to get ready if nothing is said; the gateways `behind`
        apply nothing.
        """
        self.run_controllers()
        for pod in list(self.pods):
            (kubelet or self.make_ready)(pod)
        for name in self.gateways:
            if name not in behind:
                self.sync(name)

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
            mine = [pod for pod in own if not self.gone(pod)]
            for pod in own if leaving else ():
                if self.pods[pod]["status"]["phase"] == "Failed":
                    self.end(pod)
            # As a ReplicaSet does: of those that are not ready first, and the youngest of them.
            mine.sort(key=lambda pod: not self.pods[pod]["status"].get("ready"))
            exchanged = {class_of(self.pods[pod]) for pod in mine} - {class_of(stored["spec"]["template"])}
            for pod in mine[wanted + bool(exchanged and wanted) :]:
                self.end(pod)
            missing = max(wanted - len(mine), 0)
            if wanted:
                self._exchange(name, mine, stored["spec"]["template"])
            admitted = (
                0 if number_of(name) in self.denied else min(missing, max(self.quota - len(self.pods), 0))
            )
            for _ in range(admitted):
                self._add_pod(name, stored["spec"]["template"])
            self.refused = self.refused - {name} | ({name} if admitted < missing else set())
            if leaving and not set(own) & set(self.pods):
                del self.objects[kind, name]
            elif not leaving:
                self.update_deployment_status(name)
        self._schedule()

    def _exchange(self, revision: str, pods: list[str], template: Mapping[str, Any]) -> None:
        """Pods of another class make way for new ones one by one, and go when those are ready."""
        wanted = class_of(template)
        old = [pod for pod in pods if pod in self.pods and class_of(self.pods[pod]) != wanted]
        new = [pod for pod in pods if pod in self.pods and pod not in old]
        if not old:
            return
        if not new:
            self._add_pod(revision, template)
        elif all(self.pods[pod]["status"].get("ready") for pod in new):
            self.end(old[0])
            if len(old) > 1:
                self._add_pod(revision, template)

    def end(self, pod: str) -> None:
        """A pod is deleted: it goes at once, unless nobody is there to end it."""
        if pod not in self.cut_off:
            del self.pods[pod]
            return
        deleted = (self.now + GRACE).isoformat()
        body = copied(self.pods[pod])
        body["metadata"].setdefault("deletionTimestamp", deleted)
        body["metadata"].setdefault("deletionGracePeriodSeconds", GRACE.seconds)
        self.pods[pod] = body

    def gone(self, pod: str) -> bool:
        """The pod is being deleted, or has ended for good."""
        body = self.pods[pod]
        return "deletionTimestamp" in body["metadata"] or body["status"].get("phase") == "Failed"

    def fail(self, pod: str, reason: str, message: str) -> None:
        """The pod ends for good, for something that happened to it and not to a container."""
        body, at = copied(self.pods[pod]), self.now.isoformat()
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": at}
        body["status"] = {"phase": "Failed", "reason": reason, "message": message, "conditions": [ready]}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        body["metadata"] |= {"uid": f"uid-{pod}", "resourceVersion": "1", "ownerReferences": [owner]}
        body["metadata"] |= {"namespace": "risk"}
        self.pods[pod] = body
        self.placed.discard(pod)
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def cut_off_node(self, pod: str) -> None:
        """The node of a pod is gone."""
        self.cut_off.add(pod)
        self.make_ready(pod, ready=False)

    def _schedule(self) -> None:
        self.placed &= set(self.pods)
        for name in self.pods:
            if name in self.placed or self.gone(name):
                continue
            unfit = self.unfit.get(number_of(name))
            if class_of(self.pods[name]) in self.full_classes:
                self._wait_for_node(name)
                continue
            if unfit is not None:
                condition = NO_NODE["conditions"][0] | {"message": unfit}
                self.pods[name] = {**self.pods[name], "status": {**NO_NODE, "conditions": [condition]}}
            elif len(self.placed) < self.devices:
                self.placed.add(name)
                self.pods[name] = {**self.pods[name], "status": STARTING}
            else:
                self.pods[name] = {**self.pods[name], "status": NO_NODE}

    def _wait_for_node(self, name: str) -> None:
        """The scheduler finds no node for a pod, and says since when."""
        known = [each.get("lastTransitionTime") for each in self.pods[name]["status"]["conditions"]]
        since = next((each for each in known if each), self.now.isoformat())
        condition = NO_NODE["conditions"][0] | {"lastTransitionTime": since}
        self.pods[name] = {**self.pods[name], "status": {**NO_NODE, "conditions": [condition]}}

    def _add_pod(self, revision: str, template: Mapping[str, Any]) -> None:
        self.pod_count += 1
        name = f"{revision}-{self.pod_count}"
        self.pods[name] = {
            "metadata": {
                "name": name,
                "namespace": "risk",
                "labels": dict(template["metadata"]["labels"]),
                "annotations": dict(template["metadata"].get("annotations", {})),
            },
            "spec": {"nodeName": "node-1", "containers": [SERVER]},
            "status": {"phase": "Pending", "conditions": []},
        }

    def make_ready(self, pod: str, ready: bool = True) -> None:
        """The pod becomes ready, or is no longer; one without a place cannot."""
        if pod not in self.placed or (ready and pod in self.cut_off):
            return
        status = ready_status() if ready else {**ready_status(), "phase": "Running"}
        status["ready"] = ready
        if self.pods[pod]["status"] == status:
            return
        self.pods[pod] = {**self.pods[pod], "status": status}
        self.update_deployment_status(self.pods[pod]["metadata"]["labels"][REVISION_LABEL])

    def hang(self, pod: str, since: datetime) -> None:
        """The pod runs, and has not been ready since this time; it does not say why."""
        if pod not in self.placed:
            return
        unready = {"type": "Ready", "status": "False", "lastTransitionTime": since.isoformat()}
        body = copied(self.pods[pod])
        body["status"] = {**STARTING, "phase": "Running", "conditions": [*STARTING["conditions"], unready]}
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def crash(self, pod: str, restarts: int) -> None:
        """The pod's server has ended again, and waits for another try."""
        if pod not in self.placed:
            return
        ended = {"terminated": {"exitCode": 1, "message": "no such operator"}}
        server = {"name": "server", "ready": False, "restartCount": restarts, "state": {}, "lastState": ended}
        body = copied(self.pods[pod])
        body["status"] = {**STARTING, "phase": "Running", "containerStatuses": [server], "ready": False}
        self.pods[pod] = body
        self.update_deployment_status(body["metadata"]["labels"][REVISION_LABEL])

    def update_deployment_status(self, revision: str) -> None:
        """status.replicas and readyReplicas, as the Deployment controller counts, and what was refused."""
        stored = self.objects.get(("Deployment", revision))
        if stored is None:
            return
        own = [n for n, p in self.pods.items() if p["metadata"]["labels"][REVISION_LABEL] == revision]
        mine = [self.pods[name] for name in own if self.pods[name]["status"].get("phase") != "Failed"]
        ready = sum(bool(p["status"].get("ready")) for p in mine)
        status: dict[str, Any] = {"replicas": len(mine), "readyReplicas": ready}
        if revision in self.refused:
            said = self.denied.get(number_of(revision), OVER_QUOTA["message"])
            status["conditions"] = [OVER_QUOTA | {"message": said}]
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
            self.gateways[name].route = copied(traffic)
            self.gateways[name].generation = self.service["metadata"]["generation"]
            self.gateways[name].has_ready_pod = bool(self.gateways[name].backends & self.ready_revisions())
