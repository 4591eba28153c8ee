"""The status of a HardwareClass, which all installations of a cluster write together. Pure.

Nodes and their devices are the same for all of them. Pods are not: an installation sees those of its own
namespaces only. So each writes what its pods have, in an entry of its own, and the sums over all entries: the
last writer writes the same sums as the one before. An installation renews its entry each hour; one that was
not renewed for three hours is of an installation that is gone. So is one that is as
far in the future: it is of a clock that was wrong, and would stay for good.
"""

from datetime import datetime, timedelta
from typing import Final

from tailbound.api.hardwareclass import HardwareClassStatus, InstallationUsage
from tailbound.reconcile.class_usage import ClassCount

_RENEWED_EACH: Final = timedelta(hours=1)
_GONE_AFTER: Final = timedelta(hours=3)


def class_status(
    count: ClassCount, installation: str, stored: HardwareClassStatus, now: datetime
) -> HardwareClassStatus:
    """The status to write. count: what this installation sees; stored: as the last writer left it."""
    entries = {
        each.name: each
        for each in stored.installations
        if each.name != installation and abs(now - each.renewed_at) < _GONE_AFTER
    }
    before = next((each for each in stored.installations if each.name == installation), None)
    entries[installation] = _entry(count, installation, before, now)
    installations = tuple(entries[name] for name in sorted(entries))
    return HardwareClassStatus(
        nodes=count.nodes,
        devices=count.devices,
        free=_left(count.devices, [each.devices for each in installations]),
        room=_left(count.room, [each.room for each in installations]),
        services=sum(each.services for each in installations),
        waiting=sum(each.waiting for each in installations),
        installations=installations,
    )


def _entry(
    count: ClassCount, installation: str, before: InstallationUsage | None, now: datetime
) -> InstallationUsage:
    young = before is not None and timedelta() <= now - before.renewed_at < _RENEWED_EACH
    return InstallationUsage(
        name=installation,
        services=count.services,
        waiting=count.waiting,
        devices=count.held,
        room=count.taken,
        renewed_at=before.renewed_at if before is not None and young else now.replace(microsecond=0),
    )


def _left(whole: int | None, taken: list[int | None]) -> int | None:
    """What the installations leave; None where it is not counted."""
    return None if whole is None else max(whole - sum(filter(None, taken)), 0)
