"""What people read."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound.cli.history import diff, history
from tailbound.cli.status import age, overview, status
from tailbound.cli.subject import CommandError
from tailbound.cli.why import why
from tailbound.revisions.record import Rejected
from tailbound.rollout.figures import count, proof

from tests.unit.cli.cli_objects import (
    FINDING,
    HISTORY,
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


def test_status_of_a_rollout() -> None:
    assert (
        status(subject(), NOW)
        == f"""\
risk/churn  http://churn.risk.svc.cluster.local
  Ready is Unknown (RollingOut): on its way
  Promoted is Unknown (Analysing): not yet

  ROLE     REVISION     REQUESTS   READY
  stable   churn-r2-b   75%        4 of 4
  canary   churn-r3-c   25%        1 of 1

  rollout of churn-r3-c: analysing, step 2 of 3 (25%) for 60s
  {R3} gets 25 percent of the requests, step 2 of 3

  OBJECTIVE   BAD        ALLOWED   BEYOND SLA            WORSE                  PASSES                OUTCOME
  latency     9 of 412   1 %       ####.... 2.5 of 5.0   ........ -0.2 of 5.3   ........ 0.1 of 3.0   Wait"""
    )


def test_status_of_a_service_that_nobody_has_seen() -> None:
    raw = service()
    del raw["status"]
    text = status(subject(raw, []), NOW)
    assert text.splitlines()[:2] == [
        "risk/churn",
        "  the operator has not seen this service yet; if this lasts, see whether Tailbound's operator runs",
    ]
    assert "rollout of" not in text


@pytest.mark.parametrize(
    ("rollout", "line"),
    [
        ({"state": "Paused", "reason": "Inconclusive"}, "paused (Inconclusive), step 2 of 3 (25%) for 60s"),
        ({"state": "Promoting", "reason": "RollingOut", "step": 3}, "promoting (RollingOut)"),
        ({"state": "RolledBack", "reason": "Slow"}, "rolled back (Slow)"),
        ({"state": "Promoted", "reason": "Promoted"}, "promoted"),
        ({"stepStartedAt": None}, "analysing, step 2 of 3 (25%)"),
        ({"state": "Starting", "reason": "Starting", "from": ""}, "starting"),
    ],
)
def test_status_tells_where_the_rollout_stands(rollout: dict[str, Any], line: str) -> None:
    text = status(subject(service(rollout=rollout)), NOW)
    assert f"  rollout of {R3}: {line}" in text.splitlines()


@pytest.mark.parametrize("kind", ["HandRefused", "Conflict", "ScalingLimited", "MetricsStale"])
def test_status_tells_of_what_is_not_as_it_should_be(kind: str) -> None:
    raw = service()
    raw["status"]["conditions"].append(condition(kind, "False", "Fine", "nothing"))
    assert kind not in status(subject(raw), NOW)
    raw["status"]["conditions"][-1] |= {"status": "True", "message": "look here"}
    assert f"  {kind} is True (Fine): look here" in status(subject(raw), NOW).splitlines()


def test_a_return_has_no_steps() -> None:
    back = {"state": "Promoting", "reason": "RolledBackByHand", "revision": R1, "step": 0}
    text = status(subject(service(rollout=back)), NOW)
    assert f"  return to {R1}: coming back (RolledBackByHand)" in text.splitlines()


def test_overview_of_services() -> None:
    services = [subject(raw).service for raw in (service(), service(rollout={"state": None}, promoted=None))]
    assert overview(services, namespaces=True).splitlines() == [
        "NAMESPACE   NAME    READY     REPLICAS   PROMOTED   STABLE       CANARY       WEIGHT   STATE       "
        "REASON",
        "risk        churn   Unknown   5/5        Unknown    churn-r2-b   churn-r3-c   25%      Analysing   "
        "Analysing",
        "risk        churn   Unknown   5/5        -          churn-r2-b   churn-r3-c   -        -           "
        "-",
    ]
    assert overview(services[:1], namespaces=False).splitlines()[0].startswith("NAME  ")


def test_history_has_the_newest_first_and_tells_who_acted() -> None:
    revisions = [*HISTORY[:2], revision(R3, rejected("AbortedByHand", "it was aborted by ann", "ann"))]
    assert history(subject(None, revisions)).splitlines() == [
        "REVISION              REQUESTS   PROMOTED               BY   REJECTED               BY    WHY",
        "churn-r3-c            25%        -                      -    2026-01-02T03:05:00Z   ann   "
        "AbortedByHand: it was aborted by ann",
        "churn-r2-b (stable)   75%        2026-01-02T00:00:00Z   -    -                      -     -",
        "churn-r1-a            0%         2026-01-01T00:00:00Z   -    -                      -     -",
    ]


def test_history_remembers_what_a_retry_forgave_and_what_was_given_up() -> None:
    again = revision(R3, {"tailbound.dev/formerly-rejected": json.dumps([vars(Rejected("T1", "Slow", "m"))])})
    left = {"tailbound.dev/superseded-at": "T2", "tailbound.dev/superseded-by": R3}
    lines = history(subject(None, [revision(R1, left), HISTORY[1], again])).splitlines()
    assert lines[1].endswith("tried again after it was rejected at T1 (Slow: m)")
    assert lines[3].endswith(f"Superseded: given up before a verdict, at T2, for {R3}")
    on_its_way = subject(None, [*HISTORY[:2], revision(R3, left)])
    assert history(on_its_way).splitlines()[1].endswith("-")


def test_diff_tells_what_changed_and_nothing_else() -> None:
    other = subject(None, [revision(R1), revision(R2, image="server:2")])
    older, newer = other.history
    lines = diff(older, newer).splitlines()
    assert lines[:2] == [f"--- {R1}", f"+++ {R2}"]
    assert [line.strip() for line in lines[2:] if line[0] in "+-"] == [
        "-    - image: server:1",
        "+    - image: server:2",
    ]
    assert diff(older, older) == ""


def test_diff_of_a_damaged_revision_is_refused_in_words() -> None:
    damaged = {**revision(R1), "data": {}}
    (entry,) = subject(None, [damaged]).history
    with pytest.raises(CommandError, match=f"revision {R1} is damaged"):
        diff(entry, entry)


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
                "  RollBack: this is proof enough to reject it.",
            ],
        ),
        (
            {"state": "RolledBack", "reason": "AbortedByHand", "message": "m", "findings": []},
            rejected("AbortedByHand", "m", "ann"),
            [f"{R3} was rolled back (AbortedByHand): m. It was decided by ann."],
        ),
        (
            {"state": "Promoted", "reason": "PromotedByHand", "message": "", "findings": []},
            {**promoted("x", stable=True), "tailbound.dev/promoted-by": "ben"},
            [f"{R3} has taken over (PromotedByHand). It was decided by ben."],
        ),
        (
            {"findings": [{**FINDING, "outcome": "Pass", "improvesBreach": True}]},
            {},
            ["  Pass: it breaches the SLA, but is proven better than a stable revision that does too."],
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


METRIC: dict[str, Any] = {
    "name": "accuracy",
    "outcome": "RollBack",
    "samples": 12.0,
    "mean": 0.7,
    "bound": 0.9,
    "against": {"value": 5.9, "threshold": 5.7},
    "relative": {"value": 5.5, "threshold": 5.3},
    "passing": {"value": -1.0, "threshold": 3.0},
}


def test_status_tells_of_metrics() -> None:
    unasked = {
        **METRIC,
        "name": "revenue",
        "samples": 0.0,
        "mean": None,
        "against": {"value": 0.0, "threshold": 5.7},
    }
    del unasked["relative"]
    lines = status(subject(service(rollout={"metrics": [METRIC, unasked]})), NOW).splitlines()
    assert [" ".join(line.split()) for line in lines[-3:]] == [
        "METRIC IS BOUND SAMPLES BEYOND BOUND WORSE PASSES OUTCOME",
        "accuracy 0.7 0.9 12 ######## 5.9 of 5.7 ######## 5.5 of 5.3 ........ -1.0 of 3.0 RollBack",
        "revenue - 0.9 0 ........ 0.0 of 5.7 - ........ -1.0 of 3.0 RollBack",
    ]


def test_why_tells_of_metrics() -> None:
    lines = why(subject(service(rollout={"metrics": [METRIC]}))).splitlines()
    assert lines[-6:-1] == [
        "accuracy: 0.7 over 12 samples; the bound is 0.9.",
        "  beyond the bound: proven, evidence 5.9 of 5.7 (a chance of at most 1 in 299 to be wrong)",
        "  worse than the stable revision: proven, evidence 5.5 of 5.3 "
        "(a chance of at most 1 in 200 to be wrong)",
        "  good enough in this step: not proven, evidence -1.0 of 3.0",
        "  RollBack: this is proof enough to reject it.",
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
            served([], 0),
            "risk/churn: nothing has served yet.",
            id="nothing-yet",
        ),
        pytest.param(
            served(BACKENDS, 4, stopped=True),
            "risk/churn is stopped (spec.stopped is true): it answers 503.",
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
        "the operator has not seen generation 4 of the spec yet, and its status is of generation 3; if "
        "this lasts, see whether Tailbound's operator runs"
    )
    raw = service(generation=4)
    assert why(subject(raw)).splitlines()[1] == f"But {silent}."
    assert status(subject(raw), NOW).splitlines()[1] == f"  {silent}"


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
    "by-hand": (
        {"state": "Promoted", "reason": "PromotedByHand"},
        "Somebody promoted it without this proof.",
    ),
    "rolled-back": (
        {"state": "RolledBack", "reason": "CrashLoop"},
        "Neither was proven: another cause rolled it back.",
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
        "  Wait: neither is proven yet, and its query has to give values: see that it matches a series."
    ) in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.0, "9"), (0.0, "0"), (9.3712, "9.37"), (99.99, "100"), (412.38, "412"), (1234567.8, "1234568")],
)
def test_counts_have_few_digits_and_no_exponent(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(5.2979, "5.2 of 5.3"), (5.299, "5.3 of 5.3"), (-0.2, "-0.2 of 5.3")]
)
def test_evidence_that_falls_short_never_reads_as_enough(value: float, text: str) -> None:
    assert proof(value, 5.2983) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [(timedelta(seconds=-5), "0s"), (timedelta(seconds=119), "119s"), (timedelta(minutes=119), "119m"),
     (timedelta(hours=47), "47h"), (timedelta(days=3), "3d")],
)  # fmt: skip
def test_ages(ago: timedelta, text: str) -> None:
    assert age(NOW, NOW - ago) == text
