"""How many pods a service's revisions are to have."""

from tailbound.api.inferenceservice import Scaling
from tailbound.rollout.sizing import Sizing, fixed


def sizing_of(scaling: Scaling) -> Sizing:
    """The pods of every revision."""
    return fixed(scaling.asked)
