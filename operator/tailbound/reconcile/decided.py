"""What the writes and the status of one decision are derived from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from tailbound.reconcile import placements
from tailbound.reconcile.desired import Desired, Intended
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.snapshot import Snapshot
from tailbound.rollout.fallback import FallbackDecision
from tailbound.rollout.model import RolloutStep


@dataclass(frozen=True)
class Decided:
    """What exists, the revision that the spec asks for, and the step that its rollout takes."""

    snapshot: Snapshot
    desired: Desired
    step: RolloutStep
    now: datetime

    @property
    def owned(self) -> OwnedState:
        """What exists."""
        return self.snapshot.owned

    @property
    def intended(self) -> Intended:
        """What the spec asks for."""
        return self.snapshot.intended

    @cached_property
    def fallbacks(self) -> Mapping[str, FallbackDecision]:
        """What follows for each revision that has pods and a choice of hardware classes."""
        return placements.decisions(self.owned, self.now)

    @property
    def name(self) -> str | None:
        """The name of the desired revision; None while there is none."""
        return self.desired.revision.name if self.desired.revision is not None else None
