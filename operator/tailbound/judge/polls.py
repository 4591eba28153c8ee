"""Derives the counts of both revisions in one poll from the readings of many gateways."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tailbound.judge.counters import Classes, Reading, increment
from tailbound.judge.windows import Span
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Series

SETTLED: Final = timedelta(minutes=2)
"""No answer is as old as this: a gateway counts when it is asked, and a scrape that is read is fresh."""


@dataclass(frozen=True)
class Arms:
    """What the two arms served between two complete polls."""

    candidate: Classes
    stable: Classes


@dataclass(frozen=True)
class PollResults:
    """One round of asking: every gateway that must be read, and all gateway pods that there are, by UID."""

    by_pod: Mapping[str, Reading | Unknown]
    existing: Set[str]
    unread: str = ""
    """Why nothing is known, where the readers know it better than that a gateway was not read."""
    metrics: Mapping[str, tuple[Series, ...] | Unknown] = field(default_factory=dict)
    """What Prometheus answers to the queries of analysis.metrics, by the query."""


@dataclass(frozen=True)
class Readings:
    """The last complete poll: what every gateway process had counted then, by the UID of its pod.

    Stored together with the evidence that was computed from it, in one write. An operator that finds the old
    pair counts the same requests again from the old readings, and one that finds the new pair does not see
    them any more.
    """

    by_pod: Mapping[str, Reading]
    since: datetime | None = None
    """Since when the gateways have counted just this; None in a record that does not say."""
    unasked: tuple[str, ...] = ()
    """UIDs of pods that were there when the counting began and were not asked, and have not been since."""
    behind: Mapping[str, float] = field(default_factory=dict)
    """By UID of each pod that was there and was not asked, Unix time since which it is unknown."""


@dataclass(frozen=True)
class Counted:
    """A complete poll: what happened since the last one, and the readings to start from next time."""

    arms: Arms
    readings: Readings
    span: Span
    """The time in which it happened, at most."""


@dataclass(frozen=True)
class Round:
    """What is asked of the gateways at a time: the counters of two revisions."""

    candidate: str
    stable: str
    now: datetime

    @property
    def revisions(self) -> Set[str]:
        """Both."""
        return {self.candidate, self.stable}


def baseline(answers: Mapping[str, Reading | Unknown], existing: Set[str], of: Round) -> Readings | Unknown:
    """The start of a rollout's counting: requests that were counted before are not judged.

    Otherwise the whole history of stable, and of a revision that served once before, would be this rollout's.
    A pod that was not Ready for a moment has such a history too: its own first answer is where it starts.
    """
    unread = _unread(answers)
    if unread is not None:
        return unread
    return Readings(_known(answers, of), of.now, tuple(sorted(existing - answers.keys())))


def poll(
    before: Readings, answers: Mapping[str, Reading | Unknown], existing: Set[str], of: Round
) -> Counted | Unknown:
    """The requests of both revisions since `before`; the first row that matches decides.

    | the answers                                                      | the poll                            |
    |------------------------------------------------------------------|-------------------------------------|
    | none at all                                                      | frozen                              |
    | one gateway unread                                               | frozen                              |
    | a counter fell in a process that did not die, `before` is recent | frozen                              |
    | all read                                                         | the sum of the gateways' increments |

    `answers` has every gateway that must be read, by the UID of its pod; `existing` are the UIDs of all
    gateway pods that there are, read or not. What a vanished pod had counted since the last complete poll is
    lost, and nothing else is. A pod that is there but was not asked keeps its reading, so that its return
    counts nothing twice; the poll then covers all the time since that reading. A pod that has come since
    the counting began counts from zero.
    """
    unread = _unread(answers)
    if unread is not None:
        return unread
    known = _known(answers, of)
    arms = Arms(Classes(), Classes())
    settled = before.since is not None and of.now - before.since >= SETTLED
    for pod, reading in sorted(known.items()):
        last = reading if pod in before.unasked else before.by_pod.get(pod)
        of_candidate = increment(last, reading, of.candidate, settled=settled)
        of_stable = increment(last, reading, of.stable, settled=settled)
        if isinstance(of_candidate, Unknown) or isinstance(of_stable, Unknown):
            minutes = int(SETTLED.total_seconds() / 60)
            return Unknown(
                f"a counter of gateway pod {pod} went down though its process did not restart;"
                f" if it stays down for {minutes} minutes, it is counted from zero"
            )
        arms = Arms(arms.candidate + of_candidate, arms.stable + of_stable)
    remembered = {pod: reading for pod, reading in before.by_pod.items() if pod in existing}
    unasked = tuple(pod for pod in before.unasked if pod in existing and pod not in known)
    by_pod = remembered | known
    same = (by_pod, unasked) == (before.by_pod, before.unasked)
    at = of.now.timestamp()
    since = at if before.since is None else before.since.timestamp()
    behind = {pod: before.behind.get(pod, since) for pod in existing - known.keys()}
    began = min([since, *(then for pod, then in before.behind.items() if pod in known)])
    readings = Readings(by_pod, (before.since if same else None) or of.now, unasked, behind)
    return Counted(arms, readings, Span(began, at))


def _unread(answers: Mapping[str, Reading | Unknown]) -> Unknown | None:
    if not answers:
        return Unknown("there is no gateway to read")
    missing = sorted(pod for pod, answer in answers.items() if isinstance(answer, Unknown))
    return Unknown(f"gateway pod {missing[0]} could not be read") if missing else None


def _known(answers: Mapping[str, Reading | Unknown], of: Round) -> dict[str, Reading]:
    """The counters of the two revisions alone, so that the status stays small."""
    return {pod: answer.only(of.revisions) for pod, answer in answers.items() if isinstance(answer, Reading)}
