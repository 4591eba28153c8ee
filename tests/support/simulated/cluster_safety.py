"""What must never happen in a simulated cluster: looked at when something is written."""

from tailbound.objects.fields import Object

from tests.support.simulated.cluster_state import ClusterState, weights_in

TAKES_OVER = {"RollingOut", "PromotedManually"}
"""Reasons of a rollout that ends with its promotion."""


class UnsafeError(AssertionError):
    """Something happened that would have cost requests."""


class SafetyChecks(ClusterState):
    """A cluster that raises UnsafeError for a write that would cost requests."""

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
        stable = self.stable()
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
        if name != self.stable() or replicas >= least or gives_up:
            return
        in_place = rollout.get("capacity", "surge") != "surge"
        gone = max(min(before, self.ready_pods(name)) - replicas, 0)
        if gone and (not in_place or replicas == 0 or gone > 1 or self.ready_pods() - gone < least - 1):
            raise UnsafeError(f"stable {name} is to have {replicas} pods")
