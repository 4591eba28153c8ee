"""Steps and times that fit a service's traffic: what the plan proposes. Pure.

| what nine of ten revisions as good as the stable one pass | proposed |
|---|---|
| all steps as written, each within maxStepTime | nothing: they fit |
| all steps of `_STEPS`, each within maxStepTime as written | the first steps that do |
| one step with half of the requests, within a week | that step, and the time that it takes |
| not even that | nothing: a verdict does not fit this traffic |

Half of the requests on either side bring a verdict soonest: the one with fewer of them is waited for.
"""

from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final

from tailbound.api.quantities import Duration
from tailbound.api.rollout import RolloutSpec, Step, Strategy
from tailbound.judge.analysis import Terms
from tailbound.judge.verdict import Outcome
from tailbound.rollout.forecast import RUNS, Forecast, Traffic, forecast

_STEPS: Final = ((5, 25, 50), (25, 50), (50,))
_HALF: Final = (50,)
MOST: Final = 0.9
"""The fraction of good revisions that is to be promoted, and of bad ones that is to be found."""
_MARGIN: Final = 1.25
"""A factor on the time that was foreseen: traffic varies."""
_LONGEST: Final = Duration.parse("168h")
LONGEST_KEPT: Final = Duration.parse("1h")
"""No longer time is proposed to keep the old pods for."""
_ROUND: Final = tuple(
    Duration.parse(text)
    for text in (*("30s", "1m", "2m", "5m", "10m", "15m", "30m"), *("1h", "2h", "4h", "8h", "12h", "24h"))
) + tuple(Duration.parse(text) for text in ("48h", "96h", "168h"))


@dataclass(frozen=True)
class CapacityFit:
    """A spec whose steps can be passed, and how that goes."""

    spec: RolloutSpec
    forecast: Forecast


@dataclass(frozen=True)
class Grounds:
    """The inputs of every forecast for one service."""

    terms: Terms
    timeout: timedelta
    usual: Traffic
    """Requests of a revision that is as good as the stable one."""
    seed: int

    def forecast(self, spec: RolloutSpec, last: Traffic | None = None) -> Forecast:
        """The forecast for a revision as good as stable; `last` is its traffic with all requests."""
        return forecast(spec, self.terms, self.timeout, self.usual, self.usual, self.seed, last=last)


def fits(found: Forecast) -> bool:
    """Enough good revisions are promoted."""
    return found.share(Outcome.PASS) >= MOST


def fitting(spec: RolloutSpec, grounds: Grounds) -> CapacityFit | None:
    """Steps and times for a canary whose own do not fit; None if none do."""
    for weights in _STEPS:
        if spec.strategy is Strategy.CANARY and weights != spec.weights:
            changed = _with(spec, weights)
            found = grounds.forecast(changed)
            if fits(found):
                return CapacityFit(changed, found)
    patient = _with(spec, _HALF).model_copy(update={"max_step_time": _LONGEST})
    needed = grounds.forecast(patient).step(0, MOST)
    if needed is None:
        return None
    changed = patient.model_copy(update={"max_step_time": _rounded(needed * _MARGIN, _LONGEST)})
    found = grounds.forecast(changed)
    return CapacityFit(changed, found) if fits(found) else None


@dataclass(frozen=True)
class Last:
    """The forecast for a revision that turns bad only when it gets all requests."""

    found: float
    """Fraction of such that are rolled back while the old pods are kept."""
    delay: Duration | None
    """How long the old pods would have to be kept for `MOST` of them; None if `LONGEST_KEPT` is too short."""


def last_step(spec: RolloutSpec, grounds: Grounds, last: Traffic) -> Last:
    """The forecast for a revision whose traffic is `last` with all requests, and as good as stable before."""
    longest = max(LONGEST_KEPT, spec.scale_down_delay)
    patient = spec.model_copy(update={"max_step_time": _LONGEST, "scale_down_delay": longest})
    found = grounds.forecast(_with(patient, _HALF) if spec.weights else patient, last).with_all()
    in_time = [seconds for seconds in found if seconds <= spec.scale_down_delay.seconds]
    share = len(in_time) / RUNS
    if share >= MOST:
        return Last(share, spec.scale_down_delay)
    needed = found[ceil(MOST * RUNS) - 1] if len(found) >= MOST * RUNS else None
    return Last(share, None if needed is None else _rounded(needed * _MARGIN, longest))


def _with(spec: RolloutSpec, weights: tuple[int, ...]) -> RolloutSpec:
    steps = tuple(Step(weight=weight) for weight in weights)
    return spec.model_copy(update={"strategy": Strategy.CANARY, "steps": steps})


def _rounded(seconds: float, most: Duration) -> Duration:
    """The shortest round time that is at least so long, up to `most`."""
    return next((each for each in _ROUND if float(each.seconds) >= seconds and each <= most), most)
