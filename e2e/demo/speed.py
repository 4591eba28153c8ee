"""How fast the operator writes: from the API server's audit log, with its own clock at both ends."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from e2e.cluster import Cluster, OwnCluster
from e2e.cluster.processes import wait_for
from e2e.demo import filetypes
from e2e.demo.setting import STORE_HOST, STORE_PORT, apply, namespace

NAMESPACE: Final = "demo-fleet"
PRESENT: Final = 100
SAMPLES: Final = 30
BURST: Final = 100
TIMEOUT_SECONDS: Final = 120


@dataclass(frozen=True)
class Write:
    """One successful write in the audit log, in seconds of the API server's clock."""

    resource: str
    name: str
    received: float
    done: float


@dataclass(frozen=True)
class Figures:
    """Seconds from an InferenceService's arrival at the API server to its Deployment's being stored."""

    present: int
    one_by_one: tuple[float, ...]
    burst: int
    burst_seconds: float

    def quantile(self, q: float) -> float:
        """The smallest sample with at least the share q at or below it."""
        ordered = sorted(self.one_by_one)
        return ordered[math.ceil(q * len(ordered)) - 1]


def measure(cluster: OwnCluster) -> Figures:
    """Create stopped services, which need no pods: a hundred, then one a second, then a hundred at once."""
    apply(cluster, [namespace(NAMESPACE)])
    journal = Journal(cluster.audit_log)
    _create(cluster, journal, names("present", PRESENT))
    # Present means settled: what is left to write for them would be measured as the delay of the next.
    settled = "--for=condition=Reconciling=False"
    cluster.kubectl(
        "wait", "infs", "--all", f"--namespace={NAMESPACE}", settled, f"--timeout={TIMEOUT_SECONDS}s"
    )
    single = names("single", SAMPLES)
    due = time.monotonic()
    for name in single:
        time.sleep(max(0, due - time.monotonic()))
        _create(cluster, journal, [name])
        due += 1
    burst = names("burst", BURST)
    _create(cluster, journal, burst)
    delays, arrivals = journal.delays(), journal.arrivals()
    stored = [arrivals[name].received + delays[name] for name in burst]
    return Figures(
        present=PRESENT,
        one_by_one=tuple(delays[name] for name in single),
        burst=BURST,
        burst_seconds=max(stored) - min(arrivals[name].received for name in burst),
    )


def clear(cluster: Cluster) -> None:
    """Delete what `measure` created, without waiting for it."""
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def await_cleared(cluster: Cluster) -> None:
    """Delete what an earlier run left, and wait until it is gone."""
    clear(cluster)
    cluster.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", f"--timeout={TIMEOUT_SECONDS}s")


def names(kind: str, count: int) -> list[str]:
    """Names of `count` services, none the beginning of another."""
    return [f"{kind}-{number:03}" for number in range(count)]


def service(name: str) -> dict[str, Any]:
    """A stopped service: everything is written for it, and no pod runs."""
    return {
        "apiVersion": "tailbound.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {
                "uri": f"http://{STORE_HOST}:{STORE_PORT}/file-types.onnx",
                "format": "onnx",
                "sha256": filetypes.SHA256,
            },
            "stopped": True,
        },
    }


class Journal:
    """The first successful write of each object in our namespace, from the end of the audit log on."""

    def __init__(self, audit_log: Path) -> None:
        self._audit_log = audit_log
        self._offset = audit_log.stat().st_size
        self._first: dict[str, dict[str, Write]] = {"inferenceservices": {}, "deployments": {}}

    def arrivals(self) -> Mapping[str, Write]:
        """The creation of each service."""
        self._read()
        return self._first["inferenceservices"]

    def delays(self) -> dict[str, float]:
        """Seconds from the arrival of each service to its Deployment's being stored."""
        services = self.arrivals()
        owned = {
            name.rsplit("-", 2)[0]: write for name, write in self._first["deployments"].items()
        }  # NAME-rN-HASH
        return {
            name: write.done - services[name].received for name, write in owned.items() if name in services
        }

    def _read(self) -> None:
        with self._audit_log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                # Most lines are about something else, and parsing them takes time from what is measured.
                write = _parse(json.loads(line)) if NAMESPACE.encode() in line else None
                if write is not None and write.resource in self._first:
                    self._first[write.resource].setdefault(write.name, write)


def _parse(event: dict[str, Any]) -> Write | None:
    target = event.get("objectRef", {})
    succeeded = event.get("responseStatus", {}).get("code", 500) < 300
    # An object that the API server named itself has no name here.
    ours = target.get("namespace") == NAMESPACE and "name" in target and "subresource" not in target
    if not (
        succeeded and ours and event["stage"] == "ResponseComplete" and event["verb"] in ("create", "patch")
    ):
        return None
    received, done = (
        datetime.fromisoformat(event[field]).timestamp()
        for field in ("requestReceivedTimestamp", "stageTimestamp")
    )
    return Write(target["resource"], target["name"], received, done)


def _create(cluster: Cluster, journal: Journal, wanted: list[str]) -> None:
    """Create these services and wait until each has its Deployment."""
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [service(name) for name in wanted]})
    cluster.kubectl("create", "--filename=-", input=items)
    wait_for(
        f"Deployments of {len(wanted)} new services",
        lambda: journal.delays().keys() >= set(wanted),
        TIMEOUT_SECONDS,
    )
