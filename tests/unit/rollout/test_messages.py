"""Sentences about a rollout, as a person reads them at night."""

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.quantities import Duration
from tailbound.api.rollout import AnalysisPolicy, RolloutSpec
from tailbound.judge.analysis import Verdict
from tailbound.judge.evidence import Tally
from tailbound.judge.metrics import MetricFinding
from tailbound.judge.verdict import EValues, Finding, Outcome, latency_objective, thresholds
from tailbound.rollout import messages
from tailbound.rollout.problem import Problem

from tests.unit.judge.metric_answers import metric
from tests.unit.rollout.inputs import rollout

LIMITS = thresholds(0.01, 1, AnalysisPolicy.BOTH, independent=False)
NOTHING = EValues(0.0, 0.0, 0.0, 0.0, 0.0, enough=False)
SLOW = EValues(9.87654, 0.0, 8.7654321, 0.0, 0.0, enough=True)
UNDECIDED = Finding(latency_objective(0.99), Outcome.WAIT, NOTHING, LIMITS)
PASSED = Finding(latency_objective(0.99), Outcome.PASS, NOTHING, LIMITS)


def asked(samples: float) -> MetricFinding:
    return MetricFinding(metric(), Outcome.WAIT, samples, 0.0, NOTHING, LIMITS)


INCONCLUSIVE: dict[str, tuple[Verdict, str]] = {
    "too-few-requests": (
        Verdict(Outcome.WAIT, (UNDECIDED,)),
        "without a verdict: send more requests, promote it, or abort it",
    ),
    "a-metric-without-a-value": (
        Verdict(Outcome.WAIT, (PASSED,), metrics=(asked(0.0),)),
        "without a verdict; metric m has given no value: check that its query matches a series, promote "
        "it, or abort it",
    ),
    "both": (
        Verdict(Outcome.WAIT, (UNDECIDED,), metrics=(asked(0.0),)),
        "without a verdict; metric m has given no value: check that its query matches a series, send more "
        "requests, promote it, or abort it",
    ),
    "a-metric-with-too-few-values": (
        Verdict(Outcome.WAIT, (PASSED,), metrics=(asked(3.0),)),
        "without a verdict: send more requests, promote it, or abort it",
    ),
    "a-shared-cause": (
        Verdict(Outcome.HOLD, (Finding(latency_objective(0.99), Outcome.HOLD, NOTHING, LIMITS),)),
        "without a verdict: promote it, or abort it",
    ),
}


@pytest.mark.parametrize(("verdict", "ends"), INCONCLUSIVE.values(), ids=INCONCLUSIVE)
def test_a_step_without_a_verdict_says_what_would_help(verdict: Verdict, ends: str) -> None:
    told = messages.inconclusive(rollout(weight=5), RolloutSpec(), verdict)
    assert told == f"new got 5 percent of the requests for 30m {ends}"


def test_numbers_in_a_rejection_are_short() -> None:
    told = messages.breach(
        Finding(latency_objective(0.99), Outcome.ROLL_BACK, SLOW, LIMITS), Tally(1234567.89, 98765.4321)
    )
    assert told == (
        "98765 of 1234568 requests were slow, and the SLA allows 1 % (evidence that it breaches the SLA: "
        "9.9 of 4.9 needed, that it is worse than stable: 8.8 of 4.6 needed)"
    )


@pytest.mark.parametrize(
    ("trouble", "unready", "because"),
    [
        pytest.param(None, "", "", id="nothing-known"),
        pytest.param(None, "its probe fails", ": its probe fails", id="a-probe"),
        pytest.param(Problem(Reason.CRASH_LOOP, "it ended"), "its probe", ": it ended", id="a-crash"),
    ],
)
def test_a_deadline_quotes_what_the_pods_lack(trouble: Problem | None, unready: str, because: str) -> None:
    told = messages.overdue(Duration.parse("10m"), trouble, unready)
    assert told == f"no further pod got ready within 10m{because}"
