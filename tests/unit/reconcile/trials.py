"""A cluster in which much goes wrong and stays wrong, and an operator whose decisions are checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tailbound.api.conditions import Reason
from tailbound.api.inferenceservice import InferenceService
from tailbound.api.names import PAUSE_ANNOTATION
from tailbound.api.parsing import parse
from tailbound.objects.fields import Object
from tailbound.reconcile.model import (
    Delete,
    DryRun,
    Observation,
    Plan,
    RefusedWrite,
    ScalingDecision,
    ScalingDecisions,
    Write,
)
from tailbound.reconcile.owned_state import OwnedState, Ownership, ownership
from tailbound.reconcile.scaling import sizing_of
from tailbound.rollout.sizing import ALL
from tailbound.telemetry.prometheus import Series, Value

from tests.support.copies import copied
from tests.support.simulated.gateways import Gateway
from tests.support.simulated.objects import NAME, runtime
from tests.support.simulated.simulator import Simulator
from tests.unit.reconcile.promises import PROMISES, Past, Seen, learn

MOST_DECISIONS = 20
"""In one pass, as refused writes are decided on again."""
HELD = timedelta(seconds=30)
"""For so long a refused write is not tried again."""


ENDED = ("Promoted", "RolledBack", "Paused")
ENDLESS = ("SharedBreach",)
"""Reasons for which a rollout may wait for as long as it takes."""


class EndlessError(AssertionError):
    """Something goes on for ever."""


@dataclass
class Trial(Simulator):
    """What is wrong lasts until somebody mends it."""

    past: Past = field(default_factory=Past)
    rounds: int = 0
    dead: set[str] = field(default_factory=set)
    """Numbers of revisions whose servers end, as r2."""
    hung: set[str] = field(default_factory=set)
    """Numbers of revisions whose pods run and are not ready."""
    flapping: set[str] = field(default_factory=set)
    """Numbers of revisions whose pods are ready every other round."""
    out: set[str] = field(default_factory=set)
    """Pods that run and are not ready."""
    failing: dict[str, float] = field(default_factory=dict)
    """Fraction of failed requests by the number of the revision."""
    slow: dict[str, float] = field(default_factory=dict)
    """Fraction of slow requests by the number of the revision."""
    behind: set[str] = field(default_factory=set)
    """Gateways that apply nothing."""
    refuses: dict[str, Reason] = field(default_factory=dict)
    """Kinds of which the API server refuses every write, and how; or kind and number, as Deployment r2."""
    dry_runs_pass: bool = False
    """What it refuses it takes as a dry run."""
    held: dict[tuple[str, str], tuple[RefusedWrite, datetime]] = field(default_factory=dict)
    """Refused writes, and until when they are not tried again."""
    restarts: dict[str, int] = field(default_factory=dict)
    sized: dict[str, ScalingDecision] = field(default_factory=dict)
    """What the autoscaler decided last, by the number of the revision."""
    answer: str = "good"
    """What Prometheus says of a revision's metric: good, bad, or none."""
    answered_at: float = 0.0
    """Time of the newest value that Prometheus has."""
    requests: int = 1000
    """That each gateway gets in a round."""
    promises: tuple[Any, ...] = PROMISES

    def plan(self) -> Plan:
        """The decision, checked."""
        observation = self.observation()
        self.seen_ready = self.ready_revisions()
        plan = self.decided(observation)
        seen = Seen(observation, plan, self.past, self.now)
        self.past.had_pods |= {
            pod["metadata"]["labels"]["tailbound.dev/revision"] for pod in self.pods.values()
        }
        learn(seen)
        for promise in self.promises:
            promise(seen)
        return plan

    def reconcile(self, *, crash_after: int | None = None) -> Plan:
        """One pass, as the controller makes it: what is refused is decided on again, and held for a while."""
        if not self.refuses and not self.held:
            return super().reconcile(crash_after=crash_after)
        self.held = {key: until for key, until in self.held.items() if until[1] > self.now}
        for _ in range(MOST_DECISIONS):
            self.refused_writes = tuple(obstacle for obstacle, _ in self.held.values())
            plan = self.plan()
            self.refused_writes = ()
            if not self._write_until_refused(plan):
                break
        else:
            raise AssertionError(f"{len(self.held)} refusals in one pass")
        self.polls, self.queries = plan.poll_counters, plan.queries
        self.now += timedelta(seconds=1)
        if plan.status is not None:
            self.check_weight(plan.status)
            self.service["status"] = copied(dict(plan.status))
            self.touch(self.service)
        return plan

    def _write_until_refused(self, plan: Plan) -> bool:
        for write in plan.writes:
            key = _key(write)
            if key in self.held:
                continue
            reason = self._refusal(write)
            if reason is not None:
                message = f"{key[0]} {key[1]} is refused: no luck today"
                self.past.refused.add(key[1])
                self.held[key] = (RefusedWrite(*key, reason, message), self.now + HELD)
                return True
            self.write(write)
        return False

    def _refusal(self, write: Write) -> Reason | None:
        kind, name = _key(write)
        passes = isinstance(write, Delete) or (isinstance(write, DryRun) and self.dry_runs_pass)
        number = "".join(name.split("-")[1:2])
        return None if passes else self.refuses.get(kind, self.refuses.get(f"{kind} {number}"))

    def observation(self) -> Observation:
        """The observation, with what the autoscaler decided where it does."""
        by_name = {name: each for name in self.names("ControllerRevision") if (each := self._sized(name))}
        self.sizes = ScalingDecisions(by_name, None) if by_name else None
        self.prometheus = self._answered
        return super().observation()

    def _sized(self, name: str) -> ScalingDecision | None:
        return self.sized.get(name.split("-")[1])

    def _answered(self, query: str) -> tuple[Series, ...]:
        # Prometheus has a clock of its own; without requests it has nothing new to tell.
        self.answered_at = 2.0 * self.rounds if self.requests else self.answered_at
        at = self.answered_at
        good = self.answer == "good" or "-r1-" in query
        return () if self.answer == "none" else (Series({}, (Value(at, 0.99 if good else 0.2),)),)

    def needed(self, revision: str) -> int:
        """Pods of a revision with all requests, as the operator sizes it."""
        service = parse(InferenceService, self.service)
        assert isinstance(service, InferenceService), service
        return sizing_of(OwnedState(self.observation(), service)).pods(revision, ALL)

    def edit(self, **fields: Any) -> None:
        """The user edits the spec; the API server takes no `max` above `min` without a latency target."""
        spec = self.service["spec"] | fields
        scaling = spec.get("scaling", {})
        follows = scaling.get("max", scaling.get("min", 1)) > scaling.get("min", 1) and "mode" not in scaling
        if follows and "latency" not in spec.get("sla", {}):
            fields["sla"] = {**spec.get("sla", {}), "latency": {"p99": "100ms"}}
        super().edit(**fields)

    def annotate(self, **values: str) -> None:
        """Somebody sets an annotation."""
        super().annotate(**values)
        named = {action: value.partition("/")[0] for action, value in values.items()}
        if "promote" in named:
            self.past.promoted_manually.add(named["promote"])
        self.past.rejected_manually |= {named[action] for action in ("abort",) if action in named}
        if "rollback_to" in named:
            self.past.rejected_manually.add(self.desired())

    def desired(self) -> str:
        """The revision of the spec as it is."""
        return Seen(self.observation(), Plan(), self.past, self.now).desired

    def go(self, rounds: int, seconds: int = 1) -> None:
        """Some rounds of controllers, kubelet, gateways, requests and the operator."""
        for _ in range(rounds):
            self.go_round(seconds)

    def go_round(self, seconds: int = 1) -> Plan:
        """One of them."""
        self.rounds += 1
        fresh = set(self.pods)
        self.run_controllers()
        for pod in list(self.pods):
            if pod in fresh:
                self._kubelet(pod)
        for name in self.gateways:
            if name not in self.behind:
                self.sync(name)
        self._requests(self.requests)
        self.now += timedelta(seconds=seconds)
        return self.reconcile()

    def _kubelet(self, pod: str) -> None:
        number, ready = pod.split("-")[1], bool(self.pods[pod]["status"].get("ready"))
        if number in self.dead:
            self.restarts[pod] = self.restarts.get(pod, 0) + (self.rounds % 4 == 0)
            self.crash(pod, self.restarts[pod])
            return
        flaps = number in self.flapping and self.rounds % 2
        well = number not in self.hung and pod not in self.out and not flaps
        running = self.pods[pod]["status"].get("phase") == "Running"
        if ready != well or not running:
            self.make_ready(pod, well)

    def _requests(self, requests: int) -> None:
        failing, slow = self._by_name(self.failing), self._by_name(self.slow)
        for gateway in self.gateways.values():
            gateway.serve(requests, slow, self.ready_revisions(), failing)

    def _by_name(self, fractions: Mapping[str, float]) -> dict[str, float]:
        names = self.names("ControllerRevision")
        return {name: fractions[name.split("-")[1]] for name in names if name.split("-")[1] in fractions}

    # The end.

    def ends(self) -> None:
        """The rollout ends in time with all that is wrong, or waits for something that it names."""
        self.flapping.clear()
        for _ in range(40):
            self.go_round(20)
        rollout = self.service.get("status", {}).get("rollout") or {}
        if rollout.get("state", "Promoted") not in ENDED and not self._waits_for_what_it_names(rollout):
            raise EndlessError(f"the rollout does not end: {rollout}")
        self.requests = 0
        plans = [self.go_round() for _ in range(6)]
        if all(plan.writes or plan.status for plan in plans) and rollout.get("reason") not in ENDLESS:
            raise EndlessError(f"writes do not stop: {plans[-1]}")

    def _waits_for_what_it_names(self, rollout: Mapping[str, Any]) -> bool:
        words = " ".join(each["message"] for each in self.service["status"]["conditions"])
        silent = {name for name, gateway in self.gateways.items() if not gateway.readable}
        return any(
            (
                self.service["spec"].get("stopped", False),
                rollout.get("reason") in ENDLESS,
                rollout.get("noRoomSince") is not None and "are missing" in words,
                "has had no ready endpoint for" in words and "What to do: " in words,
                any(name in words for name in self.behind | silent),
                not self.gateways and "no gateway pod is Ready" in words,
                "is refused: no luck today" in words,
                "kubectl delete pod" in words,
                not self.cluster_runtimes and "runtime" in words.lower(),
            )
        )

    def heals(self) -> None:
        """Everything works, and nothing is asked for: one revision serves, and nothing more is written."""
        wanted = self.service["spec"]
        kept = {
            name: wanted["rollout"][name] for name in ("strategy", "capacity") if name in wanted["rollout"]
        }
        self.service["metadata"]["annotations"] = {PAUSE_ANNOTATION: ""}
        self.cluster_runtimes = self.cluster_runtimes or {"onnxruntime": runtime()}
        self.gateways = self.gateways or {"gateway-a": Gateway()}
        scaling = wanted.get("scaling", {})
        fixed = scaling if "mode" in scaling else {"min": scaling.get("min", 1)}
        self.edit(sla={}, rollout=kept, scaling=fixed)
        self.devices = self.quota = 1000
        self.settle(100)
        plan = self.reconcile()
        assert (plan.writes, plan.status, plan.events) == ((), None, ())
        self._serves_alone(stopped=wanted.get("stopped", False))

    def _serves_alone(self, *, stopped: bool) -> None:
        """One revision has its pods and all requests, and nothing else is left."""
        (name,) = self.names("Deployment")
        pods = 0 if stopped else self.needed(name)
        assert self.objects["Deployment", name]["spec"]["replicas"] == pods
        assert sorted(self.names("Service")) == sorted([NAME, name])
        assert self.names("PodDisruptionBudget") == ([name] if pods > 1 else [])
        assert self.serving() == ([] if stopped else [name])
        assert self.condition("TrafficApplied") == ("True", "Acknowledged")
        desired = self.desired()
        rejected = desired in self.marked("rejected-at")
        if stopped:
            assert self.condition("Ready") == ("False", "Stopped")
            return
        assert self.marked("stable") == {name}
        assert self.condition("Ready") == (("False", "RolledBack") if rejected else ("True", "Serving"))
        assert self.condition("Promoted")[0] == ("False" if rejected else "True")
        assert rejected or self.condition("Stalled") == ("False", "NotStalled")
        assert (name == desired) != rejected

    def mend(self) -> None:
        """Nothing is wrong any more."""
        for faults in (self.dead, self.hung, self.flapping, self.out, self.behind, self.cut_off):
            faults.clear()
        for pod in [pod for pod, body in self.pods.items() if "deletionTimestamp" in body["metadata"]]:
            self.end(pod)
        for by_name in (self.failing, self.slow, self.refuses, self.held):
            by_name.clear()
        service = parse(InferenceService, self.service)
        assert isinstance(service, InferenceService), service
        for key in [key for key, stored in self.objects.items() if is_foreign(stored, service)]:
            del self.objects[key]


def is_foreign(stored: Object, service: InferenceService) -> bool:
    """It has the name of a child of this service, and says of itself that it is none."""
    return ownership(stored, service) is Ownership.FOREIGN


def _key(write: Write) -> tuple[str, str]:
    if isinstance(write, Delete):
        return write.kind, write.name
    return write.body["kind"], write.body["metadata"]["name"]
