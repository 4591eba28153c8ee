"""Rollouts of services whose server can be told to misbehave."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.scenarios.library import installation, rpc
from e2e.scenarios.library.api import Object
from e2e.scenarios.library.manifests import serving_runtime
from e2e.scenarios.library.models import Model
from e2e.scenarios.library.scene import GATEWAY, REVISION_LABEL, Scene, workload
from e2e.scenarios.library.traffic import VALUES, Load
from e2e.scenarios.library.waiting import SYSTEM, Unmet, condition_lines

RUNTIME: Final = "faulty"
IMAGE: Final = "tailbound-faulty-runtime"
PREFIX: Final = "tailbound.dev/"
GATEWAY_PORT: Final = 8082
SERVER_PORT: Final = 8080
# A busy machine keeps these, and a fault breaks them.
SLA: Final[Object] = {"latency": {"p99": "2s"}, "errorRate": "5%"}
TIMEOUT: Final = "4s"
# What the fractions of requests are that a scenario's bad revision gets wrong.
SLOW: Final[Mapping[str, float]] = {"SLOW_FRACTION": 0.5, "DELAY_MS": 2500}
ERRORS: Final[Mapping[str, float]] = {"ERROR_FRACTION": 0.5}
HANGS: Final[Mapping[str, float]] = {"HANG_FRACTION": 0.5}
HEALTHY: Final[Mapping[str, float]] = {"SLOW_FRACTION": 0, "ERROR_FRACTION": 0, "HANG_FRACTION": 0}
# Enough for a verdict within seconds, little enough for many scenarios at once.
RATE: Final = 14
STARTED_SECONDS: Final = 300
VERDICT_SECONDS: Final = 300
PROMOTED_SECONDS: Final = 300
_SAMPLE: Final = re.compile(r"^tailbound_requests_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def canary(*weights: int, **rollout: Any) -> Object:
    """spec.rollout of a canary with short limits."""
    return quick(strategy="canary", steps=[{"weight": weight} for weight in weights or (50,)], **rollout)


def through_prometheus(*weights: int) -> Object:
    """spec.rollout of a canary with short limits that is judged by what Prometheus scraped."""
    return canary(*weights, analysis={"source": "prometheus", "warmupRequests": 5, "dataTimeout": "10s"})


def quick(**rollout: Any) -> Object:
    """spec.rollout with short limits."""
    return {
        "minStepTime": "1s",
        "maxStepTime": "5m",
        "progressDeadline": "2m",
        "scaleDownDelay": "2s",
        "analysis": {"warmupRequests": 5, "dataTimeout": "10s"},
        **rollout,
    }


@dataclass
class Rollout:
    """One service on its way from revision to revision."""

    scene: Scene
    name: str
    rollout: Object
    sla: Object = field(default_factory=lambda: dict(SLA))
    spec: Object = field(default_factory=dict)
    _model: Model | None = None
    runtime: str = RUNTIME

    @classmethod
    def begin(
        cls,
        scene: Scene,
        name: str,
        rollout: Object,
        faults: Mapping[str, float] | None = None,
        **how: Any,
    ) -> "Rollout":
        """A service whose first revision, a healthy one, has all requests; `how` as for `applied`."""
        made = cls.applied(scene, name, rollout, faults, **how)
        scene.ready(name)
        return made

    @classmethod
    def applied(
        cls,
        scene: Scene,
        name: str,
        rollout: Object,
        faults: Mapping[str, float] | None = None,
        *,
        drain: Object | None = None,
        sheds: bool = True,
        runtime: Object | None = None,
        **spec: Any,
    ) -> "Rollout":
        """The same, not yet ready: several become so side by side. `runtime`: more fields of its runtime."""
        good = scene.api.need("ClusterServingRuntime", "onnxruntime")["spec"]
        image = f"{installation.registry()}/{IMAGE}:{installation.TAG}"
        server = {
            **{key: good["server"][key] for key in ("imagePullPolicy", "ports")},
            "image": image,
            "readinessProbe": {
                "httpGet": {"path": "/v2/health/ready", "port": "http"},
                "periodSeconds": 1,
                "timeoutSeconds": 3,
                "failureThreshold": 3,
            },
        }
        further = runtime or {}
        made_of = {
            "formats": [{"name": "onnx"}],
            "drain": drain or {"time": "3s"},
            "sheds": sheds,
            **further,
            "server": server | further.get("server", {}),
        }
        scene.api.apply(serving_runtime(scene.namespace, RUNTIME, made_of))
        sla = spec.pop("sla", dict(SLA))
        made = cls(scene, name, rollout, sla, spec, scene.model(slope=2.0))
        made.change("first", faults)
        return made

    def manifest(self, version: str, faults: Mapping[str, float] | None = None) -> Object:
        """The InferenceService; another version or other faults are another revision."""
        assert self._model is not None
        env = {"VERSION": version} | {key: f"{value:g}" for key, value in (faults or {}).items()}
        return self.scene.manifest(
            self.name,
            self._model,
            runtime={"name": self.runtime},
            rollout=self.rollout,
            sla=self.sla,
            env=[{"name": key, "value": value} for key, value in env.items()],
            **{"timeout": TIMEOUT, **self.spec},
        )

    def change(self, version: str, faults: Mapping[str, float] | None = None) -> Object:
        """Apply the manifest of a version."""
        return self.scene.api.apply(self.manifest(version, faults))

    def introduce(self, version: str, faults: Mapping[str, float] | None = None) -> str:
        """Apply a version that is a new revision; the revision's name, once its rollout is under way."""
        generation = self.change(version, faults)["metadata"]["generation"]

        def begun() -> str | Unmet:
            service = self.service()
            found = self.status(service)
            newest = service.get("status", {}).get("observedGeneration") == generation
            under_way = found.get("state") not in (None, "Promoted", "RolledBack")
            return found["revision"] if newest and under_way else self._unmet(service)

        return self.scene.wait(f"rollout of {version}", begun, STARTED_SECONDS)

    def service(self) -> Object:
        """The InferenceService."""
        return self.scene.service(self.name)

    def status(self, service: Object | None = None) -> Object:
        """status.rollout without what the operator alone reads; empty if there is none."""
        found: Object = (service or self.service()).get("status", {}).get("rollout") or {}
        return {key: value for key, value in found.items() if key != "evidence"}

    def stable(self) -> str:
        """The revision that serves."""
        return str(self.service()["status"]["stable"]["revision"])

    def _unmet(self, service: Object) -> Unmet:
        return Unmet(f"{self.status(service)}; {'; '.join(condition_lines(service))}")

    def reaches(
        self,
        state: str,
        reason: str = "",
        *,
        revision: str = "",
        weight: int | None = None,
        says: str = "",
        within: float = VERDICT_SECONDS,
    ) -> Object:
        """Wait for a state of the rollout, whose message contains `says`; status.rollout."""

        def probe() -> Object | Unmet:
            service = self.service()
            found = self.status(service)
            fits = (
                found.get("state") == state
                and reason in ("", found.get("reason"))
                and revision in ("", found.get("revision"))
                and weight in (None, found.get("weight", 0))
                and says in found.get("message", "")
            )
            return found if fits else self._unmet(service)

        wanted = " ".join(
            str(part) for part in (state, reason, revision, weight, says) if part not in ("", None)
        )
        return self.scene.wait(f"rollout {wanted} of {self.name}", probe, within)

    def analysed(self, revision: str, weight: int | None = None) -> Object:
        """Wait until a revision gets requests and is judged; status.rollout."""

        def probe() -> Object | Unmet:
            service = self.service()
            found = self.status(service)
            fits = (
                found.get("revision") == revision
                and found.get("state") == "Analysing"
                and found.get("weight", 0) > 0
                and weight in (None, found["weight"])
                and "stepStartedAt" in found
            )
            return found if fits else self._unmet(service)

        return self.scene.wait(f"analysis of {revision}", probe, STARTED_SECONDS)

    def promoted(self, revision: str, *, within: float = PROMOTED_SECONDS) -> Object:
        """Wait until a revision has taken over; the InferenceService."""
        self.reaches("Promoted", revision=revision, within=within)
        self.scene.condition(self.name, "Promoted", "True")
        service = self.scene.ready(self.name)
        assert service["status"]["stable"]["revision"] == revision, self.status(service)
        return service

    def rolled_back(
        self, revision: str, *reasons: str, within: float = VERDICT_SECONDS, stable: str = ""
    ) -> Object:
        """Wait until a revision is rejected, and see that everything says so; status.rollout."""
        found = self.reaches("RolledBack", revision=revision, within=within)
        assert found["reason"] in reasons, found
        self.scene.condition(self.name, "Promoted", "False", "RolledBack")
        self.scene.condition(self.name, "Ready", "False", "RolledBack")
        record = self.scene.api.need("ControllerRevision", revision, self.scene.namespace)
        assert record["metadata"]["annotations"][f"{PREFIX}rejected-reason"] == found["reason"]
        assert stable in ("", self.stable())
        return found

    def action(self, action: str, value: str | None) -> None:
        """Set one of the annotations that people act with; None removes it."""
        body = {"metadata": {"annotations": {f"{PREFIX}{action}": value}}}
        self.scene.api.patch("InferenceService", self.name, self.scene.namespace, body)

    @contextmanager
    def load(self, rate: float = RATE, **how: Any) -> Iterator[Load]:
        """Predictions during the block, as `Client.load` sends them; none is ever repeated."""
        with self.scene.world.client.load(self.scene.namespace, self.name, rate=rate, **how) as load:
            yield load

    @contextmanager
    def calls(self, rate: float = RATE) -> Iterator[Load]:
        """The same over gRPC."""
        url = rpc.url(self.scene.namespace, self.name, rpc.MODEL_INFER)
        message = rpc.infer_message(self.name, VALUES)
        with self.scene.world.client.calls(url, message, rate=rate) as load:
            yield load

    def pods(self, revision: str) -> list[Object]:
        """The pods of a revision that are not on their way out."""
        return [
            pod for pod in self.scene.pods(self.name) if pod["metadata"]["labels"][REVISION_LABEL] == revision
        ]

    def afflict(self, revision: str, faults: Mapping[str, float], pods: int | None = None) -> float:
        """What the running pods of a revision, or so many, do from now on; the time by the servers' clock."""
        body = json.dumps(dict(faults)).encode()
        moments = [
            json.loads(self._proxy(pod, SERVER_PORT, "/_faults", "POST", body))["at"]
            for pod in self.pods(revision)[:pods]
        ]
        assert moments, f"{revision} has no pods"
        return float(max(moments))

    def _proxy(
        self, pod: Object, port: int, path: str, method: str = "GET", body: bytes | None = None
    ) -> bytes:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        target = f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{path}"
        return self.scene.api.raw(method, target, body)[1]

    def served(self, revision: str) -> Object:
        """What the server of a revision with one pod counted."""
        (pod,) = self.pods(revision)
        return dict(json.loads(self._proxy(pod, SERVER_PORT, "/_counts")))

    def counted(self) -> Mapping[str, Mapping[str, float]]:
        """Requests by revision and class, summed over the gateways."""
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for pod in workload(self.scene.api, GATEWAY, SYSTEM):
            if "deletionTimestamp" in pod["metadata"]:
                continue
            text = self._proxy(pod, GATEWAY_PORT, "/metrics").decode()
            for labels, value in _SAMPLE.findall(text):
                found = dict(_LABEL.findall(labels))
                if (found["namespace"], found["service"]) == (self.scene.namespace, self.name):
                    sums[found["revision"]][found["class"]] += float(value)
        return sums

    def assert_untouched(self, revision: str, at_least: int = 10) -> None:
        """Every request that the gateways sent to this revision was answered well."""
        counted = self.counted()[revision]
        assert sum(counted.values()) >= at_least, f"too few requests to say anything: {dict(counted)}"
        bad = {kind: count for kind, count in counted.items() if kind not in ("good", "slow") and count}
        assert bad == {}, f"bad requests of {revision}: {bad} beside {dict(counted)}"


def only_from(load: Load, revision: str) -> None:
    """No request failed but by what this revision did."""
    others = [failure for failure in load.result["failures"] if not _by(failure, revision)]
    assert others == [], load.result


def _by(failure: Object, revision: str) -> bool:
    """The server's own 500 names its revision; a request that hung ends with the gateway's time-out."""
    return revision in failure["detail"] or failure["outcome"] == "http_504"
