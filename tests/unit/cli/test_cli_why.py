"""`kubectl tailbound why`: what serves, where the last rollout stands, and what its numbers mean."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.cli.status import status
from tailbound.cli.why import why

from tests.unit.cli.cli_objects import (
    FINDING,
    HISTORY,
    METRIC,
    R1,
    R2,
    R3,
    condition,
    promoted,
    rejected,
    revision,
    service,
    subject,
)

NOW = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rollout", "marks", "sentences"),
    [
        (
            {},
            {},
            [
                f"{R3} is being judged (Analysing): {R3} gets 25 percent of the requests, step 2 of 3.",
                "latency: of 412 requests that were judged, 9 (2.18%) were slower than the P99 target; the "
                "SLA allows 1.00%, and to pass it must be proven to stay below 2.00%.",
                "  beyond the SLA: not proven, evidence 2.5 of 5.0",
                "  worse than the stable revision: not proven, evidence -0.2 of 5.3",
                "  good enough in this step: not proven, evidence 0.1 of 3.0",
                "  Wait: neither is proven yet, and more requests decide.",
            ],
        ),
        (
            {
                "state": "RolledBack",
                "reason": "Slow",
                "message": "m",
                "findings": [
                    {**FINDING, "outcome": "RollBack", "absolute": {"value": 5.5, "threshold": 5.0}}
                ],
            },
            rejected("Slow", "m"),
            [
                f"{R3} was rolled back (Slow): m.",
                "  beyond the SLA: proven, evidence 5.5 of 5.0 (a chance of at most 1 in 148 to be wrong)",
                "  RollBack: the evidence is sufficient to reject it.",
            ],
        ),
        (
            {"state": "RolledBack", "reason": "AbortedManually", "message": "m", "findings": []},
            rejected("AbortedManually", "m", "ann"),
            [f"{R3} was rolled back (AbortedManually): m. It was decided by ann."],
        ),
        (
            {"state": "Promoted", "reason": "PromotedManually", "message": "", "findings": []},
            {**promoted("x", stable=True), "tailbound.dev/promoted-by": "ben"},
            [f"{R3} has taken over (PromotedManually). It was decided by ben."],
        ),
        (
            {
                "state": "Promoted",
                "reason": "Promoted",
                "message": f"{R3} has taken over from {R2}",
                "findings": [],
            },
            {**promoted("x", stable=True)},
            [f"{R3} has taken over from {R2} (Promoted)."],
        ),
        (
            {"findings": [{**FINDING, "outcome": "Pass", "improvesBreach": True}]},
            {},
            [
                "  Pass: it breaches the SLA, but is proven better than the stable revision, which "
                "breaches it too."
            ],
        ),
        (
            {"findings": [{**FINDING, "requests": 0.0, "bad": 0.0}]},
            {},
            [
                "latency: of 0 requests that were judged, 0 were slower than the P99 target; the SLA allows "
                "1.00%, and to pass it must be proven to stay below 2.00%."
            ],
        ),
    ],
)
def test_why_gives_the_decision_and_its_numbers(
    rollout: dict[str, Any], marks: dict[str, str], sentences: list[str]
) -> None:
    lines = why(subject(service(rollout=rollout), [*HISTORY[:2], revision(R3, marks)])).splitlines()
    assert [line for line in sentences if line not in lines] == []


def test_why_tells_of_metrics() -> None:
    lines = why(subject(service(rollout={"metrics": [METRIC]}))).splitlines()
    assert lines[-6:-1] == [
        "accuracy: 0.7 over 12 samples; the bound is 0.9.",
        "  beyond the bound: proven, evidence 5.9 of 5.7 (a chance of at most 1 in 299 to be wrong)",
        "  worse than the stable revision: proven, evidence 5.5 of 5.3 "
        "(a chance of at most 1 in 200 to be wrong)",
        "  good enough in this step: not proven, evidence -1.0 of 3.0",
        "  RollBack: the evidence is sufficient to reject it.",
    ]


def test_why_without_a_rollout() -> None:
    lines = why(subject(service(rollout={"state": None}))).splitlines()
    assert lines[1] == "There has not been a rollout yet."


BACKENDS = [{"revision": R2, "weight": 100}]
BOTH = [{"revision": R2, "weight": 75}, {"revision": R3, "weight": 25}]


def served(backends: list[dict[str, Any]], ready: int, **spec: Any) -> dict[str, Any]:
    raw = service(rollout={"state": "RolledBack", "reason": "Slow"})
    raw["spec"] |= spec
    raw["status"] |= {"traffic": {"generation": 4, "backends": backends}}
    raw["status"]["stable"]["ready"] = ready
    raw["status"]["canary"]["ready"] = 0
    return raw


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        pytest.param(
            served(BACKENDS, 3),
            f"risk/churn: {R2} gets 100% of the requests (3 of 4 pods ready).",
            id="one-serves",
        ),
        pytest.param(
            served(BOTH, 4),
            f"risk/churn: {R2} gets 75% of the requests (4 of 4 pods ready), {R3} gets 25% of the requests "
            "(0 of 1 pods ready).",
            id="two-share",
        ),
        pytest.param(
            served(BACKENDS, 0),
            f"risk/churn: no pod of {R2} is ready, so that requests fail.",
            id="an-outage-after-a-rollback",
        ),
        pytest.param(
            {**served([], 0), "status": {"observedGeneration": 3}},
            "risk/churn: no revision has served yet.",
            id="nothing-yet",
        ),
        pytest.param(
            served(BACKENDS, 4, stopped=True),
            "risk/churn is stopped (spec.stopped is true) and answers 503.",
            id="stopped",
        ),
    ],
)
def test_why_says_first_what_serves_now(raw: dict[str, Any], line: str) -> None:
    text = why(subject(raw))
    assert text.splitlines()[0] == line
    assert " serves" not in text


def test_a_status_of_an_older_spec_is_told_as_such() -> None:
    silent = (
        "the operator has not seen generation 4 of the spec yet, and the status describes generation 3; if "
        "this persists, check that the operator of Tailbound runs and watches this namespace"
    )
    raw = service(generation=4)
    assert why(subject(raw)).splitlines()[1] == f"But {silent}."
    assert status(subject(raw), NOW).splitlines()[1] == f"  {silent}"


def test_a_service_that_is_being_deleted_is_told_as_such() -> None:
    """The API server raises the generation with the deletion, and no operator catches up with it."""
    raw = service(generation=4)
    raw["metadata"] |= {
        "deletionTimestamp": "2026-05-04T12:00:00Z",
        "finalizers": ["example.com/hold", "b.c/d"],
    }
    deleted = (
        "it is being deleted, and the operator changes nothing of it any more; it is gone when its "
        "finalizers are: example.com/hold, b.c/d"
    )
    assert why(subject(raw)).splitlines()[1] == f"But {deleted}."
    assert status(subject(raw), NOW).splitlines()[1] == f"  {deleted}"


UNPROVEN: dict[str, tuple[dict[str, Any], str]] = {
    "judged": ({}, "Wait: neither is proven yet, and more requests decide."),
    "paused": (
        {"state": "Paused", "reason": "Paused"},
        "Wait: neither is proven yet, and more requests decide.",
    ),
    "awaiting": (
        {"state": "Paused", "reason": "AwaitingPromotion"},
        "It has passed its steps; nothing is proven against it since.",
    ),
    "promoting": ({"state": "Promoting"}, "Nothing was proven against it with all requests."),
    "promoted": (
        {"state": "Promoted", "reason": "Promoted"},
        "Nothing was proven against it with all requests.",
    ),
    "manual": (
        {"state": "Promoted", "reason": "PromotedManually"},
        "It was promoted manually, without this proof.",
    ),
    "rolled-back": (
        {"state": "RolledBack", "reason": "CrashLoop"},
        "Neither was proven: it was rolled back for another cause.",
    ),
}


@pytest.mark.parametrize(("rollout", "line"), UNPROVEN.values(), ids=UNPROVEN)
def test_what_is_not_proven_is_waited_for_only_while_it_is_judged(rollout: dict[str, Any], line: str) -> None:
    told = subject(service(rollout=rollout))
    assert f"  {line}" in why(told).splitlines()
    assert status(told, NOW).splitlines()[-1].endswith("Wait" if line.startswith("Wait") else "   -")


def test_a_metric_without_a_value_is_not_told_to_wait_for_requests() -> None:
    unasked = {**METRIC, "outcome": "Wait", "samples": 0.0, "against": {"value": 0.0, "threshold": 5.7}}
    del unasked["mean"]
    lines = why(subject(service(rollout={"findings": [], "metrics": [unasked]}))).splitlines()
    assert "accuracy: no value yet; the bound is 0.9." in lines
    assert (
        "  Wait: neither is proven yet, and its query must return values: check that it matches a series."
    ) in lines


UNTRIED: dict[str, dict[str, Any]] = {
    "pending": {"state": "Pending"},
    "starting": {"state": "Starting"},
    "preview": {"state": "Paused", "reason": "AwaitingPromotion"},
    "promoted": {"state": "Promoted", "reason": "Promoted"},
}


@pytest.mark.parametrize("rollout", UNTRIED.values(), ids=UNTRIED)
def test_nothing_is_said_of_requests_that_there_were_not(rollout: dict[str, Any]) -> None:
    nothing = {"outcome": "Wait", "requests": 0.0, "bad": 0.0}
    silent = {"outcome": "Wait", "samples": 0.0}
    found = {"findings": [{**FINDING, **nothing}], "metrics": [{**METRIC, **silent}]}
    told = why(subject(service(rollout={**rollout, **found}))).splitlines()
    assert told.count("  Nothing was judged in this rollout so far.") == 2


def test_a_return_that_was_given_up_is_not_told_of_what_serves() -> None:
    rollout = {"state": "Promoted", "reason": "CrashLoop", "from": R1, "message": "it crashed"}
    told = subject(service(rollout=rollout))
    assert why(told).splitlines()[1] == f"The rollback to {R1} was abandoned (CrashLoop): it crashed."
    assert f"  rollback to {R1}: abandoned (CrashLoop)" in status(told, NOW).splitlines()


LEAST = "Pass: the evidence is sufficient for the next step, which begins when minStepTime is over."


@pytest.mark.parametrize(
    ("rollout", "line"),
    [
        pytest.param({}, LEAST, id="judged"),
        pytest.param(
            {"state": "Promoted", "reason": "Promoted"}, "Pass: proven in its last step.", id="over"
        ),
        pytest.param(
            {"state": "RolledBack", "reason": "Slow"}, "Pass: proven in its last step.", id="rolled-back"
        ),
    ],
)
def test_what_has_passed_goes_on_only_where_there_is_a_step_to_go_on_to(
    rollout: dict[str, Any], line: str
) -> None:
    told = subject(service(rollout={**rollout, "findings": [{**FINDING, "outcome": "Pass"}]}))
    assert f"  {line}" in why(told).splitlines()


def test_why_points_at_bad_events_that_stable_names_and_the_new_revision_does_not() -> None:
    metric = {**METRIC, "name": "refused", "outcome": "Pass", "mean": 0.0, "unmatched": True}
    assert (
        f"  The query for bad matches series of {R2} and none of {R3}, which counts as no bad events: check "
        f"that {R3} uses the same names."
    ) in why(subject(service(rollout={"metrics": [metric]}))).splitlines()
    blind = {**metric, "missing": "the query for bad has matched no series of the new revision so far"}
    assert "none of" not in why(subject(service(rollout={"metrics": [blind]})))


def test_why_says_that_the_newest_spec_cannot_work() -> None:
    raw = service(rollout={"state": "Promoted", "reason": "Promoted"})
    raw["status"]["conditions"].append(condition("Stalled", "True", "RuntimeNotFound", "nothing serves it"))
    assert why(subject(raw)).splitlines()[1] == (
        "But the newest spec does not work (RuntimeNotFound): nothing serves it."
    )
    raw["status"]["conditions"][-1]["reason"] = "RolledBack"
    assert "does not work" not in why(subject(raw))
    raw["status"]["conditions"][0] |= {"status": "False", "reason": "DigestMismatch", "message": "another."}
    assert (
        why(subject(raw)).splitlines()[1] == "But the newest spec does not serve (DigestMismatch): another."
    )
    raw["status"]["conditions"][0]["reason"] = "RolledBack"
    assert "does not serve" not in why(subject(raw))


def test_a_service_whose_old_pods_go_first_has_served_before() -> None:
    raw = service()
    raw["status"]["traffic"] = {"generation": 4, "backends": []}
    assert why(subject(raw)).splitlines()[0] == "risk/churn: no revision gets requests now."


def test_a_stopped_service_has_no_rollout_and_no_pods() -> None:
    raw = service(rollout={"state": None})
    raw["spec"]["stopped"] = True
    assert why(subject(raw)).splitlines()[1:] == [
        "There is no rollout while the service is stopped.",
        "pods: none, because spec.stopped is true.",
    ]


def test_a_service_on_another_class_says_why_and_when_it_returns() -> None:
    raw = service()
    raw["spec"]["hardware"] = {"class": ["fast", "slow"], "return": "whenRoom"}
    raw["status"]["hardware"] = {
        "class": "slow",
        "since": "2026-01-02T03:00:00Z",
        "message": "no pod found a node of HardwareClass fast",
        "return": "a return begins at noon",
    }
    found = subject(raw)
    for text in (why(found), status(found, NOW)):
        assert (
            "HardwareClass slow serves instead of fast since 2026-01-02T03:00:00+00:00: no pod found a node "
            "of HardwareClass fast."
        ) in text
        assert "A return begins at noon." in text
