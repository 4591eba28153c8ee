"""A revision that a later spec came before: it is remembered as such, as it was never judged. Pure.

| status.rollout as it is stored | the desired revision | superseded |
|---|---|---|
| none, or over | any | none |
| of an older revision that comes back | any | none |
| of a revision that was rejected, or is the stable one | any | none: only the status is behind |
| of any other revision | that one, or none can be made | none |
| of any other revision | another | that one |
"""

from tailbound.api.conditions import Reason
from tailbound.api.rejection import Superseded
from tailbound.api.rollout import RolloutState
from tailbound.rollout.model import RolloutInput

_RETURNS = frozenset({Reason.LOST, Reason.ROLLED_BACK_MANUALLY})


def superseded(given: RolloutInput) -> Superseded | None:
    """The revision that was on its way, if the spec is another one's now."""
    stored, desired = given.stored, given.desired
    if stored is None or stored.is_over or desired is None or desired == stored.revision:
        return None
    if stored.state is RolloutState.PROMOTING and stored.reason in _RETURNS:
        return None
    if given.of(stored.revision).rejection is not None or stored.revision == given.stable:
        return None
    return Superseded(stored.revision, desired)
