"""What the writes and the status of one decision are derived from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from tailbound.reconcile import class_returns, placements
from tailbound.reconcile.desired import Desired, Intended
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.snapshot import Snapshot
from tailbound.rollout.class_return import ReturnDecision
from tailbound.rollout.fallback import FallbackDecision, Stay
from tailbound.rollout.model import RolloutStep
from tailbound.rollout.problem import Problem


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

    @cached_property
    def class_return(self) -> ReturnDecision | None:
        """Whether the service returns to a preferred hardware class; None where nothing is to be decided."""
        rollout, choice = self.step.rollout, self.intended.choice
        return class_returns.decision(
            self.owned,
            settled=self.name is not None
            and self.name == self.owned.stable
            and (rollout is None or rollout.is_over),
            problem=choice.message if isinstance(choice, Problem) else "",
            fallback=self.fallbacks.get(self.name or "", Stay()),
            now=self.now,
        )

    @property
    def name(self) -> str | None:
        """The name of the desired revision; None while there is none."""
        return self.desired.name
