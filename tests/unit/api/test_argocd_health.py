"""The health script for Argo CD, run by the Lua that Argo CD has."""

from pathlib import Path
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime
from tailbound.api.conditions import ConditionStatus, ConditionType
from tailbound.api.rollout import RolloutState

SCRIPT = (Path(__file__).parents[3] / "examples" / "argocd-health.lua").read_text()
READY, PROMOTED, STALLED, RECONCILING = (
    ConditionType.READY,
    ConditionType.PROMOTED,
    ConditionType.STALLED,
    ConditionType.RECONCILING,
)
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def health(
    found: dict[ConditionType, ConditionStatus], state: RolloutState | None = None, **spec: Any
) -> tuple[str, str]:
    """Status and message of a service with these conditions."""
    lua = LuaRuntime()
    status: dict[str, Any] = {
        "observedGeneration": 3,
        "conditions": [{"type": str(kind), "status": str(value), "message": f"of {kind}"}
                       for kind, value in found.items()],
    }  # fmt: skip
    if state is not None:
        status["rollout"] = {"state": str(state), "message": "of the rollout"}
    service = {"metadata": {"generation": 3}, "spec": spec, "status": status}
    return run(lua, service)


def run(lua: Any, service: dict[str, Any]) -> tuple[str, str]:
    lua.globals().obj = lua.table_from(service, recursive=True)
    made = lua.execute(SCRIPT)
    return made.status, made.message


@pytest.mark.parametrize(
    ("found", "state", "spec", "expected"),
    [
        pytest.param({}, None, {}, ("Progressing", ""), id="no-conditions"),
        pytest.param(
            {READY: TRUE, PROMOTED: TRUE, RECONCILING: FALSE},
            RolloutState.PROMOTED,
            {},
            ("Healthy", "of Ready"),
            id="serving",
        ),
        pytest.param(
            {READY: UNKNOWN, PROMOTED: UNKNOWN, RECONCILING: TRUE},
            RolloutState.ANALYSING,
            {},
            ("Progressing", "of Reconciling"),
            id="rolling-out",
        ),
        pytest.param(
            {READY: UNKNOWN, PROMOTED: UNKNOWN, RECONCILING: TRUE},
            RolloutState.PAUSED,
            {},
            ("Suspended", "of the rollout"),
            id="waits-for-a-person",
        ),
        pytest.param(
            {READY: FALSE, PROMOTED: FALSE, RECONCILING: FALSE},
            RolloutState.ROLLED_BACK,
            {},
            ("Degraded", "of Promoted"),
            id="rolled-back",
        ),
        pytest.param(
            {READY: FALSE, STALLED: TRUE, RECONCILING: FALSE},
            None,
            {},
            ("Degraded", "of Stalled"),
            id="stalled",
        ),
        pytest.param(
            {READY: FALSE, RECONCILING: FALSE},
            None,
            {"stopped": True},
            ("Suspended", "of Ready"),
            id="stopped",
        ),
        pytest.param(
            {READY: FALSE, RECONCILING: TRUE}, None, {}, ("Progressing", "of Reconciling"), id="starting"
        ),
        pytest.param({READY: FALSE, RECONCILING: FALSE}, None, {}, ("Degraded", "of Ready"), id="down"),
    ],
)
def test_health(
    found: dict[ConditionType, ConditionStatus],
    state: RolloutState | None,
    spec: dict[str, Any],
    expected: tuple[str, str],
) -> None:
    assert health(found, state, **spec) == expected


def test_a_spec_that_no_status_speaks_of_yet_is_progressing() -> None:
    stale = {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True", "message": "old"}]}
    for status in ({}, stale):
        service = {"metadata": {"generation": 4}, "spec": {}, "status": status}
        assert run(LuaRuntime(), service)[0] == "Progressing"
    assert run(LuaRuntime(), {"metadata": {"generation": 1}, "spec": {}})[0] == "Progressing"
