"""Which annotation a command sets, and when it refuses."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tailbound.cli.actions import Action, changes, said, target
from tailbound.cli.outcome import awaited, outcome
from tailbound.cli.subject import CommandError

from tests.unit.cli.cli_objects import HISTORY, R1, R2, R3, promoted, rejected, revision, service, subject

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05Z"
OVER = service(rollout={"state": "Promoted"})
REJECTED = service(rollout={"state": "RolledBack"})
PAUSED = service(annotations={"tailbound.dev/pause": R3})
FIRST_ONE = service(rollout={"state": "Starting", "from": ""})
RETURNING = service(rollout={"state": "Promoting", "reason": "RolledBackManually"})
FIRST = service(rollout={"state": None})
MANUAL = service(rollout={"state": "Promoting", "reason": "PromotedManually"})
ASKED = {
    action: service(annotations={f"tailbound.dev/{action}": f"{R3}/1"}) for action in ("promote", "abort")
}
STOPPED = service(rollout={"state": "Promoted"})
STOPPED["spec"]["stopped"] = True
EDITED = service(rollout={"state": "Promoted"}, generation=4)

RESUME = "kubectl tailbound resume churn -n risk"


@pytest.mark.parametrize(
    ("action", "raw", "wanted", "revision_", "annotations"),
    [
        (Action.PROMOTE, None, None, R3, {"tailbound.dev/promote": f"{R3}/{STAMP}"}),
        (Action.ABORT, None, None, R3, {"tailbound.dev/abort": f"{R3}/{STAMP}"}),
        (Action.PAUSE, None, None, R3, {"tailbound.dev/pause": f"{R3}/{STAMP}"}),
        (Action.PAUSE, service(annotations={"tailbound.dev/pause": R2}), None, R3, None),
        (Action.RESUME, PAUSED, None, R3, {"tailbound.dev/pause": ""}),
        (Action.RETRY, REJECTED, None, R3, {"tailbound.dev/retry": f"{R3}/{STAMP}"}),
        (Action.ROLLBACK, None, None, R2, {"tailbound.dev/rollback-to": f"{R2}/{STAMP}"}),
        (Action.ROLLBACK, OVER, None, R2, None),
        (Action.ROLLBACK, service(rollout={"from": ""}), None, R2, None),
        (Action.ROLLBACK, None, R1, R1, {"tailbound.dev/rollback-to": f"{R1}/{STAMP}"}),
        (Action.ROLLBACK, FIRST, None, R1, None),
    ],
)
def test_an_action_names_its_revision(
    action: Action, raw: Any, wanted: str | None, revision_: str, annotations: Any
) -> None:
    assert target(action, subject(raw), wanted) == revision_
    if annotations is not None:
        assert changes(action, revision_, NOW) == annotations


@pytest.mark.parametrize(
    ("action", "raw", "wanted", "message"),
    [
        (Action.PROMOTE, OVER, None, "risk/churn has no rollout under way"),
        (Action.ABORT, REJECTED, None, "risk/churn has no rollout under way"),
        (Action.PAUSE, FIRST, None, "risk/churn has no rollout under way"),
        (
            Action.PAUSE,
            PAUSED,
            None,
            f"{R3} is paused already: run {RESUME} to continue it",
        ),
        (Action.ABORT, FIRST_ONE, None, f"{R3} is the first revision: there is nothing to abort"),
        (Action.PROMOTE, FIRST_ONE, None, f"{R3} is the first revision: there is nothing to promote"),
        (Action.PAUSE, RETURNING, None, f"{R3} is being restored by a rollback: there is nothing to pause"),
        (Action.RESUME, None, None, f"{R3} is not paused"),
        (Action.PAUSE, MANUAL, None, f"{R3} was promoted manually, which cannot be paused"),
        (Action.PAUSE, ASKED["promote"], None, f"{R3} was promoted manually, which cannot be paused"),
        (Action.PAUSE, ASKED["abort"], None, f"an abort of {R3} has been requested already"),
        (Action.PROMOTE, ASKED["abort"], None, f"an abort of {R3} has been requested already"),
        (
            Action.ROLLBACK,
            REJECTED,
            None,
            f"{R2} gets the requests already, because {R3} was rolled back",
        ),
        (Action.ROLLBACK, REJECTED, R2, f"{R2} gets the requests already, because {R3} was rolled back"),
        (
            Action.ROLLBACK,
            STOPPED,
            None,
            "risk/churn is stopped: set spec.stopped to false before you",
        ),
        (Action.PROMOTE, EDITED, None, "the operator has not seen generation 4 of the spec yet"),
        (Action.RETRY, EDITED, None, "the operator has not seen generation 4 of the spec yet"),
        (Action.RETRY, None, None, "the newest revision of risk/churn was not rejected"),
        (Action.RETRY, OVER, None, "the newest revision of risk/churn was not rejected"),
        (Action.ROLLBACK, OVER, R3, f"{R3} is the newest revision: it cannot be rolled back to"),
        (
            Action.ROLLBACK,
            OVER,
            "x",
            f"x is not a revision of risk/churn that has served: choose one of {R1}, {R2}",
        ),
    ],
)
def test_an_action_without_sense_is_refused_in_words(
    action: Action, raw: Any, wanted: str | None, message: str
) -> None:
    with pytest.raises(CommandError) as refused:
        target(action, subject(raw), wanted)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("history", "wanted", "found"),
    [
        ([revision(R1, {**promoted(STAMP), **rejected("Lost", "gone")}), *HISTORY[1:]], R1, R1),
        ([HISTORY[0], revision(R2, {**promoted(STAMP), **rejected("Lost", "gone")}), HISTORY[2]], None, R1),
    ],
)
def test_a_rejected_revision_is_returned_to_only_by_name(
    history: list[Any], wanted: str | None, found: str
) -> None:
    assert target(Action.ROLLBACK, subject(OVER, history), wanted) == found


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        pytest.param(
            service(),
            f"{R3} keeps 25% of the requests until you run {RESUME}",
            id="some",
        ),
        pytest.param(
            {**service(), "status": {**service()["status"], "traffic": None}},
            f"{R3} gets no requests until you run {RESUME}",
            id="none",
        ),
    ],
)
def test_a_pause_says_what_is_kept(raw: Any, told: str) -> None:
    assert said(Action.PAUSE, subject(raw), R3) == told


def test_an_action_warns_that_the_operator_has_not_seen_the_service() -> None:
    told = said(Action.ABORT, subject(service(generation=4)), R3)
    assert told.startswith(f"{R3} is being rolled back; the operator has not seen generation 4")


def test_there_is_no_way_back_from_the_first_revision() -> None:
    alone = [revision(R3, promoted(STAMP, stable=True))]
    with pytest.raises(CommandError, match="has no older revision that served"):
        target(Action.ROLLBACK, subject(OVER, alone))
    with pytest.raises(CommandError, match="no older one has"):
        target(Action.ROLLBACK, subject(OVER, alone), "x")


TRUE, FALSE = ("True", "Promoted", "done"), ("False", "RolledBack", "too slow")
WAITING = {"state": "Paused", "reason": "AwaitingPromotion", "message": "promote it"}
HELD = {"state": "Paused", "reason": "Paused", "message": "held"}
RETRY = {"tailbound.dev/retry": R3}
PAUSE = {"tailbound.dev/pause": R3}
PROMOTE = {"tailbound.dev/promote": f"{R3}/1"}


BACK = {"tailbound.dev/rollback-to": f"{R2}/1"}
REFRESH = {"tailbound.dev/refresh": "1"}
STABLE, SLOW = promoted(STAMP, stable=True), rejected("Slow", "slow")
AT_REST, RETURNED = {"state": "Promoted"}, {"state": "RolledBack"}


def handled(action: str, value: str) -> dict[str, str]:
    return {f"tailbound.dev/handled-{action}": value}


@pytest.mark.parametrize(
    ("raw", "marks", "code"),
    [
        (service(), {}, None),
        (service(promoted=None), {}, None),
        (service(promoted=TRUE), STABLE, 0),
        (service(promoted=TRUE, generation=4), STABLE, None),
        (service(promoted=TRUE), {}, None),
        (service(promoted=TRUE), SLOW, None),
        (service(promoted=FALSE), {}, None),
        (service(promoted=FALSE), SLOW, 2),
        (service(promoted=FALSE, rollout=RETURNED, annotations=RETRY), SLOW, None),
        (service(promoted=FALSE, rollout=RETURNED, annotations=RETRY), {**SLOW, **handled("retry", R3)}, 2),
        (service(promoted=FALSE, rollout=RETURNED, annotations={"tailbound.dev/retry": R2}), SLOW, 2),
        (service(rollout=WAITING), {}, 3),
        (service(rollout=WAITING, annotations=PROMOTE), {}, None),
        (service(rollout=WAITING, annotations=PROMOTE), handled("promote", f"{R3}/1"), 3),
        (service(rollout=WAITING, annotations={"tailbound.dev/abort": R3}), {}, None),
        (service(rollout=WAITING, annotations={"tailbound.dev/abort": R3}), SLOW, None),
        (service(rollout=WAITING, annotations={"tailbound.dev/abort": R2}), {}, 3),
        (service(rollout=HELD, annotations=PAUSE), {}, 3),
        (service(rollout=HELD), {}, None),
        (service(promoted=TRUE, rollout=AT_REST, annotations=BACK), STABLE, None),
        (service(promoted=TRUE, rollout=AT_REST, annotations={"tailbound.dev/rollback-to": "x"}), STABLE, 1),
        (service(promoted=TRUE, rollout=AT_REST, annotations={"tailbound.dev/rollback-to": R3}), {}, 1),
        (service(promoted=TRUE, rollout=AT_REST, annotations=REFRESH), STABLE, None),
    ],
)
def test_waiting_ends(raw: Any, marks: dict[str, str], code: int | None) -> None:
    ended = outcome(subject(raw, [*HISTORY[:2], revision(R3, marks)]))
    assert (ended.code if ended is not None else None) == code


@pytest.mark.parametrize(("promoted_", "marks", "code"), [(TRUE, STABLE, None), (FALSE, SLOW, 2)])
def test_a_return_that_was_made_ends_waiting_once_the_status_tells_it(
    promoted_: Any, marks: dict[str, str], code: int | None
) -> None:
    back = revision(R2, {**promoted(STAMP, stable=True), **handled("rollback-to", f"{R2}/1")})
    before = {name: value for name, value in marks.items() if "stable" not in name}
    ended = outcome(
        subject(service(promoted=promoted_, annotations=BACK), [HISTORY[0], back, revision(R3, before)])
    )
    assert (ended.code if ended is not None else None) == code


@pytest.mark.parametrize(
    ("promoted_", "code"), [(TRUE, 0), (("Unknown", "Starting", "it is starting"), 1), (None, 1)]
)
def test_a_stopped_service_is_not_waited_for(promoted_: Any, code: int) -> None:
    raw = service(promoted=promoted_, rollout=AT_REST)
    raw["spec"]["stopped"] = True
    ended = outcome(subject(raw, [*HISTORY[:2], revision(R3, STABLE)]))
    assert ended is not None
    assert ended.code == code
    assert "stopped" in ended.message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (service(), None),
        (service(generation=4), "the operator has not seen generation 4 of the spec yet"),
        (service(annotations=PROMOTE), f"tailbound.dev/promote asks for {R3}, and the operator has not"),
    ],
    ids=["nothing", "an-edit", "an-action"],
)
def test_what_the_operator_has_yet_to_do_is_told(raw: Any, words: str | None) -> None:
    found = awaited(subject(raw))
    assert (found is None) if words is None else (found is not None and found.startswith(words))


def test_a_return_that_was_given_up_is_no_success() -> None:
    back = revision(R2, {**promoted(STAMP), **handled("rollback-to", f"{R2}/1")})
    rollout = {"state": "Promoted", "from": R2, "reason": "DeadlineExceeded", "message": "given up"}
    raw = service(promoted=TRUE, rollout=rollout, annotations=BACK)
    ended = outcome(subject(raw, [HISTORY[0], back, revision(R3, STABLE)]))
    assert ended is not None
    assert (ended.code, ended.message.endswith("given up")) == (1, True)


def test_a_refresh_is_waited_for() -> None:
    fresh = revision(R3, STABLE)
    fresh["data"]["spec"] = json.dumps({"model": {"format": "onnx"}, "refresh": "1"})
    ended = outcome(
        subject(service(promoted=TRUE, rollout=AT_REST, annotations=REFRESH), [*HISTORY[:2], fresh])
    )
    assert ended is not None
    assert ended.code == 0
