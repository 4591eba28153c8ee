"""The end of a message about a rollback: why pods of the older revision are missing, and what helps. Pure.

| what holds (first row that fits) | what the message says |
|---|---|
| the API server refuses a write that it needs | what is refused |
| its pods replace those of another revision in place | of which one, and the capacity that is missing |
| its pods cannot start | the cause |
| no node or quota has capacity for them | what they need, and what else helps |
| they run, and a probe does not succeed | which probe |
| otherwise | nothing |
"""

from tailbound.api.rollout import Capacity
from tailbound.rollout import messages
from tailbound.rollout.in_place import missing_capacity
from tailbound.rollout.model import RolloutInput, RolloutStep
from tailbound.rollout.problem import Problem
from tailbound.rollout.refused_writes import hindrance


def obstruction(given: RolloutInput, name: str, step: RolloutStep) -> str:
    """The end of a message that says why pods are missing; empty if nothing is known."""
    state, refused = given.of(name), refused_to(given, name, step)
    if refused is not None:
        return messages.fails(name, refused)
    if step.makes_way is not None:
        return _place(given, name, step, step.makes_way)
    if state.trouble is None:
        return messages.probe_fails(name, state.unready) if state.unready else ""
    if not state.trouble.lacks_capacity:
        return messages.fails(name, state.trouble)
    return messages.waits_for_capacity(name, state.trouble, _remedy(given, name, step.flow.target))


def refused_to(given: RolloutInput, name: str, step: RolloutStep) -> Problem | None:
    """The write for this revision that the API server refuses, if any."""
    return hindrance(given, name, step.makes_way, given.pods(name))


def _remedy(given: RolloutInput, name: str, serving: str | None) -> str:
    """What helps beside more capacity; `serving` is the revision that gets the requests meanwhile."""
    if serving is None or serving == name:
        return ""
    if given.spec.capacity is Capacity.SURGE and given.pods(serving) > 1:
        return messages.allow_in_place(serving)
    return messages.only_pod(serving, given.spec.progress_deadline, ready=given.ready(serving) > 0)


def _place(given: RolloutInput, name: str, step: RolloutStep, other: str) -> str:
    """Which pods are replaced in place, and the capacity that is missing for that."""
    first = given.stable if name not in step.fleet else None
    message = messages.takes_places(name, other) if first is None else messages.takes_back(first, other)
    lack = missing_capacity(given, first or name, other)
    return message if lack is None else f"{message}; {messages.missing(lack)}{messages.ask_for_fewer()}"
