"""Revisions that are to have pods, with a record that is gone or unreadable: they are left alone. Pure."""

from tailbound.api.conditions import Reason
from tailbound.reconcile.decided import Decided
from tailbound.revisions.record import CorruptRevisionError
from tailbound.rollout.problem import Problem


def lost_record(decided: Decided) -> Problem | None:
    """The problem of a lost record: what is lost, what holds, and what to do. None if every revision with
    pods can be made again.

    The desired revision is left out: it is made again from the spec, and if its record cannot be read, that
    is its own problem.
    """
    owned, name = decided.owned, decided.name
    fleet = (each for each, replicas in decided.step.fleet.items() if replicas and each != name)
    lost = min((each for each in fleet if owned.revision(each) is None), default=None)
    if lost is None:
        return None
    found = owned.revisions.get(lost)
    corrupt = isinstance(found, CorruptRevisionError)
    what = str(found) if corrupt else f"ControllerRevision {lost} was deleted while its pods are needed"
    holds = (
        f"Deployment {lost} stays as it is: it is not scaled, not repaired, and not made again"
        if lost in owned.deployments
        else f"Deployment {lost} is gone as well, and no pod of it can be made"
    )
    coming = decided.step.candidate
    waits = f"let {coming} take over, or apply" if coming is not None else "apply"
    return Problem(
        Reason.REVISION_CORRUPT if corrupt else Reason.RECORD_LOST,
        f"{what}. {holds}, and no rollback leads to {lost}. Restore the ControllerRevision from a backup, or "
        f"{waits} the spec of {lost} again: that makes a new revision of it",
    )
