"""From many gateways' readings to one poll's counts of both arms."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from tailbound.rollout.counters import Classes, Reading, Unknown, increment
from tailbound.telemetry.prometheus import Series, Unavailable


@dataclass(frozen=True)
class Arms:
    """What the two arms served between two complete polls."""

    canary: Classes
    stable: Classes


@dataclass(frozen=True)
class Answers:
    """One round of asking: every gateway that must be read, and all gateway pods that there are, by UID."""

    by_pod: Mapping[str, Reading | Unknown]
    existing: Set[str]
    unread: str = ""
    """Why nothing is known, where the readers know it better than that a gateway was not read."""
    metrics: Mapping[str, tuple[Series, ...] | Unavailable] = field(default_factory=dict)
    """What Prometheus answers to the queries of analysis.metrics, by the query."""


@dataclass(frozen=True)
class Readings:
    """The last complete poll: what every gateway process had counted then, by the UID of its pod.

    Stored together with the evidence that was computed from it, in one write. Whoever finds the old pair
    counts the same requests again from the old readings, and whoever finds the new pair does not see them any
    more.
    """

    by_pod: Mapping[str, Reading]
    unasked: tuple[str, ...] = ()
    """UIDs of pods that were there when the counting began and were not asked, and have not been since."""


@dataclass(frozen=True)
class Frozen:
    """A poll that says nothing. The readings stay as they were: the next complete poll makes up for it."""

    reason: str


@dataclass(frozen=True)
class Counted:
    """A complete poll: what happened since the last one, and the readings to start from next time."""

    arms: Arms
    readings: Readings


def baseline(answers: Mapping[str, Reading | Unknown], existing: Set[str]) -> Readings | Frozen:
    """Where a rollout's counting starts: nothing that was counted before it is judged.

    Otherwise the whole history of stable, and of a revision that served once before, would be this rollout's.
    A pod that was not Ready for a moment has such a history too: its own first answer is where it starts.
    """
    unread = _unread(answers)
    if unread is not None:
        return unread
    return Readings(_known(answers), tuple(sorted(existing - answers.keys())))


def poll(
    before: Readings, answers: Mapping[str, Reading | Unknown], existing: Set[str], canary: str, stable: str
) -> Counted | Frozen:
    """The requests of both revisions since `before`; the first row that matches decides.

    | the answers                                  | the poll                            |
    |----------------------------------------------|-------------------------------------|
    | none at all                                  | frozen                              |
    | one gateway unread                           | frozen                              |
    | a counter fell in a process that did not die | frozen                              |
    | all read                                     | the sum of the gateways' increments |

    `answers` has every gateway that must be read, by the UID of its pod; `existing` are the UIDs of all
    gateway pods that there are, read or not. What a vanished pod had counted since the last complete poll is
    lost, and nothing else is. A pod that is there but was not asked keeps its reading, so that its return
    counts nothing twice. A pod that has come since the counting began counts from zero.
    """
    unread = _unread(answers)
    if unread is not None:
        return unread
    known = _known(answers)
    arms = Arms(Classes(), Classes())
    for pod, reading in sorted(known.items()):
        last = reading if pod in before.unasked else before.by_pod.get(pod)
        of_canary, of_stable = increment(last, reading, canary), increment(last, reading, stable)
        if isinstance(of_canary, Unknown) or isinstance(of_stable, Unknown):
            return Frozen(f"a counter of gateway pod {pod} went down though its process did not restart")
        arms = Arms(arms.canary + of_canary, arms.stable + of_stable)
    remembered = {pod: reading for pod, reading in before.by_pod.items() if pod in existing}
    unasked = tuple(pod for pod in before.unasked if pod in existing and pod not in known)
    return Counted(arms, Readings(remembered | known, unasked))


def _unread(answers: Mapping[str, Reading | Unknown]) -> Frozen | None:
    if not answers:
        return Frozen("there is no gateway to read")
    missing = sorted(pod for pod, answer in answers.items() if isinstance(answer, Unknown))
    return Frozen(f"gateway pod {missing[0]} could not be read") if missing else None


def _known(answers: Mapping[str, Reading | Unknown]) -> dict[str, Reading]:
    return {pod: answer for pod, answer in answers.items() if isinstance(answer, Reading)}
