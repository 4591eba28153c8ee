"""What keeps a revision that comes back from its pods, and what helps, in messages. Pure.

| what holds (first row that fits) | what is said |
|---|---|
| the API server refuses a write that it needs | what is refused |
| it takes the places of another one | whose, and what is missing where there are too few |
| its pods are stuck at something | at what |
| they find no room | what they need, and what else helps |
| they run, and a probe does not succeed | which one |
| otherwise | nothing |
"""

from tailbound.api.rollout import Capacity
from tailbound.rollout import messages
from tailbound.rollout.in_place import lack_of_room
from tailbound.rollout.model import PodProblem, RolloutInput, RolloutStep
from tailbound.rollout.refused_writes import hindrance


def obstruction(now: RolloutInput, name: str, step: RolloutStep) -> str:
    """What keeps it, as the end of a message; empty if nothing is known to."""
    state, refused = now.of(name), refused_to(now, name, step)
    if refused is not None:
        return messages.fails(refused)
    if step.makes_way is not None:
        return _place(now, name, step, step.makes_way)
    if state.trouble is None:
        return messages.probe_fails(state.unready) if state.unready else ""
    if not state.trouble.lacks_room:
        return messages.fails(state.trouble)
    return messages.waits_for_room(state.trouble, _remedy(now, name, step.flow.target))


def refused_to(now: RolloutInput, name: str, step: RolloutStep) -> PodProblem | None:
    """What the API server refuses of what it needs."""
    return hindrance(now, name, step.makes_way, now.pods(name))


def _remedy(now: RolloutInput, name: str, serving: str | None) -> str:
    """What helps beside more room; `serving` has the requests meanwhile."""
    if serving is None or serving == name:
        return ""
    if now.spec.capacity is Capacity.SURGE and now.pods(serving) > 1:
        return messages.let_give_up_places(serving)
    return messages.only_pod(serving, now.spec.progress_deadline, ready=now.ready(serving) > 0)


def _place(now: RolloutInput, name: str, step: RolloutStep, other: str) -> str:
    """Whose places it takes, and who has to have them before; what is missing where there are too few."""
    first = now.stable if name not in step.fleet else None
    told = messages.takes_places(other) if first is None else messages.takes_back(first, other)
    lack = lack_of_room(now, first or name, other)
    return told if lack is None else f"{told}; {messages.missing(lack)}{messages.ask_for_fewer()}"
