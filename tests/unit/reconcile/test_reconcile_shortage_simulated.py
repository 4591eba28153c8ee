"""Random interleavings on full nodes: whoever comes or returns gets the places, and no request is lost."""

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.effort import effort
from tests.support.simulated.objects import service, spec
from tests.support.simulated.simulator import Simulator

IN_PLACE: tuple[dict[str, Any], ...] = tuple(
    {"capacity": capacity, **more}
    for capacity in ("inPlace", "auto")
    for more in ({}, {"promotion": "manual"}, {"strategy": "canary", "steps": [{"weight": 50}]})
)
NUMBERS = ("r1", "r2", "r3")


class FullNodes(RuleBasedStateMachine):
    """The simulator raises `UnsafeError` on its own; here is what drives it, and where it must end."""

    @initialize(replicas=st.integers(1, 4), rollout=st.sampled_from(IN_PLACE))
    def start(self, replicas: int, rollout: dict[str, Any]) -> None:
        self.simulator = Simulator(
            service=service(scaling={"min": replicas}, rollout=rollout), devices=2 * replicas
        )
        self.edit("b")
        self.simulator.settle()
        if rollout.get("promotion") == "manual":
            self.action("promote", 1, "")
            self.simulator.settle()
        self.simulator.devices = replicas
        self.dead: str | None = None

    @rule(digest=st.sampled_from("abc"))
    def edit(self, digest: str) -> None:
        self.simulator.edit(model=spec()["model"] | {"sha256": digest * 64})
        self.simulator.reconcile()

    @rule(action=st.sampled_from(("promote", "abort", "retry", "rollback_to")), index=st.integers(0, 2))
    def action(self, action: str, index: int, again: str = "/1") -> None:
        names = self.simulator.names("ControllerRevision")
        self.simulator.annotate(**{action: names[index % len(names)] + again})

    @rule()
    def actions_off(self) -> None:
        self.simulator.service["metadata"].pop("annotations", None)
        self.simulator.touch(self.simulator.service)

    @rule(number=st.sampled_from((None, *NUMBERS)))
    def pods_of_one_revision_die(self, number: str | None) -> None:
        self.dead = number

    @rule(seconds=st.sampled_from((2, 31, 601)))
    def time_passes(self, seconds: int) -> None:
        self.simulator.now += timedelta(seconds=seconds)
        self.simulator.reconcile()

    @rule(rounds=st.integers(1, 12))
    def cluster_works(self, rounds: int) -> None:
        for _ in range(rounds):
            self.go_round()

    @rule()
    def status_is_lost(self) -> None:
        self.simulator.service.pop("status", None)
        self.simulator.touch(self.simulator.service)

    @rule(crash_after=st.integers(0, 2))
    def operator_crashes(self, crash_after: int) -> None:
        self.simulator.reconcile(crash_after=crash_after)

    def go_round(self) -> None:
        """A look at the cluster, whose pods work but for those of one revision."""
        self.simulator.work(self.kubelet)
        self.simulator.reconcile()

    def kubelet(self, pod: str) -> None:
        """The pod works, or crashes with its revision."""
        if self.dead is not None and f"-{self.dead}-" in pod:
            self.simulator.crash(pod, restarts=1)
        else:
            self.simulator.make_ready(pod)

    def teardown(self) -> None:
        """Everything works: one revision has all places. It dies: the one before gets them all."""
        if not hasattr(self, "simulator"):
            return
        simulator = self.simulator
        simulator.service["metadata"].pop("annotations", None)
        self.dead = None
        whole = simulator.service["spec"]["scaling"]["min"]
        rollout = {"capacity": simulator.service["spec"]["rollout"]["capacity"]}
        simulator.edit(rollout=rollout)
        if whole == 1:
            simulator.devices = 2
        simulator.settle()
        simulator.devices = whole
        self.one_has_all_places(whole)
        (serving,) = simulator.names("Deployment")
        others = simulator.marked("promoted-at") - simulator.marked("rejected-at") - {serving}
        newest = simulator.condition("Promoted")[0] == "True"
        if not others or not newest:
            return
        self.dead = serving.split("-")[1]
        for _ in range(2):
            self.go_round()
        simulator.now += timedelta(minutes=11)
        for _ in range(6 * whole + 10):
            self.go_round()
        self.one_has_all_places(whole)
        assert serving not in simulator.names("Deployment")

    def one_has_all_places(self, whole: int) -> None:
        simulator = self.simulator
        (name,) = simulator.names("Deployment")
        assert simulator.serving() == [name]
        assert simulator.objects["Deployment", name]["spec"]["replicas"] == whole
        assert simulator.ready_pods(name) == len(simulator.pods) == whole


FullNodes.TestCase.settings = settings(
    max_examples=effort(12, 60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestFullNodes = FullNodes.TestCase
