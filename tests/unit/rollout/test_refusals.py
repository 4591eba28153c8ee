"""Which annotations are told to make no sense, and which are not."""

from dataclasses import replace
from typing import Any

import pytest
from tailbound.rollout.model import RevisionState

from tests.unit.rollout.inputs import GONE, ago, rollout, situation, state, step_of, to

SERVED = replace(GONE, promoted_at="2025")
REVISIONS = {"older": SERVED, "old": state(2, promoted_at="2026"), "new": state(1, number=2)}
CANARY = rollout(weight=5, step_started_at=ago(60))
REJECTED = rollout("RolledBack")
AT_REST = rollout("Promoted", revision="old", from_revision="older")


def refusal(annotations: dict[str, str], **fields: Any) -> str | None:
    now = situation(
        fields.pop("revisions", REVISIONS),
        fields.pop("traffic", to(old=95, new=5)),
        spec={"strategy": "canary"},
        annotations=annotations,
        **{"stored": CANARY, "acknowledged": True, **fields},
    )
    return step_of(now).refusal


def without_new(**changes: RevisionState) -> dict[str, Any]:
    revisions = {"older": SERVED, "old": state(2, promoted_at="2026"), **changes}
    return {"revisions": revisions, "traffic": to("old"), "stored": REJECTED}


STABLE_IS_NEWEST: dict[str, Any] = {**without_new(), "desired": "old", "stored": AT_REST}


@pytest.mark.parametrize(
    ("annotations", "fields", "told"),
    [
        ({"rollback-to": "x/1"}, {}, "this service has no revision of that name; name one of old, older"),
        (
            {"promote": "x"},
            {},
            "this service has no revision of that name; kubectl tailbound history churn -n risk lists them",
        ),
        ({"abort": "x"}, {}, "this service has no revision of that name"),
        ({"retry": "x"}, {}, "this service has no revision of that name"),
        ({"pause": "x"}, {}, "this service has no revision of that name"),
        ({"rollback-to": "never"}, {"revisions": {**REVISIONS, "never": GONE}}, "it never took over"),
        (
            {"rollback-to": "bad"},
            {"revisions": {**REVISIONS, "bad": replace(SERVED, restorable=False)}},
            "its ControllerRevision is damaged",
        ),
        (
            {"rollback-to": "new"},
            without_new(new=state(rejected=True)),
            "run kubectl tailbound retry churn -n",
        ),
        ({"promote": "new"}, without_new(new=state(rejected=True)), "it was rejected"),
        ({"promote": "older"}, {}, "it is not the candidate"),
        ({"abort": "old"}, STABLE_IS_NEWEST, "it has taken over"),
        (
            {"abort": "new"},
            {"revisions": {"new": state(0)}, "traffic": None, "stored": None, "stable": None},
            "it is the first revision",
        ),
    ],
)
def test_an_action_without_sense_is_told_with_its_value_and_a_remedy(
    annotations: dict[str, str], fields: dict[str, Any], told: str
) -> None:
    ((action, value),) = annotations.items()
    found = refusal(annotations, **fields)
    assert found is not None
    assert found.startswith(f"tailbound.dev/{action} is '{value}': ")
    assert told in found


@pytest.mark.parametrize(
    ("annotations", "fields"),
    [
        ({}, {}),
        ({"promote": "new"}, {}),
        ({"abort": "new"}, {}),
        ({"pause": "new"}, {}),
        ({"pause": "older"}, {}),
        ({"rollback-to": "older"}, {}),
        ({"promote": "older"}, {"handled": ("promote",)}),
        ({"rollback-to": "old", "promote": "old"}, STABLE_IS_NEWEST),
        ({"retry": "new"}, without_new(new=state(rejected=True))),
        ({"abort": "new"}, without_new(new=state(rejected=True))),
    ],
)
def test_an_action_with_sense_is_not_told(annotations: dict[str, str], fields: dict[str, Any]) -> None:
    assert refusal(annotations, **fields) is None
