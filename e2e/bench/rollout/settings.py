"""Settings in which a promise of the verdict once broke: traffic that is not many independent requests.

Each has a group, by which the report sets a goal:

| group | goal: healthy ones that are rolled back |
|---|---|
| small, warm-up, bursts, own bursts, incident | 1 in 100 |
| last step | 2 in 100 |
| episodes | none: what is found is stated |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from tailbound.api.rollout import AnalysisPolicy

from e2e.bench.rollout.scenarios import Counts, Floats
from e2e.bench.rollout.trials import POLL_SECONDS, Drawn, Step, Trial

_OF_POLL: Final = 20
"""Moments of a poll that an episode may begin at."""
FIFTY: Final = (Step(0, 50),)
STEPS: Final = (Step(0, 5, 1), Step(60, 25, 5), Step(120, 50, 10), Step(180, 100, 20))
WARM_UP: Final = 10
_USUAL: Final = 0.003
"""Slow fraction of a healthy revision, where 1 percent is allowed."""


class Group(StrEnum):
    """The kind of disturbance that a setting has."""

    SMALL = "small"
    WARM_UP = "warm-up"
    BURSTS = "bursts"
    OWN_BURSTS = "own bursts"
    INCIDENT = "incident"
    LAST_STEP = "last step"
    EPISODES = "episodes"


GOALS: Final = {
    **dict.fromkeys((Group.SMALL, Group.WARM_UP, Group.BURSTS, Group.OWN_BURSTS, Group.INCIDENT), 0.01),
    Group.LAST_STEP: 0.02,
}


@dataclass(frozen=True)
class Setting:
    """A trial of a candidate that is healthy, and must stay, or is not, and must go."""

    group: Group
    healthy: bool
    trial: Trial


Slow = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Slow fractions of candidate and stable by poll."""


def always(candidate: float, stable: float) -> Slow:
    """The same all the time."""
    return lambda _, polls: (np.full(polls, candidate), np.full(polls, stable))


def shared_incident(candidate: float, during: float, first: float, last: float) -> Slow:
    """Ten seconds in which both are slow, at any time in these polls; otherwise stable is healthy."""

    def fractions(random: np.random.Generator, polls: int) -> tuple[Floats, Floats]:
        of_candidate, of_stable = np.full(polls, candidate), np.full(polls, _USUAL)
        begins, lasts = random.uniform(first, last), 10 / POLL_SECONDS
        number = np.arange(polls)
        part = np.clip(np.minimum(number + 1, begins + lasts) - np.maximum(number, begins), 0, 1)
        worse = [usual + part * (during - usual) for usual in (of_candidate, of_stable)]
        return worse[0], worse[1]

    return fractions


def episodes(pods: int, seconds: float, mean: float) -> Slow:
    """All that one pod answers is slow for so long, again and again; stable is slow as often, evenly."""
    lasts = int(seconds / POLL_SECONDS * _OF_POLL)

    def fractions(random: np.random.Generator, polls: int) -> tuple[Floats, Floats]:
        moments = polls * _OF_POLL
        slow = np.zeros(moments)
        for _ in range(pods):
            begins = np.flatnonzero(random.random(moments + lasts) < mean / lasts) - lasts
            marked = np.zeros(moments + 1)
            np.add.at(marked, np.maximum(begins, 0), 1)
            np.add.at(marked, np.minimum(begins + lasts, moments), -1)
            slow += (marked.cumsum()[:-1] > 0) / pods
        return slow.reshape(polls, _OF_POLL).mean(axis=1), np.full(polls, mean)

    return fractions


@dataclass(frozen=True)
class Load:
    """Requests, and in how large bursts they are slow."""

    per_second: float
    polls: int
    bursts: tuple[int, int] = (1, 1)
    """Requests that are bad together, of the candidate and of stable."""


def drawn(load: Load, steps: tuple[Step, ...], slow: Slow) -> Callable[[np.random.Generator], Drawn]:
    """Requests of both revisions, as many as their weights say."""

    def draw(random: np.random.Generator) -> Drawn:
        share = np.zeros(load.polls)
        for step in steps:
            share[step.poll :] = step.weight / 100
        mean = load.per_second * POLL_SECONDS
        canary, stable = random.poisson(mean * share), random.poisson(mean * (1 - share))
        of_canary, of_stable = slow(random, load.polls)
        return Drawn(
            canary,
            _bad(random, canary, of_canary, load.bursts[0]),
            stable,
            _bad(random, stable, of_stable, load.bursts[1]),
        )

    return draw


def _bad(random: np.random.Generator, requests: Counts, fraction: Floats, burst: int) -> Counts:
    if burst == 1:
        return random.binomial(requests, fraction)
    found: Counts = np.minimum(requests, random.poisson(requests * fraction / burst) * burst)
    return found


def cold(per_second: float, polls: int, slow: float) -> Callable[[np.random.Generator], Drawn]:
    """Through `STEPS`, with new pods at each, half of whose first requests are slow."""

    def draw(random: np.random.Generator) -> Drawn:
        plain = drawn(Load(per_second, polls), STEPS, always(slow, _USUAL))(random)
        pods, served = np.zeros(polls, dtype=int), np.zeros(STEPS[-1].pods, dtype=int)
        for step in STEPS:
            pods[step.poll :] = step.pods
        bad = plain.canary_bad.copy()
        for poll in range(polls):
            before = served[: pods[poll]].copy()
            served[: pods[poll]] += random.multinomial(
                plain.canary[poll], np.full(pods[poll], 1 / pods[poll])
            )
            first = np.minimum(served[: pods[poll]], WARM_UP) - np.minimum(before, WARM_UP)
            bad[poll] = min(plain.canary[poll], bad[poll] + random.binomial(first.sum(), 0.5))
        return Drawn(plain.canary, bad, plain.stable, plain.stable_bad)

    return draw


def _setting(
    group: Group, name: str, load: Load, steps: tuple[Step, ...], slow: Slow, *, healthy: bool = True
) -> Setting:
    return Setting(group, healthy, Trial(name, drawn(load, steps, slow), steps))


def _relative(setting: Setting) -> Setting:
    """The same with the policy relative."""
    trial = replace(setting.trial, name=f"{setting.trial.name}, relative", policy=AnalysisPolicy.RELATIVE)
    return replace(setting, trial=trial)


_MINUTELY: Final = Load(1 / 60, 30_000)
_SECONDLY: Final = Load(1, 1800)
_BUSY: Final = 500.0
_AT_5: Final = (Step(0, 5),)
_SWITCH: Final = (Step(0, 0), Step(60, 100))
"""blueGreen: stable alone, and then the candidate alone."""
_THEN_ALL: Final = (Step(0, 50), Step(60, 100))

_WITH_BOTH: Final = (
    _setting(Group.SMALL, "1 request a minute, both 1 %", _MINUTELY, FIFTY, always(0.01, 0.01)),
    _setting(Group.SMALL, "1 request/s, both 1 %", _SECONDLY, FIFTY, always(0.01, 0.01)),
    _setting(Group.SMALL, "1 request a minute, all slow", _MINUTELY, FIFTY, always(1.0, 0.0), healthy=False),
    _setting(Group.SMALL, "1 request/s, all slow", _SECONDLY, FIFTY, always(1.0, 0.0), healthy=False),
    Setting(
        Group.WARM_UP,
        True,
        Trial("1 to 20 cold pods", cold(50, 240, _USUAL), STEPS, warmup=WARM_UP),
    ),
    Setting(
        Group.WARM_UP,
        False,
        Trial("1 to 20 cold pods, 5 %", cold(50, 240, 0.05), STEPS, warmup=WARM_UP),
    ),
    *(
        _setting(
            Group.BURSTS,
            f"bursts of {size}, both 1 %",
            Load(_BUSY, 300, (size, size)),
            FIFTY,
            always(0.01, 0.01),
        )
        for size in (10, 50, 200)
    ),
    *(
        _setting(
            Group.OWN_BURSTS,
            f"bursts of {size} of the canary alone, both 1 %",
            Load(_BUSY, 300, (size, 1)),
            FIFTY,
            always(0.01, 0.01),
        )
        for size in (16, 64)
    ),
    _setting(
        Group.INCIDENT,
        "10 s shared, then as before",
        Load(50, 450),
        FIFTY,
        shared_incident(_USUAL, 0.5, 20, 60),
    ),
    _setting(
        Group.INCIDENT,
        "10 s shared, canary 10 %",
        Load(50, 450),
        _AT_5,
        shared_incident(0.1, 0.5, 5, 6),
        healthy=False,
    ),
    _setting(Group.LAST_STEP, "with all requests, both 2 %", Load(50, 240), _THEN_ALL, always(0.02, 0.02)),
    _setting(Group.LAST_STEP, "blueGreen, both 2 %", Load(50, 240), _SWITCH, always(0.02, 0.02)),
    _setting(Group.LAST_STEP, "blueGreen, 2 % instead of 4 %", Load(50, 240), _SWITCH, always(0.02, 0.04)),
    *(
        _setting(
            Group.LAST_STEP,
            f"{name}, {during:.0%} slow for 10 s {when}",
            Load(50, 180),
            steps,
            shared_incident(_USUAL, during, *begins),
        )
        for name, steps, during, when, begins in (
            ("blueGreen", _SWITCH, 0.1, "from the switch on", (60, 60)),
            ("blueGreen", _SWITCH, 0.5, "from the switch on", (60, 60)),
            ("blueGreen", _SWITCH, 1.0, "at the switch", (58, 64)),
            ("blueGreen", _SWITCH, 0.5, "later", (64, 160)),
            ("with all requests", _THEN_ALL, 0.5, "from the step on", (60, 60)),
        )
    ),
    _setting(
        Group.LAST_STEP,
        "blueGreen, 10 % instead of .3 %",
        Load(50, 240),
        _SWITCH,
        always(0.1, _USUAL),
        healthy=False,
    ),
    *(
        _setting(
            Group.EPISODES,
            f"{seconds} s of one pod of {pods}, both .5 %",
            Load(50, 450),
            (Step(0, weight, pods),),
            episodes(pods, seconds, 0.005),
        )
        for seconds, pods, weight in ((2, 5, 25), (10, 5, 25), (30, 5, 25), (10, 1, 5), (10, 10, 50))
    ),
)

_COMPARED: Final = ("blueGreen, 50% slow for 10 s from the switch on", "10 s of one pod of 5, both .5 %")

SETTINGS: Final = (
    *_WITH_BOTH,
    *(_relative(each) for each in _WITH_BOTH if each.trial.name in _COMPARED),
)
