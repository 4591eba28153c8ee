"""What was found and decided about one service, as the rules of its conditions read it."""

from dataclasses import dataclass

from tailbound.api.conditions import Reason
from tailbound.api.rollout import Strategy
from tailbound.objects.kubectl import Commands
from tailbound.reconcile import downloads, ending, signatures
from tailbound.reconcile.condition_verdict import ConditionVerdict
from tailbound.reconcile.decided import Decided
from tailbound.reconcile.desired import Desired
from tailbound.reconcile.gateways import Applied, acknowledgement
from tailbound.reconcile.judging import unjudged
from tailbound.reconcile.lost_records import lost_record
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.pods import PodsReport, report
from tailbound.reconcile.writes import Resolved
from tailbound.rollout.model import RolloutStep
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class Facts:
    """Everything that the conditions of one service are derived from."""

    commands: Commands
    stopped: bool
    problem: Problem | None
    conflict: Problem | None
    """A child that is refused, undone, or left alone as its record is lost, while the rest goes on."""
    waiting: str | None
    """What must be gone before the work can go on."""
    desired: Desired
    step: RolloutStep
    applied: Applied | None
    """What the gateways do with status.traffic; None while there is none."""
    replicas: int
    """Pods that the desired revision is to have."""
    ready: int
    """Ready endpoints of the desired revision."""
    was_stable: bool
    """The desired revision was promoted before."""
    serving: str | None
    """The revision that has all requests but a candidate's share, if it has a ready endpoint."""
    recreates: bool
    """The old pods go before the new ones come."""
    pods: PodsReport
    """The pods of the desired revision."""
    fallback: str
    """To which class the desired revision fell back, and why, in words; empty if it did not."""
    target_pods: PodsReport
    """The pods of the revision that has all requests but a candidate's share."""
    pods_left: bool
    """Whether any revision still has pods."""
    unjudged: str
    """What no target of the spec judges, in words; empty if there is nothing, or no rollout yet."""
    signature: ConditionVerdict | None
    """Whether the models of a rollout have the same inputs and outputs; None where that stays as it was."""
    download: str
    """The progress of the desired revision's download, as the end of a message; empty if it is not known."""
    late: str
    """What to do about pods that should have ended, as the end of a message."""

    @property
    def name(self) -> str | None:
        """The name of the desired revision; None while there is none."""
        return self.desired.name

    @property
    def on_target(self) -> bool:
        """The desired revision has all requests by now, and one of its endpoints is ready."""
        return self.takes_over and self.step.flow.whole

    @property
    def takes_over(self) -> bool:
        """The desired revision is to have all requests, and one of its endpoints is ready."""
        return self.name is not None and self.name == self.step.flow.target and self.ready > 0

    @property
    def down(self) -> str | None:
        """The revision that is to answer and cannot, although requests were answered before."""
        served_before = self.step.stable is not None and not self.stopped
        exchanged = self.recreates and self.step.candidate is not None
        return self.step.flow.target if self.serving is None and served_before and not exchanged else None

    @property
    def fails(self) -> str:
        """What follows where the desired revision is to answer and cannot; empty elsewhere."""
        return ", so that requests fail" if self.name is not None and self.down == self.name else ""

    @property
    def unrouted(self) -> bool:
        """There is no Ready gateway that could bring requests to the pods."""
        return not self.stopped and self.applied is not None and self.applied.reason is Reason.NO_GATEWAY

    @property
    def outage(self) -> Reason | None:
        """Why requests fail, where no other message about the desired revision would mention it."""
        covered = self.step.flow.target == self.name and self.problem is None
        if covered or (self.serving is None and self.down is None):
            return None
        if self.down is not None:
            return Reason.NOT_READY
        return Reason.NO_GATEWAY if self.unrouted else None

    @property
    def serves_now(self) -> str:
        """What answers requests now, as the beginning of a message; empty before anything ever did."""
        if self.serving is not None:
            return (
                f"{self.applied.message}; " if self.applied and self.unrouted else f"{self.serving} serves; "
            )
        if self.down is None:
            return ""
        found = self.target_pods.why_unready
        why = f" ({found})" if found else ""
        return f"no endpoint of {self.down} is ready{why}, so that requests fail; "

    @property
    def coming_back(self) -> str | None:
        """The message of the rollout that brings an older revision back to the requests."""
        step, rollout = self.step, self.step.rollout
        back = rollout is not None and step.candidate not in (None, self.name)
        return rollout.message if rollout is not None and back else None

    @property
    def share(self) -> int:
        """Percent of the requests that a candidate gets beside the base."""
        rollout = self.step.rollout
        return rollout.weight if self.step.candidate is not None and rollout is not None else 0


def facts_of(decided: Decided, resolved: Resolved) -> Facts:
    """The facts of one decision."""
    owned, step = decided.owned, decided.step
    name, target = decided.name or "", step.flow.target
    serves = target is not None and owned.ready_endpoints.get(target, 0) > 0
    return Facts(
        commands=owned.commands,
        stopped=owned.service.spec.stopped,
        problem=resolved.problem or decided.desired.problem,
        conflict=resolved.conflict or lost_record(decided),
        waiting=resolved.waiting,
        desired=decided.desired,
        step=step,
        applied=acknowledgement(owned, decided.snapshot.routing, step.flow.traffic),
        replicas=step.fleet.get(name, 0),
        ready=owned.ready_endpoints.get(name, 0),
        was_stable=name == owned.stable,
        serving=target if serves else None,
        recreates=owned.service.spec.rollout.strategy is Strategy.RECREATE,
        pods=_pods(owned, name),
        fallback=_fallback(owned, name),
        target_pods=_pods(owned, target or ""),
        pods_left=bool(owned.pods),
        unjudged=unjudged(owned.service.spec.sla) if _is_rollout(step) else "",
        signature=signatures.verdict(owned, step.rollout),
        download=downloads.message(owned, name),
        late=ending.remedies(owned.pods, decided.now),
    )


def _is_rollout(step: RolloutStep) -> bool:
    """One revision takes over, or took over, from another."""
    return step.rollout is not None and bool(step.rollout.from_revision)


def _fallback(owned: OwnedState, name: str) -> str:
    revision, marks = owned.revision(name), owned.marks.get(name)
    if revision is None or marks is None or marks.fallback is None:
        return ""
    if revision.hardware_class == revision.classes[0]:
        return ""
    return f"HardwareClass {revision.hardware_class} instead of {revision.classes[0]}: {marks.fallback.why}"


def _pods(owned: OwnedState, name: str) -> PodsReport:
    return owned.reports.get(name) or report((), None)
