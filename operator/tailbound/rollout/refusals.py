"""Annotations that ask for an impossible action. Each is reported for as long as it is set.

First row that fits; an action that was carried out is never refused.

| action | the revision that it names | why it is refused |
|---|---|---|
| any | does not belong to this service | there is no such revision |
| rollback-to | never took over, or is damaged | requests cannot return to it |
| rollback-to | is the newest, and was rejected | the action `retry` does that |
| promote | was rejected | the action `retry` must come first |
| promote | is neither the candidate nor the stable one | its spec must be applied first |
| abort | has taken over, or is the first | a rollback or a new spec does that |
"""

from collections.abc import Iterator

from tailbound.api.names import ABORT_ANNOTATION, PAUSE_ANNOTATION, PROMOTE_ANNOTATION, ROLLBACK_ANNOTATION
from tailbound.rollout.actions import named
from tailbound.rollout.model import RolloutInput, RolloutStep
from tailbound.rollout.roles import can_serve


def refusal(given: RolloutInput, step: RolloutStep) -> str | None:
    """The message about the first annotation that asks for an impossible action; None if there is none."""
    if not given.actions.values:
        return None
    done = step.marking.handled
    asked = {action: name for action, name in given.actions.open().items() if action in given.actions.values}
    open_actions = {action: name for action, name in asked.items() if action not in done}
    # An empty value ends a pause.
    pause = given.actions.values.get(PAUSE_ANNOTATION)
    named_anywhere = {**open_actions, PAUSE_ANNOTATION: named(pause)} if pause else open_actions
    return next(
        (
            f"{action} is {given.actions.values[action]!r}: {why}"
            for action, why in _rules(given, step, named_anywhere)
        ),
        None,
    )


def _rules(given: RolloutInput, step: RolloutStep, actions: dict[str, str]) -> Iterator[tuple[str, str]]:
    returns = sorted(name for name in given.revisions if can_serve(given, name))
    choice = f"name one of {', '.join(returns)}" if returns else "there is no older revision to roll back to"
    history = given.commands.tailbound("history")
    for action, name in actions.items():
        if name not in given.revisions:
            remedy = choice if action == ROLLBACK_ANNOTATION else f"{history} lists them"
            yield action, f"this service has no revision of that name; {remedy}, or remove the annotation"
    for action, name in actions.items():
        why = _senseless(given, step, action, name, choice)
        if why is not None:
            yield action, why


def _senseless(given: RolloutInput, step: RolloutStep, action: str, name: str, choice: str) -> str | None:
    state, rejected = given.of(name), given.of(name).rejection is not None
    newest, rollout = name == given.desired, step.rollout
    back, promote, abort = (
        action == kind for kind in (ROLLBACK_ANNOTATION, PROMOTE_ANNOTATION, ABORT_ANNOTATION)
    )
    first = rollout is not None and rollout.revision == name and not rollout.from_revision
    on_its_way = name in {given.desired, step.stable}
    commands = given.commands
    retry, older = commands.tailbound("retry"), commands.tailbound("rollback")
    back_to = commands.tailbound("rollback", "--to", name)
    rules = (
        (
            back and newest and rejected,
            f"it is the newest revision and was rejected; run {retry} to try it again",
        ),
        (
            back and not newest and not state.restorable,
            f"its ControllerRevision is damaged, so that its pods cannot be created; {choice}",
        ),
        (
            back and not newest and state.promoted_at is None,
            f"it never took over; {choice}, or change the spec",
        ),
        (promote and rejected, f"it was rejected; run {retry} to try it again"),
        (
            promote and not on_its_way,
            f"it is not the candidate; apply its spec, or run {back_to} to return to it",
        ),
        (
            abort and name == step.stable,
            f"it has taken over; run {older} to return to an older revision",
        ),
        (abort and newest and first, "it is the first revision; there is no older one to roll back to"),
    )
    return next((why for holds, why in rules if holds), None)
