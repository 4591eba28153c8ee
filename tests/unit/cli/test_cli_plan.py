"""What a plan tells, for a service in the simulated cluster."""

import copy
from typing import Any

import pytest
from tailbound.cli.measure import counted, measured
from tailbound.cli.plan import Requests, assumed, exit_status, plan
from tailbound.cli.proposal import Surroundings, propose
from tailbound.cli.subject import CommandError, service_of
from tailbound.judge.counters import Classes
from tailbound.reconcile.rollouts import terms_of
from tailbound.rollout import fitting, forecast
from tailbound.rollout.forecast import Traffic

from tests.support.copies import remembered
from tests.support.effort import effort
from tests.support.simulated.objects import model, runtime, service, spec
from tests.support.simulated.simulator import Simulator

SLA = {"latency": {"p99": "100ms"}}
CANARY = {"strategy": "canary", "steps": [{"weight": 5}, {"weight": 50}], "promotion": "manual"}
UNKNOWN = Requests(None, "because no requests arrived within 10s: give --requests-per-second")
OTHER: dict[str, Any] = {"model": model("b")}


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer drawn rollouts than a person gets: what is told of them is the same."""
    for module in (forecast, fitting):
        monkeypatch.setattr(module, "RUNS", effort(8, forecast.RUNS))


@remembered
def served() -> Simulator:
    simulator = Simulator(service=service(sla=SLA, rollout={"promotion": "automatic"}, scaling={"min": 2}))
    simulator.settle()
    return simulator


def told(
    simulator: Simulator,
    requests: Requests = UNKNOWN,
    *,
    new: bool = False,
    works: bool = True,
    **changes: Any,
) -> str:
    """The plan for these changes; the simulator is as it was."""
    wanted = copy.deepcopy(simulator.service)
    wanted["spec"] |= changes
    around = Surroundings(
        simulator.hardware_classes,
        simulator.runtimes,
        simulator.cluster_runtimes,
        simulator.of("ControllerRevision"),
    )
    proposal = propose(None if new else simulator.service, wanted, around)
    assert exit_status(proposal) == (0 if works else 2)
    return plan(proposal, requests)


def test_what_stays_is_told() -> None:
    simulator = served()
    (name,) = simulator.names("Deployment")
    assert told(simulator) == f"risk/churn would stay as it is\n  no new revision: {name} stays"


def test_a_new_service_is_told() -> None:
    text = told(Simulator(), new=True)
    assert text.startswith("risk/churn would be created\n  new revision churn-r1-")
    assert "serves as soon as a pod is ready, and is not judged" in text


def test_what_makes_no_revision_is_told_with_both_values() -> None:
    text = told(served(), rollout={"promotion": "manual"}, scaling={"min": 3})
    assert "no new revision" in text
    assert "spec.rollout.promotion: automatic -> manual" in text
    assert "spec.scaling.min: 2 -> 3" in text
    assert "expected" not in text


def test_the_revision_that_is_foretold_is_the_one_that_comes() -> None:
    simulator = served()
    (old,) = simulator.names("ControllerRevision")
    text = told(simulator, **OTHER, rollout=CANARY)
    simulator.edit(**OTHER, rollout=CANARY)
    simulator.settle()
    new = simulator.names("ControllerRevision")[1]
    assert f"new revision {new} takes over from {old}: canary, 5 %, 50 %, then all requests" in text
    assert "it has to be promoted manually" in text
    assert f"--- {old}" in text
    assert f"+++ {new}" in text
    stored, foretold = (
        simulator.objects["ControllerRevision", new]["data"],
        [line for line in text.splitlines() if line.startswith(("  +", "  -"))],
    )
    assert "b" * 64 in stored["template"]
    assert [line for line in foretold if "sha256" in line or "aaaa" in line or "bbbb" in line]
    assert not [line for line in foretold if "image" in line], "nothing else changes"
    assert "expected time: not known, because no requests arrived within 10s" in text


def test_a_changed_runtime_is_part_of_the_difference() -> None:
    simulator = served()
    simulator.cluster_runtimes = {"onnxruntime": runtime(image="registry.example.com/runtime:2")}
    text = told(simulator, **OTHER)
    assert "+      image: registry.example.com/runtime:2" in text.replace("    +", "+")


def test_what_cannot_work_is_told() -> None:
    text = told(served(), works=False, runtime={"name": "none"})
    assert "it would not work: RuntimeNotFound: spec.runtime.name is 'none'" in text


def test_of_a_service_that_is_being_deleted_nothing_is_foretold() -> None:
    simulator = served()
    simulator.service["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["a.example/b"],
    }
    text = told(simulator, works=False, **OTHER)
    assert text.startswith("risk/churn would not be changed\n  it is being deleted")
    assert text.endswith("a.example/b")


def test_the_way_back_to_a_stored_revision_is_told() -> None:
    simulator = served()
    simulator.edit(**OTHER)
    simulator.settle()
    old, new = simulator.names("ControllerRevision")
    text = told(simulator, model=spec()["model"])
    assert f"revision {old}, which is stored already, takes over from {new}: blueGreen" in text


def test_a_rejected_revision_is_not_foretold_to_come() -> None:
    simulator = served()
    simulator.edit(**OTHER, rollout={"promotion": "manual"})
    simulator.settle()
    _, new = simulator.names("ControllerRevision")
    simulator.annotate(abort=new)
    simulator.settle()
    assert f"{new} was rejected (AbortedManually" in told(simulator, works=False), (
        "the one that is asked for now"
    )
    simulator.edit(model=spec()["model"])
    simulator.settle()
    assert f"{new} was rejected (AbortedManually" in told(simulator, **OTHER, works=False)


def test_a_model_without_a_digest_works_once_a_job_has_read_it() -> None:
    text = told(served(), model=model("b") | {"sha256": None})
    assert "a Job would first read the model to find its digest, as spec.model.sha256 is missing" in text


def test_the_stable_revision_ends_a_rollout() -> None:
    simulator = served()
    simulator.edit(**OTHER, rollout={"promotion": "manual"})
    simulator.settle()
    old, _ = simulator.names("ControllerRevision")
    assert f"{old} serves already: a rollout that is under way ends at once" in told(
        simulator, model=spec()["model"]
    )


def test_expected_times_are_told_for_good_and_for_bad() -> None:
    requests = Requests(Traffic(100, 0.003, 0.0), "counted for 10s")
    text = told(served(), requests, **OTHER, rollout=CANARY)
    assert "expected, at 100 requests/s (counted for 10s; 0.30% slow, 0.00% failed):" in text
    rows = {line.split("  ")[0]: line.split() for line in map(str.strip, text.splitlines())}
    assert {"5 % passed after", "50 % passed after", "promoted", "2%", "5%", "10%"} <= rows.keys()
    assert rows["10%"][1] == "100%"


def lines(text: str) -> dict[str, str]:
    """What the plan proposes, by field."""
    found = (line.strip().partition(": ") for line in text.splitlines())
    return {name: value for name, _, value in found if name in ("steps", "maxStepTime", "scaleDownDelay")}


@pytest.mark.parametrize(
    ("per_second", "steps", "time"),
    [
        pytest.param(50, None, None, id="busy"),
        pytest.param(5, "[{weight: 25}, {weight: 50}]", "30m", id="less-busy"),
        pytest.param(0.2, "[{weight: 50}]", "4h", id="small"),
    ],
)
def test_steps_and_times_that_fit_the_traffic_are_proposed(
    per_second: float, steps: str | None, time: str | None
) -> None:
    requests = Requests(Traffic(per_second, 0.005, 0.0), "given")
    rollout = {"strategy": "canary"}
    text = told(served(), requests, **OTHER, rollout=rollout, sla={**SLA, "errorRate": "0.1%"})
    assert ("these steps do not fit this traffic" in text) is (steps is not None)
    assert (lines(text).get("steps"), lines(text).get("maxStepTime")) == (steps, time)


def test_what_is_found_with_all_requests_is_told_and_when_more_would_be() -> None:
    requests = Requests(Traffic(5, 0.003, 0.0), "given")
    rollout = {"strategy": "canary", "steps": [{"weight": 50}]}
    text = told(served(), requests, **OTHER, rollout={**rollout, "scaleDownDelay": "4s"})
    assert "with scaleDownDelay 4s, 0% of\n" in text
    delay = lines(text)["scaleDownDelay"].partition(" ")[0]
    longer = told(served(), requests, **OTHER, rollout={**rollout, "scaleDownDelay": delay})
    assert "finds 9 of 10" not in longer


def test_given_requests_are_taken_to_be_half_as_bad_as_allowed() -> None:
    terms = terms_of(service_of(served().service).spec)
    assert assumed(50, terms).traffic == Traffic(50, 0.005, 0.0)


def test_what_a_service_without_an_sla_is_not_judged_by_is_told() -> None:
    text = told(served(), **OTHER, sla={})
    assert "no proof is required" in text
    assert "the latency of a new revision is not judged" in text
    assert "its failures are judged relative to the stable revision" in text


BOUNDS = [
    {"name": "accuracy", "query": "accuracy", "min": 0.9},
    {"name": "refusals", "bad": "refused", "total": "asked", "max": 0.05},
]


def test_metrics_are_told_with_their_bounds_and_not_foreseen() -> None:
    rollout = {**CANARY, "analysis": {"metrics": BOUNDS}}
    requests = Requests(Traffic(100, 0.003, 0.0), "counted for 10s")
    text = told(served(), requests, **OTHER, rollout=rollout)
    assert "the metrics are not part of this forecast" in text
    rows = [["METRIC", "AT", "LEAST", "AT", "MOST"], ["accuracy", "0.9", "-"], ["refusals", "-", "0.05"]]
    assert _table(text) == rows
    alone = told(served(), requests, **OTHER, rollout=rollout, sla={})
    assert "not known, because it depends on the metrics" in alone
    assert _table(alone) == rows


def _table(text: str) -> list[list[str]]:
    """The words of the bounds' table, line by line."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == ["METRIC"])
    return [line.split() for line in lines[first : first + 1 + len(BOUNDS)]]


METRICS = """# TYPE envoy_other counter
envoy_other{} 3
# TYPE tailbound_requests_total counter
tailbound_requests_total{namespace="risk",service="churn",revision="r1",class="good"} 90
tailbound_requests_total{namespace="risk",service="churn",revision="r1",class="timed_out"} 1
tailbound_requests_total{namespace="risk",service="churn",revision="r2",class="slow"} 4
tailbound_requests_total{namespace="risk",service="other",revision="r1",class="good"} 7
tailbound_requests_total{namespace="risk",service="churn",revision="r1",class="new"} 7
"""


def test_the_counters_of_one_service_are_read() -> None:
    found = counted(METRICS, service_of(service()))
    assert found == {"r1": Classes(good=90, timed_out=1), "r2": Classes(slow=4)}


def test_requests_are_those_between_two_readings() -> None:
    before = {"a": {"r1": Classes(good=90)}, "gone": {"r1": Classes(good=5)}}
    after = {"a": {"r1": Classes(good=180, slow=5, shed=3, failed=2)}, "b": {"r2": Classes(abandoned=4)}}
    assert measured(before, after, 10) == Traffic(10, 0.08, 0.02)
    assert measured(after, after, 10) is None


def test_counters_that_began_anew_are_no_measurement() -> None:
    with pytest.raises(CommandError, match="a gateway was restarted"):
        measured({"a": {"r1": Classes(good=90)}}, {"a": {"r1": Classes(good=1)}}, 10)
