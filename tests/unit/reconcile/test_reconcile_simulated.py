"""Random interleavings of edits, readiness, gateway lag, crashes and lost state end where they should."""

import copy
import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.reconcile.simulator import Gateway, Simulator, runtime, spec

IMAGES = ("a", "b", "c")


class Rollovers(RuleBasedStateMachine):
    """The simulator raises `Unsafe` on its own; here is what drives it, and where it must end."""

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
        simulator.settle()
        before = copy.deepcopy(simulator.objects)
        plan = simulator.reconcile()
        assert (plan.writes, plan.status, plan.events) == ((), None, ())
        assert simulator.objects == before
        self.ends_as_the_spec_wants()

    def ends_as_the_spec_wants(self) -> None:
        simulator, wanted = self.simulator, self.simulator.service["spec"]
        assert len(simulator.names("Deployment")) == 1
        name = simulator.names("Deployment")[0]
        stored = next(r for r in simulator.of("ControllerRevision") if r["metadata"]["name"] == name)
        assert json.loads(stored["data"]["spec"])["model"]["sha256"] == wanted["model"]["sha256"]
        assert sorted(simulator.names("Service")) == sorted(["churn", name])
        stopped = wanted.get("stopped", False)
        replicas = 0 if stopped else wanted["scaling"]["min"]
        assert simulator.objects["Deployment", name]["spec"]["replicas"] == replicas
        assert simulator.names("PodDisruptionBudget") == ([name] if replicas > 1 else [])
        assert simulator.serving() == ([] if stopped else [name])
        assert simulator.condition("Ready") == (("False", "Stopped") if stopped else ("True", "Serving"))
        assert simulator.condition("Reconciling") == ("False", "Reconciled")
        assert simulator.condition("Stalled") == ("False", "NotStalled")
        assert simulator.condition("TrafficApplied") == ("True", "Acknowledged")


Rollovers.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRollovers = Rollovers.TestCase
