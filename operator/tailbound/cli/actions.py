"""The annotations that a command sets to ask the operator for an action. Pure.

| command | annotation | names | refused if |
|---|---|---|---|
| promote | promote | the revision on its way | no rollout is under way |
| abort | abort | the revision on its way | no rollout is under way |
| pause | pause | the revision on its way | no rollout is under way, or it is paused already |
| these three | - | - | it is the first revision: there is nothing to return to |
| promote, pause | - | - | it is an older one that comes back: nothing is judged |
| pause, promote | - | - | an abort of it was asked for, which wins |
| pause | - | - | it was promoted manually, or that was asked for: a promotion is not held |
| resume | pause, empty | - | it is not paused |
| retry | retry | the rejected revision | the newest revision was not rejected |
| rollback | rollback-to | the given one, else the one before | it never served, is newest, or serves now |
| any of them | - | - | the service is stopped |
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from tailbound.api.conditions import Reason
from tailbound.api.names import (
    ABORT_ANNOTATION,
    PAUSE_ANNOTATION,
    PROMOTE_ANNOTATION,
    RETRY_ANNOTATION,
    ROLLBACK_ANNOTATION,
)
from tailbound.api.rollout import RolloutState, RolloutStatus
from tailbound.cli.subject import CommandError, Entry, Subject, returns
from tailbound.objects.times import utc_seconds
from tailbound.rollout.actions import named


class Action(StrEnum):
    """What people may ask for."""

    PROMOTE = "promote"
    ABORT = "abort"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    ROLLBACK = "rollback"


_ANNOTATIONS = {
    Action.PROMOTE: PROMOTE_ANNOTATION,
    Action.ABORT: ABORT_ANNOTATION,
    Action.PAUSE: PAUSE_ANNOTATION,
    Action.RESUME: PAUSE_ANNOTATION,
    Action.RETRY: RETRY_ANNOTATION,
    Action.ROLLBACK: ROLLBACK_ANNOTATION,
}


def target(action: Action, subject: Subject, revision: str | None = None) -> str:
    """The revision that the command is about. Raises CommandError where it makes no sense."""
    if subject.service.spec.stopped:
        raise CommandError(f"{subject.title} is stopped: set spec.stopped to false before you run {action}")
    if action is Action.ROLLBACK:
        return _older(subject, revision)
    if action is Action.RETRY:
        return _rejected(subject)
    rollout = subject.under_way
    if rollout is None:
        unseen = f" ({subject.unseen})" if subject.unseen is not None else ""
        raise CommandError(
            f"{subject.title} has no rollout under way{unseen}: see {subject.commands.tailbound('status')}"
        )
    if action is not Action.RESUME:
        _demand_a_choice(action, rollout)
    if action in (Action.PAUSE, Action.PROMOTE):
        _demand_no_later_word(action, subject, rollout)
    paused = _paused(subject) == rollout.revision
    if action is Action.PAUSE and paused:
        raise CommandError(
            f"{rollout.revision} is paused already: run {subject.commands.tailbound('resume')} to continue it"
        )
    if action is Action.RESUME and not paused:
        raise CommandError(
            f"{rollout.revision} is not paused: {subject.commands.tailbound('why')} shows what it waits for"
        )
    return rollout.revision


def changes(action: Action, revision: str, now: datetime) -> Mapping[str, str]:
    """The annotations to set. The time distinguishes a repeated request from the first."""
    if action is Action.RESUME:
        return {_ANNOTATIONS[action]: ""}
    return {_ANNOTATIONS[action]: f"{revision}/{utc_seconds(now)}"}


def said(action: Action, subject: Subject, revision: str) -> str:
    """What follows now that the annotation is there."""
    weight = subject.weight(revision)
    keeps = f"keeps {weight}% of the requests" if weight else "gets no requests"
    sentences = {
        Action.PROMOTE: f"{revision} gets all requests when all its pods are ready",
        Action.ABORT: f"{revision} is being rolled back",
        Action.PAUSE: f"{revision} {keeps} until you run {subject.commands.tailbound('resume')}",
        Action.RESUME: f"{revision} is resumed",
        Action.RETRY: f"{revision} is tried again",
        Action.ROLLBACK: f"{revision} takes over again when its pods are ready",
    }
    silent = f"; {subject.unseen}" if subject.unseen is not None else ""
    return sentences[action] + silent


def _demand_a_choice(action: Action, rollout: RolloutStatus) -> None:
    """The operator acts on these actions only where one revision is to replace another."""
    if not rollout.from_revision:
        raise CommandError(f"{rollout.revision} is the first revision: there is nothing to {action}")
    if returns(rollout) and action is not Action.ABORT:
        raise CommandError(
            f"{rollout.revision} is being restored by a rollback: there is nothing to {action}"
        )


def _demand_no_later_word(action: Action, subject: Subject, rollout: RolloutStatus) -> None:
    """To abort wins over everything, and to promote over a pause."""
    asked, name = subject.actions, rollout.revision
    if asked.revision(ABORT_ANNOTATION) == name:
        raise CommandError(f"an abort of {name} has been requested already: there is nothing to {action}")
    manual = rollout.reason == Reason.PROMOTED_MANUALLY or asked.revision(PROMOTE_ANNOTATION) == name
    if action is Action.PAUSE and manual:
        raise CommandError(
            f"{name} was promoted manually, which cannot be paused: run "
            f"{subject.commands.tailbound('abort')} to roll it back"
        )


def _paused(subject: Subject) -> str | None:
    value = subject.actions.value(PAUSE_ANNOTATION)
    return named(value) if value is not None else None


def _rejected(subject: Subject) -> str:
    rollout = subject.rollout
    if rollout is None or rollout.state is not RolloutState.ROLLED_BACK:
        unseen = f" ({subject.unseen})" if subject.unseen is not None else ""
        raise CommandError(
            f"the newest revision of {subject.title} was not rejected{unseen}: there is nothing to retry"
        )
    return rollout.revision


def _newest(subject: Subject) -> str | None:
    """The revision of the spec as it is: the one that there is no returning to."""
    status = subject.service.status
    if subject.rollout is not None:
        return subject.rollout.revision
    return status.stable.revision if status.stable is not None else None


def _older(subject: Subject, wanted: str | None) -> str:
    newest = _newest(subject)
    served = [entry for entry in subject.history if entry.marks.promoted_at and entry.name != newest]
    if wanted is None:
        fit = [entry for entry in served if entry.marks.rejected is None]
        if not fit:
            lists = subject.commands.tailbound("history")
            raise CommandError(f"{subject.title} has no older revision that served: see {lists}")
        wanted = _before(subject, fit).name
        _demand_a_return(subject, wanted, "use --to REVISION to choose an older one")
        return wanted
    _demand_a_return(subject, wanted, "it cannot be rolled back to")
    if wanted in {entry.name for entry in served}:
        return wanted
    if wanted == newest:
        raise CommandError(f"{wanted} is the newest revision: it cannot be rolled back to")
    names = ", ".join(entry.name for entry in served)
    remedy = f"choose one of {names}" if names else "no older one has"
    raise CommandError(f"{wanted} is not a revision of {subject.title} that has served: {remedy}")


def _demand_a_return(subject: Subject, name: str, remedy: str) -> None:
    """What serves because the newest was rejected is not returned to: that would hide why it was."""
    rollout, stable = subject.rollout, subject.service.status.stable
    if rollout is None or rollout.state is not RolloutState.ROLLED_BACK or stable is None:
        return
    if stable.revision == name:
        raise CommandError(
            f"{name} gets the requests already, because {rollout.revision} was rolled back "
            f"({rollout.reason}): {remedy}"
        )


def _before(subject: Subject, fit: list[Entry]) -> Entry:
    """The one that served before the newest, else the one that was promoted last."""
    from_revision = subject.rollout.from_revision if subject.rollout is not None else ""
    last = max(fit, key=lambda entry: (entry.marks.promoted_at or "", entry.number))
    return next((entry for entry in fit if entry.name == from_revision), last)
