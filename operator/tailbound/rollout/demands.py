"""What a candidate has to prove by the spec as it is, and what becomes of its proofs when that changes. Pure.

| the spec asks for, beside what the proofs were given for | proofs so far | the present step |
|---|---|---|
| nothing more | stay | goes on |
| another or a further bound | are taken back: the present weight has to be proven | begins again |

A latency target counts once every gateway tells slow requests from others by it. Until then requests are
counted by either target, and are evidence for neither.
"""

from collections.abc import Sequence
from dataclasses import replace

from tailbound.judge.metrics import Metric
from tailbound.judge.record import EvidenceState
from tailbound.judge.verdict import Measure, Objective
from tailbound.rollout import plan
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.sizing import ALL


def demands(
    objectives: Sequence[Objective], p99_ms: int | None, metrics: Sequence[Metric]
) -> tuple[str, ...]:
    """One item for each bound, with the rate that is to be excluded where that is a setting of its own.

    `p99_ms` is the latency target, if there is one. What the SLA does not state asks for no proof.
    """
    return (
        *(
            f"latency {p99_ms} ms"
            if each.measure is Measure.LATENCY
            else f"{each.measure} {each.allowed:g}, below {each.unacceptable:g} for sure"
            for each in objectives
            if each.stated
        ),
        *(f"metric {each.name} {each.digest}" for each in metrics),
    )


def taken_back(rollout: RolloutProgress, asked: Sequence[str], *, followed: bool) -> RolloutProgress:
    """The rollout with what is asked of it; `followed`: every gateway counts by that."""
    if rollout.judged_by is None or set(asked) <= set(rollout.judged_by):
        return replace(rollout, judged_by=tuple(asked))
    goes_on = rollout.weight == ALL or plan.promoted_manually(rollout)
    rollout = rollout if goes_on else replace(rollout, passed=0, step_started_at=None)
    return replace(rollout, judged_by=tuple(asked)) if followed else rollout


def without_mixed_counts(
    memory: EvidenceState, rollout: RolloutProgress, asked: Sequence[str]
) -> EvidenceState:
    """What is known without latencies, if these were counted by another target than the present one."""
    latency = {item for item in asked if item.startswith("latency ")}
    if rollout.judged_by is None or latency <= set(rollout.judged_by) or memory.record is None:
        return memory
    accounts = dict(memory.record.accounts)
    accounts.pop(Measure.LATENCY, None)
    return replace(memory, record=replace(memory.record, accounts=accounts), passed_at=None)
