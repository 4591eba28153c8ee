"""Whether an operator leads, by the Leases of all installations. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tailbound.api.names import COMPONENT_LABEL, OPERATOR_COMPONENT, OPERATOR_LEASE
from tailbound.cli.table import age
from tailbound.objects.kubectl import kubectl
from tailbound.objects.lease import Lease
from tailbound.objects.times import time_in

SILENT_AFTER: Final = timedelta(seconds=45)
"""Three times as long as a Lease lasts: a new leader takes less, also where clocks differ somewhat."""


def silence(leases: Iterable[Lease], now: datetime) -> str | None:
    """The message that no operator leads, so that a status may be out of date.

    | the Leases | what is said |
    |---|---|
    | none, as where the user may not read them or nothing was installed | nothing |
    | one was renewed within SILENT_AFTER, or does not say when | nothing |
    | all are older | since when the newest of them was not renewed |

    Which of several installations a service belongs to is not known, so that one that works is enough.
    """
    renewed = [(time_in(lease.renew_time), lease.namespace) for lease in leases]
    known = [(moment, namespace) for moment, namespace in renewed if moment is not None]
    if not known or len(known) < len(renewed):
        return None
    last, namespace = max(known)
    if now - last < SILENT_AFTER:
        return None
    look = kubectl(namespace, "get", "pods", "--selector", f"{COMPONENT_LABEL}={OPERATOR_COMPONENT}")
    return (
        f"no operator of Tailbound works: Lease {OPERATOR_LEASE} of namespace {namespace} was last renewed "
        f"{age(now, last)} ago. The status is as old, and what is asked for waits; pods serve "
        f"meanwhile. See its pods: {look}"
    )
