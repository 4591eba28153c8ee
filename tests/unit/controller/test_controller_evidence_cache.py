"""Evidence is written when something follows from it, and every so often; a crash loses none of it."""

import copy
from datetime import timedelta
from typing import Any

import pytest
from tailbound.controller.evidence_cache import WRITE_SECONDS, EvidenceCache

from tests.support.copies import remembered
from tests.support.simulated.serving import OTHER_MODEL, settled
from tests.support.simulated.simulator import Simulator
from tests.unit.controller.reconciling import KEY, Operator

SLA = {"latency": {"p99": "100ms"}, "errorRate": "1%"}


@remembered
def canary(**rollout: Any) -> Simulator:
    """A service in which a rollout has begun to be judged."""
    steps = {"strategy": "canary", "steps": [{"weight": 20}, {"weight": 50}], **rollout}
    simulator = settled(sla=SLA, scaling={"min": 2}, rollout=steps)
    simulator.edit(model=OTHER_MODEL)
    return simulator


def status(number: int, state: str = "Progressing", **rollout: Any) -> dict[str, Any]:
    evidence = {"record": {"readings": number}}
    return {"rollout": {"state": state, "evidence": evidence, "findings": [number], **rollout}}


async def test_a_judged_rollout_writes_its_evidence_a_few_times_a_minute() -> None:
    simulator = canary(minStepTime="10m")
    operator = Operator(simulator)
    await operator.works(20)
    simulator.now += timedelta(seconds=1)
    await operator.works(60)
    assert 2 <= operator.written("InferenceService", 60) <= 60 / WRITE_SECONDS + 1
    assert simulator.rollout["evidence"]


def uncounted(simulator: Simulator) -> dict[str, float]:
    """The candidate's requests that the gateways have counted and the findings have not, by measure."""
    served = sum(
        counted.good
        for gateway in simulator.gateways.values()
        for revision, counted in gateway.counted.items()
        if revision == simulator.rollout["revision"]
    )
    return {each["measure"]: served - each["requests"] for each in simulator.rollout["findings"]}


@pytest.mark.parametrize("seconds", [WRITE_SECONDS - 2, WRITE_SECONDS * 2.5], ids=["early", "later"])
async def test_a_process_that_ends_loses_no_request(seconds: float) -> None:
    lost = []
    for ends in (False, True):
        simulator = canary(minStepTime="10m")
        operator = Operator(simulator)
        await operator.works(20 + seconds)
        operator = Operator(simulator) if ends else operator
        await operator.works(WRITE_SECONDS)
        simulator.now += timedelta(seconds=WRITE_SECONDS)
        await operator.passes()
        lost.append(uncounted(simulator))
    assert lost[0] == lost[1]


async def test_a_candidate_that_is_bad_is_rejected_no_later_than_with_every_poll_written() -> None:
    simulator = canary(minStepTime="10m")
    operator = Operator(simulator)
    await operator.works(20)
    for _ in range(30):
        simulator.traffic(300, r2=0.5)
        await operator.works(2)
        if simulator.rollout["state"] == "RolledBack":
            break
    assert simulator.rollout["state"] == "RolledBack"
    assert simulator.weights() == {"r1": 100}


@pytest.mark.parametrize(
    ("stored", "wanted", "since", "waits"),
    [
        pytest.param(status(1), status(2), 5.0, True, id="evidence-alone"),
        pytest.param(status(1), status(2), WRITE_SECONDS, False, id="long-since"),
        pytest.param(status(1), status(2), None, False, id="not-known-since-when"),
        pytest.param(status(1), status(2), -1.0, False, id="clock-set-back"),
        pytest.param(status(1), status(2, "RolledBack"), 5.0, False, id="decided"),
        pytest.param(status(1), status(2, message="step 2"), 5.0, False, id="another-message"),
        pytest.param(status(1), {**status(2), "conditions": []}, 5.0, False, id="another-condition"),
        pytest.param({"rollout": {"state": "Progressing"}}, status(1), 5.0, False, id="counting-starts"),
    ],
)
def test_what_waits_to_be_written(stored: Any, wanted: Any, since: float | None, waits: bool) -> None:
    cache = EvidenceCache()
    if since is not None:
        cache.written(KEY, 100.0)
    left = cache.wait(KEY, stored, wanted, 100.0 + (since or 0.0))
    assert left == (WRITE_SECONDS - 5.0 if waits else 0.0)
    seen = cache.applied_to(KEY, {"status": copy.deepcopy(stored)})
    assert seen["status"] == (wanted if waits else stored)
    assert cache.to_write(KEY, None) == (wanted if waits else None)


def test_evidence_of_another_status_than_the_stored_one_is_forgotten() -> None:
    cache = EvidenceCache()
    cache.written(KEY, 0.0)
    cache.wait(KEY, status(1), status(2), 1.0)
    restored = {"status": status(0)}
    assert cache.applied_to(KEY, restored) is restored
    assert cache.applied_to(KEY, {"status": status(1)}) == {"status": status(1)}
    assert cache.to_write(KEY, None) is None
