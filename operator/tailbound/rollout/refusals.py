"""Annotations that ask a rollout for something that cannot be: reported for as long as they are there.

First row that fits; what was acted on is never refused.

| action | the revision that it names | why it is refused |
|---|---|---|
| any | is none of this service | there is no such revision |
| rollback-to | never took over, or is damaged | nothing to return to |
| rollback-to | is the newest, and was rejected | a retry is what it takes |
| promote | was rejected | a retry comes first |
| promote | is neither on its way nor the stable one | its spec has to come back first |
| abort | has taken over, or is the first | a rollback is what it takes, or a new spec |
"""

from collections.abc import Iterator

from tailbound.api.names import ABORT_ANNOTATION, PAUSE_ANNOTATION, PROMOTE_ANNOTATION, ROLLBACK_ANNOTATION
from tailbound.rollout.actions import named
from tailbound.rollout.model import RolloutInput, RolloutStep
from tailbound.rollout.roles import can_serve


def refusal(now: RolloutInput, step: RolloutStep) -> str | None:
    """Why the first annotation that cannot be acted on cannot be; None if there is none."""
    if not now.actions.values:
        return None
    done = step.marking.handled
    asked = {action: name for action, name in now.actions.open().items() if action in now.actions.values}
    open_actions = {action: name for action, name in asked.items() if action not in done}
    # An empty one ends a pause.
    pause = now.actions.values.get(PAUSE_ANNOTATION)
    named_anywhere = {**open_actions, PAUSE_ANNOTATION: named(pause)} if pause else open_actions
    return next(
        (
            f"{action} is {now.actions.values[action]!r}: {why}"
            for action, why in _rules(now, step, named_anywhere)
        ),
        None,
    )


def _rules(now: RolloutInput, step: RolloutStep, actions: dict[str, str]) -> Iterator[tuple[str, str]]:
    returns = sorted(name for name in now.revisions if can_serve(now, name))
    choice = f"name one of {', '.join(returns)}" if returns else "there is none to return to"
    for action, name in actions.items():
        if name not in now.revisions:
            remedy = choice if action == ROLLBACK_ANNOTATION else "see kubectl tailbound history"
            yield action, f"this service has no revision of that name; {remedy}, or remove the annotation"
    for action, name in actions.items():
        why = _senseless(now, step, action, name, choice)
        if why is not None:
            yield action, why


def _senseless(now: RolloutInput, step: RolloutStep, action: str, name: str, choice: str) -> str | None:
    state, rejected = now.of(name), now.of(name).rejection is not None
    newest, rollout = name == now.desired, step.rollout
    back, promote, abort = (
        action == kind for kind in (ROLLBACK_ANNOTATION, PROMOTE_ANNOTATION, ABORT_ANNOTATION)
    )
    first = rollout is not None and rollout.revision == name and not rollout.from_revision
    on_its_way = name in {now.desired, step.stable}
    rules = (
        (
            back and newest and rejected,
            "it is the newest revision and was rejected; kubectl tailbound retry tries it again",
        ),
        (
            back and not newest and not state.restorable,
            f"its record is damaged, so that its pods cannot be made; {choice}",
        ),
        (
            back and not newest and state.promoted_at is None,
            f"it never took over; {choice}, or change the spec",
        ),
        (promote and rejected, "it was rejected; kubectl tailbound retry tries it again"),
        (
            promote and not on_its_way,
            "it is not on its way; apply its spec, or return to it with kubectl tailbound rollback",
        ),
        (
            abort and name == step.stable,
            "it has taken over; kubectl tailbound rollback returns to an older one",
        ),
        (abort and newest and first, "it is the first revision, and there is none to return to"),
    )
    return next((why for holds, why in rules if holds), None)
