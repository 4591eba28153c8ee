"""How far a rollout has come: what one decision leaves to the next, apart from what its evidence says."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tailbound.api.findings import FindingStatus, MetricFindingStatus
from tailbound.api.rollout import RolloutState
from tailbound.rollout.problem import Problem


@dataclass(frozen=True)
class Judgement:
    """What the evidence said at the last poll, as status.rollout shows it. No rule of a rollout reads it."""

    findings: tuple[FindingStatus, ...] = ()
    metrics: tuple[MetricFindingStatus, ...] = ()
    evidence: dict[str, Any] | None = None
    """The counters, and all that was computed from them; None once nothing is to be judged any more."""


@dataclass(frozen=True)
class RolloutProgress:
    """One rollout under way, or how it ended. `reconcile.progress` reads it from status.rollout and back."""

    state: RolloutState
    revision: str
    """The revision that is to take over."""
    from_revision: str = ""
    """The stable revision when it began; empty for the first one."""
    instead_of: str = ""
    """The revision that a return rejects once the older one serves again; empty if no return is under way."""
    step: int = 0
    """Number of the present step, from 0; behind the last one while all requests go to the new revision."""
    step_weight: int = 0
    """Percent of the requests that the present step is to give to the new revision; 0 before the first."""
    passed: int = 0
    """The most percent of the requests with which the new revision has passed a step."""
    judged_by: tuple[str, ...] | None = None
    """What it is judged by, as `demands` says; None before that is known."""
    weight: int = 0
    """Percent of the requests that the new revision is to get."""
    reason: str = ""
    """A `Reason`, or what another version of the operator has stored."""
    message: str = ""
    started_at: datetime | None = None
    step_started_at: datetime | None = None
    """When every gateway was first seen to apply the present step's weight."""
    step_asked_at: datetime | None = None
    """When the present step's weight was first asked for."""
    step_held_by: str = ""
    """Pods of the stable revision that were not ready when they were last seen so before the step began."""
    progress_at: datetime | None = None
    """When the deadline for one more ready pod began, later by the time for which it stood still."""
    still_since: datetime | None = None
    """Since when that deadline stands still."""
    no_capacity_since: datetime | None = None
    """Since when pods of the new revision lack capacity."""
    moving_since: datetime | None = None
    """Since when requests that leave a revision wait for pods of the one that takes them."""
    in_place: bool = False
    """The new revision's pods take the places of the stable one's."""
    high_water: int = 0
    """The most pods of the new revision that were ever ready."""
    refused: Problem | None = None
    """What the API server refused of what the rollout needs when that was last tried."""
    unrecorded: bool = False
    """The revision is rejected, and its record does not say so, as the API server refuses to write it."""
    judged: Judgement = Judgement()

    def at(self, state: RolloutState, reason: str, message: str) -> "RolloutProgress":
        """The rollout in this state, and why."""
        return replace(self, state=state, reason=reason, message=message)

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        return self.state.is_over
