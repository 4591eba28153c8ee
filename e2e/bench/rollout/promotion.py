"""How long a healthy canary takes through all steps: what the product itself foresees."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailbound.api.rollout import AnalysisPolicy, RolloutSpec
from tailbound.judge.analysis import Terms
from tailbound.judge.verdict import Objective, Outcome
from tailbound.rollout.forecast import Traffic, forecast

from e2e.bench.rollout.scenarios import SEED

# Nothing but the proof holds a step up.
SPEC: Final = RolloutSpec.model_validate(
    {
        "strategy": "canary",
        "steps": [{"weight": 5}, {"weight": 25}, {"weight": 50}],
        "minStepTime": "1s",
        "maxStepTime": "168h",
        "scaleDownDelay": "0s",
    }
)


@dataclass(frozen=True)
class Pace:
    """Seconds from the first request to promotion, and requests that the first step's proof took."""

    median: float
    p90: float
    requests: float


def pace(objectives: tuple[Objective, ...], requests: Traffic) -> Pace:
    """The pace of a canary as good as the stable revision. Raises ValueError if none is promoted."""
    terms = Terms(objectives, AnalysisPolicy.BOTH, warmup=0)
    found = forecast(SPEC, terms, timedelta(), requests, requests, SEED)
    median, p90 = (found.seconds(Outcome.PASS, quantile) for quantile in (0.5, 0.9))
    first = found.step(0, 0.5)
    if median is None or p90 is None or first is None:
        raise ValueError(f"no canary with {requests} is ever promoted")
    return Pace(median, p90, first * requests.per_second * SPEC.weights[0] / 100)
