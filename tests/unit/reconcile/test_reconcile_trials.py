"""Random faults that last, edits, actions, foreign writes: every decision keeps its promises, and it ends."""

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tailbound.api.conditions import Reason
from tailbound.reconcile.model import ScalingDecision

from tests.support.effort import effort
from tests.support.simulated.gateways import Gateway
from tests.support.simulated.objects import model, runtime, service
from tests.support.simulated.scaling import decision
from tests.unit.reconcile.trials import Trial

SLAS: tuple[dict[str, Any], ...] = (
    {"latency": {"p99": "100ms"}, "errorRate": "1%"},
    {},
    {"latency": {"p99": "50ms"}, "errorRate": "1%"},
    {"latency": {"p99": "100ms"}, "errorRate": "0.5%"},
)
SHORT: dict[str, Any] = {
    "minStepTime": "2s",
    "maxStepTime": "1m",
    "scaleDownDelay": "4s",
    "progressDeadline": "30s",
    "analysis": {"dataTimeout": "10s"},
}
CANARY: dict[str, Any] = {"strategy": "canary"}
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {**CANARY, "steps": [{"weight": 5}, {"weight": 50}]},
    {**CANARY, "steps": [{"weight": 75}]},
    {**CANARY, "steps": [{"weight": 5}]},
    {"strategy": "recreate"},
)
PROMOTIONS: tuple[dict[str, Any], ...] = ({}, {"promotion": "manual"})
CAPACITIES: tuple[dict[str, Any], ...] = ({}, {"capacity": "inPlace"}, {"capacity": "auto"})
INCONCLUSIVE: tuple[dict[str, Any], ...] = ({}, {"onInconclusive": "promote"}, {"onInconclusive": "rollback"})
METRIC: dict[str, Any] = {
    "name": "accuracy",
    "query": "accuracy{r='$revision'}",
    "min": 0.9,
    "interval": "2s",
}
ANALYSES: tuple[dict[str, Any], ...] = (
    {},
    {"analysis": {"dataTimeout": "10s", "policy": "relative", "warmupRequests": 0}},
    {"analysis": {"dataTimeout": "10s", "policy": "absolute", "minErrorRate": "5%"}},
    {"analysis": {"dataTimeout": "10s", "metrics": [METRIC]}},
    {"analysis": {"dataTimeout": "10s", "metrics": [METRIC | {"min": 0.5}]}},
)
ANSWERS = ("good", "bad", "none")
REFUSED = tuple(
    f"{kind}{number}"
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "ControllerRevision")
    for number in ("", " r1", " r2", " r3")
)
ACTIONS = ("promote", "abort", "retry", "rollback_to", "pause")
NUMBERS = st.sampled_from(("r1", "r2", "r3"))
GATEWAYS = st.sampled_from(("gateway-a", "gateway-b"))
HOSTS: tuple[list[str], ...] = ([], ["churn.example.com"])
ROUNDS = st.sampled_from((0, 1, 2, 3, 5, 8, 20))
PLENTY = 1000
SCALINGS: tuple[dict[str, Any], ...] = (
    *({"min": pods} for pods in (1, 2, 4, 5)),
    {"min": 1, "max": 5, "mode": "external", "replicas": 3},
    {"min": 1, "max": 2, "mode": "external", "replicas": 3},
    {"min": 1, "max": 6},
    {"min": 2, "max": 4},
)


def plan_of(*parts: dict[str, Any]) -> dict[str, Any]:
    """A rollout of these parts, with short times."""
    merged = {name: value for part in (SHORT, *parts) for name, value in part.items()}
    if merged.get("strategy") == "recreate":
        merged.pop("capacity", None)
    return merged


PLANS = st.builds(
    plan_of,
    st.sampled_from(WAYS),
    st.sampled_from(PROMOTIONS),
    st.sampled_from(CAPACITIES),
    st.sampled_from(INCONCLUSIVE),
    st.sampled_from(ANALYSES),
)


class Trials(RuleBasedStateMachine):
    """`Trial` raises where a promise is broken; here is what drives it, and where it must end."""

    @initialize(plan=PLANS, sla=st.sampled_from(SLAS), pods=st.sampled_from((4, 1, 2)))
    def start(self, plan: dict[str, Any], sla: dict[str, Any], pods: int) -> None:
        self.trial = Trial(service=service(rollout=plan, sla=sla, scaling={"min": pods}))
        self.trial.go(6)
        self.saved = copy.deepcopy(self.trial.service["status"])
        self.trial.edit(model=model("b"))

    # Edits.

    @rule(letter=st.sampled_from("abcd"), then=ROUNDS)
    def edit_model(self, letter: str, then: int) -> None:
        self.trial.edit(model=model(letter))
        self.trial.go(then)

    @rule(plan=PLANS, then=ROUNDS)
    def edit_rollout(self, plan: dict[str, Any], then: int) -> None:
        self.trial.edit(rollout=plan)
        self.trial.go(then)

    @rule(sla=st.sampled_from(SLAS), then=ROUNDS)
    def edit_sla(self, sla: dict[str, Any], then: int) -> None:
        self.trial.edit(sla=sla)
        self.trial.go(then)

    @rule(scaling=st.sampled_from(SCALINGS), then=ROUNDS)
    def edit_scaling(self, scaling: dict[str, Any], then: int) -> None:
        self.trial.edit(scaling=scaling)
        self.trial.go(then)

    @rule(number=NUMBERS, pods=st.integers(1, 6), share=st.sampled_from((100, 50)), then=ROUNDS)
    def the_autoscaler_decides(self, number: str, pods: int, share: int, then: int) -> None:
        self.trial.sized[number] = ScalingDecision(share, decision(pods))
        self.trial.go(then)

    @rule(then=ROUNDS)
    def the_autoscaler_is_silent(self, then: int) -> None:
        self.trial.sized.clear()
        self.trial.go(then)

    @rule(answer=st.sampled_from(ANSWERS), then=ROUNDS)
    def metrics_come_and_go(self, answer: str, then: int) -> None:
        self.trial.answer = answer
        self.trial.go(then)

    @rule(hosts=st.sampled_from(HOSTS), then=ROUNDS)
    def edit_hosts(self, hosts: list[str], then: int) -> None:
        self.trial.edit(hosts=hosts)
        self.trial.go(then)

    @rule(stopped=st.booleans(), then=ROUNDS)
    def stop_or_resume(self, stopped: bool, then: int) -> None:
        self.trial.edit(stopped=stopped)
        self.trial.go(then)

    @rule(image=st.sampled_from("ab"), again=st.sampled_from(("", "1")), then=ROUNDS)
    def refresh(self, image: str, again: str, then: int) -> None:
        self.trial.cluster_runtimes = {"onnxruntime": runtime(image=image)}
        self.trial.annotate(refresh=again)
        self.trial.go(then)

    @rule()
    def runtime_is_deleted(self) -> None:
        self.trial.cluster_runtimes = {}
        self.trial.go(1)

    # Actions.

    @rule(
        action=st.sampled_from(ACTIONS),
        index=st.integers(0, 3),
        again=st.sampled_from(("", "/1")),
        then=ROUNDS,
    )
    def action(self, action: str, index: int, again: str, then: int) -> None:
        names = self.trial.names("ControllerRevision")
        self.trial.annotate(**{action: names[index % len(names)] + again})
        self.trial.go(then)

    @rule(then=ROUNDS)
    def replaced_without_annotations(self, then: int) -> None:
        self.trial.service["metadata"].pop("annotations", None)
        self.trial.touch(self.trial.service)
        self.trial.go(then)

    # Pods.

    @rule(kind=st.sampled_from(("dead", "hung", "flapping")), number=NUMBERS, then=ROUNDS)
    def a_revision_breaks(self, kind: str, number: str, then: int) -> None:
        getattr(self.trial, kind).add(number)
        self.trial.go(then)

    @rule(number=NUMBERS, count=st.integers(1, 4), then=ROUNDS)
    def pods_hang(self, number: str, count: int, then: int) -> None:
        mine = [pod for pod in self.trial.pods if pod.split("-")[1] == number]
        self.trial.out |= set(mine[:count])
        self.trial.go(then)

    @rule(then=ROUNDS)
    def pods_recover(self, then: int) -> None:
        for faults in (self.trial.dead, self.trial.hung, self.trial.flapping, self.trial.out):
            faults.clear()
        self.trial.go(then)

    @rule(index=st.integers(0, 5), then=ROUNDS)
    def a_pod_is_evicted(self, index: int, then: int) -> None:
        pods = list(self.trial.pods)
        if pods:
            del self.trial.pods[pods[index % len(pods)]]
        self.trial.go(then)

    @rule(index=st.integers(0, 5), then=ROUNDS)
    def a_node_is_lost(self, index: int, then: int) -> None:
        pods = [pod for pod in self.trial.pods if pod in self.trial.placed]
        if pods:
            self.trial.cut_off_node(pods[index % len(pods)])
            self.trial.end(pods[index % len(pods)])
        self.trial.go(then)

    @rule(
        number=NUMBERS,
        kind=st.sampled_from(("failing", "slow")),
        part=st.sampled_from((0.0, 0.5)),
        then=ROUNDS,
    )
    def requests_are_bad(self, number: str, kind: str, part: float, then: int) -> None:
        getattr(self.trial, kind)[number] = part
        self.trial.go(then)

    # The cluster.

    @rule(devices=st.sampled_from((1, 2, 4, 5, 6, PLENTY)), then=ROUNDS)
    def nodes_come_and_go(self, devices: int, then: int) -> None:
        self.trial.devices = devices
        self.trial.go(then)

    @rule(quota=st.sampled_from((1, 2, 4, 5, PLENTY)), then=ROUNDS)
    def quota_changes(self, quota: int, then: int) -> None:
        self.trial.quota = quota
        self.trial.go(then)

    @rule(
        child=st.sampled_from(REFUSED),
        reason=st.sampled_from((Reason.RUNTIME_INVALID, Reason.QUOTA_EXCEEDED)),
        dry_runs_pass=st.booleans(),
        then=ROUNDS,
    )
    def writes_are_refused(self, child: str, reason: Reason, dry_runs_pass: bool, then: int) -> None:
        self.trial.refuses = {child: reason}
        self.trial.dry_runs_pass = dry_runs_pass
        self.trial.go(then)

    @rule(then=ROUNDS)
    def writes_are_taken(self, then: int) -> None:
        self.trial.refuses = {}
        self.trial.go(then)

    @rule(seconds=st.sampled_from((-3600, 10, 31, 61, 3600)), then=ROUNDS)
    def the_clock_jumps(self, seconds: int, then: int) -> None:
        self.trial.go(1, seconds)
        self.trial.go(then)

    @rule(crash_after=st.integers(0, 4))
    def operator_crashes(self, crash_after: int) -> None:
        refuses, self.trial.refuses = self.trial.refuses, {}
        self.trial.reconcile(crash_after=crash_after)
        self.trial.refuses = refuses

    # Gateways.

    @rule(name=GATEWAYS, then=ROUNDS)
    def a_gateway_lags(self, name: str, then: int) -> None:
        self.trial.behind.add(name)
        self.trial.go(then)

    @rule(then=ROUNDS)
    def gateways_follow(self, then: int) -> None:
        self.trial.behind.clear()
        self.trial.go(then)

    @rule(name=GATEWAYS, readable=st.booleans(), then=ROUNDS)
    def a_gateway_is_read(self, name: str, readable: bool, then: int) -> None:
        if name in self.trial.gateways:
            self.trial.gateways[name].readable = readable
        self.trial.go(then)

    @rule(name=GATEWAYS)
    def envoy_restarts(self, name: str) -> None:
        if name in self.trial.gateways:
            self.trial.gateways[name].restart()
        self.trial.go(1)

    @rule(name=GATEWAYS, then=ROUNDS)
    def a_gateway_is_replaced(self, name: str, then: int) -> None:
        """The new one is Ready only with the newest routes."""
        self.trial.gateways[name] = Gateway()
        self.trial.sync(name)
        self.trial.go(then)

    @rule(then=ROUNDS)
    def no_gateway_is_left(self, then: int) -> None:
        self.trial.gateways.clear()
        self.trial.go(then)

    # What others write.

    @rule(then=ROUNDS)
    def status_is_lost(self, then: int) -> None:
        self.trial.service.pop("status", None)
        self.trial.touch(self.trial.service)
        self.trial.go(then)

    @rule()
    def status_is_saved(self) -> None:
        self.saved = copy.deepcopy(self.trial.service.get("status", {}))

    @rule(then=ROUNDS)
    def status_is_restored(self, then: int) -> None:
        self.trial.service["status"] = copy.deepcopy(self.saved)
        self.trial.touch(self.trial.service)
        self.trial.go(then)

    @rule(index=st.integers(0, 2), weight=st.sampled_from((0, 50, 100)), then=ROUNDS)
    def weights_are_edited(self, index: int, weight: int, then: int) -> None:
        names = [*self.trial.names("ControllerRevision"), "churn-r9-nosuch"]
        traffic = self.trial.service.get("status", {}).get("traffic")
        if traffic is not None:
            name = names[index % len(names)]
            others = [each for each in traffic["backends"] if each["revision"] != name]
            traffic["backends"] = [*others, {"revision": name, "weight": weight}]
            self.trial.touch(self.trial.service)
        self.trial.go(then)

    @rule(index=st.integers(0, 11), then=ROUNDS)
    def owners_are_stripped(self, index: int, then: int) -> None:
        children = list(self.trial.objects.values())
        if children:
            children[index % len(children)]["metadata"].pop("ownerReferences", None)
            self.trial.touch(children[index % len(children)])
        self.trial.go(then)

    @rule(index=st.integers(0, 7), deleted=st.booleans(), then=ROUNDS)
    def a_child_is_edited(self, index: int, deleted: bool, then: int) -> None:
        kinds = ("Service", "PodDisruptionBudget", "Deployment")
        children = [key for key in self.trial.objects if key[0] in kinds]
        if children:
            self._edit_child(children[index % len(children)], deleted)
        self.trial.go(then)

    def _edit_child(self, key: tuple[str, str], deleted: bool) -> None:
        if deleted and key[0] != "Deployment":
            del self.trial.objects[key]
            return
        stored = self.trial.objects[key]
        if key[0] == "Deployment":
            stored["spec"]["replicas"] = 3
        elif key[0] == "PodDisruptionBudget":
            stored["spec"]["maxUnavailable"] = 7
        else:
            stored["metadata"]["labels"].pop("app.kubernetes.io/managed-by", None)
        self.trial.touch(stored)

    @rule(index=st.integers(0, 3), then=ROUNDS)
    def a_deployment_is_deleted(self, index: int, then: int) -> None:
        deployments = self.trial.of("Deployment")
        if deployments:
            stored = deployments[index % len(deployments)]
            stored["metadata"]["deletionTimestamp"] = self.trial.now.isoformat()
            self.trial.touch(stored)
        self.trial.go(then)

    @rule(index=st.integers(0, 5), then=ROUNDS)
    def a_pod_ends_for_good(self, index: int, then: int) -> None:
        pods = [pod for pod in self.trial.pods if not self.trial.gone(pod)]
        if pods:
            self.trial.fail(pods[index % len(pods)], "Evicted", "The node was low on resource: memory.")
        self.trial.go(then)

    @rule(rounds=st.sampled_from((1, 5, 20)))
    def all_goes_on(self, rounds: int) -> None:
        self.trial.go(rounds)

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "trial"):
            return
        self.trial.ends()
        self.trial.mend()
        self.trial.heals()


Trials.TestCase.settings = settings(
    max_examples=effort(8, 40),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTrials = Trials.TestCase
