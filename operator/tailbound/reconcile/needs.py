"""What a pod of a revision needs of a node, in words: for people who have to make room."""

from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.record import CorruptRevisionError, from_object


def needs(world: OwnedState, name: str) -> str:
    """The devices, or else what it computes with, and the hardware class that asks for them."""
    try:
        revision = from_object(world.stored_revisions[name])
    except (KeyError, CorruptRevisionError):
        return "what its Deployment says"
    limits = {
        resource: amount
        for container in revision.template["spec"]["containers"]
        for resource, amount in container.get("resources", {}).get("limits", {}).items()
    }
    devices = {resource: amount for resource, amount in limits.items() if "/" in resource}
    amounts = ", ".join(f"{resource} {amount}" for resource, amount in (devices or limits).items())
    return f"{amounts} (HardwareClass {revision.hardware_class})"
