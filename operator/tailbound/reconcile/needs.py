"""The resources that a pod of a revision needs, as text for messages about missing capacity."""

from tailbound.objects.fields import child, children
from tailbound.reconcile.owned_state import OwnedState
from tailbound.revisions.claims import claimed_devices


def needs(owned: OwnedState, name: str) -> str:
    """The devices, or else the CPU and memory limits, and the hardware class that asks for them."""
    revision = owned.revision(name)
    if revision is None:
        return "the resources in its Deployment"
    limits = {
        resource: amount
        for container in children(child(revision.template, "spec"), "containers")
        for resource, amount in child(container, "resources", "limits").items()
    }
    devices = {resource: amount for resource, amount in limits.items() if "/" in resource}
    claimed = {
        f"DeviceClass {name}": str(count)
        for name, count in claimed_devices(revision.template, revision.claims).items()
    }
    wanted = {**devices, **claimed} or limits
    amounts = ", ".join(f"{resource} {amount}" for resource, amount in wanted.items())
    return f"{amounts} (HardwareClass {revision.hardware_class})"
