"""What people read."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tailbound.api.parsing import InvalidObject
from tailbound.cli.arguments import parser
from tailbound.cli.history import diff, history
from tailbound.cli.status import overview, status
from tailbound.cli.subject import CommandError
from tailbound.cli.table import age
from tailbound.rollout.figures import count, proof

from tests.unit.cli.cli_objects import (
    HISTORY,
    METRIC,
    R1,
    R2,
    R3,
    condition,
    rejected,
    revision,
    service,
    subject,
)

NOW = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)


def test_an_unknown_command_is_answered_with_the_names_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["frobnicate"])
    said = capsys.readouterr().err.replace("'", "")
    assert "(choose from status, history, why, diff, promote, abort" in said


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
        "  the operator has not seen this service yet; if this persists, check that the operator of "
        "Tailbound runs and watches this namespace",
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


@pytest.mark.parametrize("kind", ["ActionRefused", "Conflict", "ScalingLimited", "MetricsStale"])
def test_status_tells_of_what_is_not_as_it_should_be(kind: str) -> None:
    raw = service()
    raw["status"]["conditions"].append(condition(kind, "False", "Fine", "nothing"))
    assert kind not in status(subject(raw), NOW)
    raw["status"]["conditions"][-1] |= {"status": "True", "message": "look here"}
    assert f"  {kind} is True (Fine): look here" in status(subject(raw), NOW).splitlines()


def test_a_return_has_no_steps() -> None:
    back = {"state": "Promoting", "reason": "RolledBackManually", "revision": R1, "step": 0}
    text = status(subject(service(rollout=back)), NOW)
    assert f"  rollback to {R1}: under way (RolledBackManually)" in text.splitlines()


def test_overview_of_services() -> None:
    services = [subject(raw).service for raw in (service(), service(rollout={"state": None}, promoted=None))]
    assert overview(services, namespaces=True).splitlines() == [
        "NAMESPACE   NAME    READY     REPLICAS   PROMOTED   STABLE       CANARY       WEIGHT   STATE       "
        "REASON",
        "risk        churn   Unknown   5/5        Unknown    churn-r2-b   churn-r3-c   25%      Analysing   "
        "RollingOut",
        "risk        churn   Unknown   5/5        -          churn-r2-b   churn-r3-c   -        -           "
        "RollingOut",
    ]
    assert overview(services[:1], namespaces=False).splitlines()[0].startswith("NAME  ")


def test_a_service_that_cannot_be_read_hides_no_other() -> None:
    newer = InvalidObject("InferenceService", "risk", "also", "spec.model.uri is 7")
    lines = overview([subject(service()).service, newer], namespaces=False).splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "also", "churn"]
    assert lines[1].endswith("cannot be read: spec.model.uri is 7")


def test_history_has_the_newest_first_and_tells_who_acted() -> None:
    revisions = [*HISTORY[:2], revision(R3, rejected("AbortedManually", "it was aborted by ann", "ann"))]
    assert history(subject(None, revisions)).splitlines() == [
        "REVISION              REQUESTS   PROMOTED               BY   REJECTED               BY    WHY",
        "churn-r3-c            25%        -                      -    2026-01-02T03:05:00Z   ann   "
        "AbortedManually: it was aborted by ann",
        "churn-r2-b (stable)   75%        2026-01-02T00:00:00Z   -    -                      -     -",
        "churn-r1-a            0%         2026-01-01T00:00:00Z   -    -                      -     -",
    ]


def rejections(at: str, reason: str) -> str:
    """One rejection, as an annotation holds it."""
    return json.dumps([{"at": at, "reason": reason, "message": "m", "by": None}])


def test_history_remembers_what_a_retry_forgave_and_what_was_given_up() -> None:
    again = revision(
        R3,
        {"tailbound.dev/formerly-rejected": rejections("T1", "Slow")},
    )
    left = {"tailbound.dev/superseded-at": "T2", "tailbound.dev/superseded-by": R3}
    lines = history(subject(None, [revision(R1, left), HISTORY[1], again])).splitlines()
    assert lines[1].endswith("tried again after it was rejected at T1 (Slow: m)")
    assert lines[3].endswith(f"Superseded: ended before a verdict at T2, by {R3}")
    vain = {"tailbound.dev/return-given-up": rejections("T3", "CrashLoop")}
    lines = history(subject(None, [revision(R1, vain), *HISTORY[1:]])).splitlines()
    assert lines[-1].endswith("a rollback to it was abandoned at T3 (CrashLoop: m)")
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
