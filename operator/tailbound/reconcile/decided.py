"""What the writes and the status of one decision are derived from."""

from dataclasses import dataclass
from datetime import datetime

from tailbound.reconcile.desired import Desired, Intended
from tailbound.reconcile.owned_state import OwnedState
from tailbound.reconcile.snapshot import Snapshot
from tailbound.revisions.record import CorruptRevisionError, Revision, from_object
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

    @property
    def name(self) -> str | None:
        """The name of the desired revision; None while there is none."""
        return self.desired.revision.name if self.desired.revision is not None else None

    def stored(self, name: str | None) -> Revision | None:
        """A stored revision; None if it is gone or cannot be read: then it is left alone."""
        stored = self.owned.stored_revisions.get(name) if name is not None else None
        try:
            return from_object(stored) if stored is not None else None
        except CorruptRevisionError:
            return None
