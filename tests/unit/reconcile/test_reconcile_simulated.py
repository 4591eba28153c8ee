"""Random interleavings of edits, actions, verdicts, lag, crashes and lost state end where they should."""

import copy
import json
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.effort import effort
from tests.support.simulated.gateways import Gateway
from tests.support.simulated.objects import runtime, spec
from tests.support.simulated.simulator import Simulator

IMAGES = ("a", "b", "c")
ROLLOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"promotion": "manual"},
    {"strategy": "canary"},
    {"strategy": "canary", "steps": [{"weight": 50}], "promotion": "manual"},
    {"strategy": "canary", "onInconclusive": "rollback", "maxStepTime": "1m"},
    {"strategy": "canary", "onInconclusive": "promote", "maxStepTime": "1m"},
    {"strategy": "recreate"},
    {"capacity": "inPlace"},
    {"capacity": "auto", "promotion": "manual"},
    {"capacity": "inPlace", "strategy": "canary"},
    {"capacity": "auto", "strategy": "canary"},
)
SLAS: tuple[dict[str, Any], ...] = ({}, {"latency": {"p99": "100ms"}, "errorRate": "1%"})
PLENTY = 1000
ACTIONS = ("promote", "abort", "retry", "rollback_to", "pause")


class Rollovers(RuleBasedStateMachine):
    """The simulator raises `UnsafeError` on its own; here is what drives it, and where it must end."""

    @initialize(replicas=st.integers(1, 3))
    def start(self, replicas: int) -> None:
        self.simulator = Simulator()
        self.simulator.edit(scaling={"min": replicas})
        self.templates: dict[str, str] = {}

    @rule(digest=st.sampled_from("abc"))
    def edit_model(self, digest: str) -> None:
        self.simulator.edit(model=spec()["model"] | {"sha256": digest * 64})

    @rule(replicas=st.integers(1, 3))
    def scale(self, replicas: int) -> None:
        self.simulator.edit(scaling={"min": replicas})

    @rule(stopped=st.booleans())
    def stop_or_resume(self, stopped: bool) -> None:
        self.simulator.edit(stopped=stopped)

    @rule(rollout=st.sampled_from(ROLLOUTS), sla=st.sampled_from(SLAS))
    def edit_rollout(self, rollout: dict[str, Any], sla: dict[str, Any]) -> None:
        self.simulator.edit(rollout=rollout, sla=sla)

    @rule(action=st.sampled_from(ACTIONS), index=st.integers(0, 3), again=st.sampled_from(("", "/1")))
    def action(self, action: str, index: int, again: str) -> None:
        names = self.simulator.names("ControllerRevision")
        if names:
            self.simulator.annotate(**{action: names[index % len(names)] + again})

    @rule(again=st.sampled_from(("", "1", "2")))
    def refresh(self, again: str) -> None:
        self.simulator.annotate(refresh=again)

    @rule()
    def kubectl_replace(self) -> None:
        """Annotations are lost."""
        self.simulator.service["metadata"].pop("annotations", None)
        self.simulator.touch(self.simulator.service)

    @rule(slow=st.sampled_from((0.0, 0.0, 0.3)), number=st.sampled_from(("r1", "r2", "r3")))
    def requests(self, slow: float, number: str) -> None:
        self.simulator.traffic(400, **{number: slow})

    @rule(seconds=st.sampled_from((2, 31, 61, 601)))
    def time_passes(self, seconds: int) -> None:
        self.simulator.now += timedelta(seconds=seconds)

    @rule()
    def all_is_well(self) -> None:
        """A while in a cluster where everything works."""
        for _ in range(3):
            self.simulator.work()
            self.simulator.reconcile()

    @rule(devices=st.sampled_from((1, 2, 3, 4, PLENTY)))
    def nodes_come_and_go(self, devices: int) -> None:
        self.simulator.devices = devices

    @rule(index=st.integers(0, 5))
    def a_container_restarts(self, index: int) -> None:
        pods = sorted(self.simulator.pods)
        if pods:
            self.simulator.crash(pods[index % len(pods)], restarts=3)

    @rule(name=st.sampled_from(("gateway-a", "gateway-b")))
    def envoy_restarts(self, name: str) -> None:
        if name in self.simulator.gateways:
            self.simulator.gateways[name].restart()

    @rule(hosts=st.sampled_from(([], ["churn.example.com"])))
    def edit_hosts(self, hosts: list[str]) -> None:
        self.simulator.edit(hosts=hosts)

    @rule()
    def controllers(self) -> None:
        self.simulator.run_controllers()

    @rule(index=st.integers(0, 5), ready=st.booleans())
    def pod_changes(self, index: int, ready: bool) -> None:
        pods = sorted(self.simulator.pods)
        if pods:
            self.simulator.make_ready(pods[index % len(pods)], ready)

    @rule()
    def all_pods_ready(self) -> None:
        for pod in list(self.simulator.pods):
            self.simulator.make_ready(pod)

    @rule(name=st.sampled_from(("gateway-a", "gateway-b")))
    def gateway_follows(self, name: str) -> None:
        if name in self.simulator.gateways:
            self.simulator.sync(name)

    @rule(readable=st.booleans())
    def gateway_reads(self, readable: bool) -> None:
        for gateway in self.simulator.gateways.values():
            gateway.readable = readable

    @rule()
    def gateway_is_replaced(self) -> None:
        """A new gateway is Ready only with the newest routes."""
        self.simulator.gateways["gateway-b"] = Gateway()
        self.simulator.sync("gateway-b")

    @rule()
    def no_gateway(self) -> None:
        self.simulator.gateways.clear()

    @rule()
    def status_is_lost(self) -> None:
        self.simulator.service.pop("status", None)
        self.simulator.touch(self.simulator.service)

    @rule(crash_after=st.integers(0, 4))
    def operator_crashes(self, crash_after: int) -> None:
        self.simulator.reconcile(crash_after=crash_after)

    @rule(index=st.integers(0, 5))
    def child_is_deleted_by_hand(self, index: int) -> None:
        children = [key for key in self.simulator.objects if key[0] in ("Service", "PodDisruptionBudget")]
        if children:
            del self.simulator.objects[children[index % len(children)]]

    @rule(image=st.sampled_from(IMAGES))
    def runtime_is_edited(self, image: str) -> None:
        self.simulator.cluster_runtimes = {"onnxruntime": runtime(image=image)}

    @rule()
    def runtime_is_deleted(self) -> None:
        self.simulator.cluster_runtimes = {}

    @rule()
    def reconcile(self) -> None:
        self.simulator.reconcile()

    @precondition(lambda self: hasattr(self, "simulator"))
    @invariant()
    def templates_never_change(self) -> None:
        for stored in self.simulator.of("ControllerRevision"):
            template = self.templates.setdefault(stored["metadata"]["name"], stored["data"]["template"])
            assert stored["data"]["template"] == template

    @precondition(lambda self: hasattr(self, "simulator"))
    @invariant()
    def at_most_one_revision_is_stable(self) -> None:
        marked = [
            stored
            for stored in self.simulator.of("ControllerRevision")
            if "tailbound.dev/stable" in stored["metadata"]["annotations"]
        ]
        assert len(marked) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "simulator"):
            return
        simulator = self.simulator
        simulator.cluster_runtimes = {"onnxruntime": runtime(image=IMAGES[0])}
        simulator.gateways = simulator.gateways or {"gateway-a": Gateway()}
        simulator.service["metadata"]["annotations"] = {"tailbound.dev/pause": ""}
        rollout = simulator.service["spec"].get("rollout", {})
        kept = {field: rollout[field] for field in ("strategy", "capacity") if field in rollout}
        simulator.edit(sla={}, rollout=kept)
        replicas = simulator.service["spec"]["scaling"]["min"]
        simulator.devices = replicas if replicas > 1 and "capacity" in kept else PLENTY
        simulator.settle()
        before = copy.deepcopy(simulator.objects)
        plan = simulator.reconcile()
        assert (plan.writes, plan.status, plan.events) == ((), None, ())
        assert simulator.objects == before
        self.one_revision_serves()

    def one_revision_serves(self) -> None:
        simulator, wanted = self.simulator, self.simulator.service["spec"]
        (name,) = simulator.names("Deployment")
        stopped, rejected = (
            wanted.get("stopped", False),
            name_wanted(simulator) in simulator.marked("rejected-at"),
        )
        replicas = 0 if stopped else wanted["scaling"]["min"]
        assert sorted(simulator.names("Service")) == sorted(["churn", name])
        assert simulator.objects["Deployment", name]["spec"]["replicas"] == replicas
        assert simulator.names("PodDisruptionBudget") == ([name] if replicas > 1 else [])
        assert simulator.serving() == ([] if stopped else [name])
        assert simulator.condition("TrafficApplied") == ("True", "Acknowledged")
        if rejected and not stopped:
            assert simulator.marked("stable") == {name}
            assert name not in simulator.marked("rejected-at")
            assert simulator.condition("Ready") == ("False", "RolledBack")
            assert simulator.condition("Promoted") == ("False", "RolledBack")
            return
        assert name == name_wanted(simulator)
        assert simulator.condition("Ready") == (("False", "Stopped") if stopped else ("True", "Serving"))
        assert simulator.condition("Reconciling") == ("False", "Reconciled")
        assert simulator.condition("Stalled") == ("False", "NotStalled")
        if not stopped:
            assert simulator.condition("Promoted")[0] == "True"
            assert simulator.marked("stable") == {name}


def name_wanted(simulator: Simulator) -> str:
    """The newest revision of the model that the spec names; one that is not rejected, if there is one."""
    sha256, rejected = simulator.service["spec"]["model"]["sha256"], simulator.marked("rejected-at")
    specs = {
        stored["metadata"]["name"]: json.loads(stored["data"]["spec"])
        for stored in simulator.of("ControllerRevision")
    }
    same: list[str] = [name for name in specs if specs[name]["model"]["sha256"] == sha256]
    return [name for name in same if name not in rejected or rejected.issuperset(same)][-1]


Rollovers.TestCase.settings = settings(
    max_examples=effort(20, 100),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestRollovers = Rollovers.TestCase
