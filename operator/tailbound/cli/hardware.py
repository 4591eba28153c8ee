"""The hardware of a service in words, for `kubectl tailbound status` and `why`. Pure."""

from tailbound.api.inferenceservice import InferenceService


def hardware_lines(service: InferenceService) -> list[str]:
    """Which class serves instead of the first one and why, and what of a return; empty for the first."""
    hardware = service.status.hardware
    if hardware is None or hardware.message is None:
        return []
    since = f" since {hardware.since.isoformat()}" if hardware.since is not None else ""
    first = service.spec.hardware.classes[:1]
    instead = f" instead of {first[0]}" if first else ""
    lines = [f"HardwareClass {hardware.hardware_class} serves{instead}{since}: {hardware.message}."]
    said = hardware.return_message
    return [*lines, f"{said[0].upper()}{said[1:]}."] if said else lines
