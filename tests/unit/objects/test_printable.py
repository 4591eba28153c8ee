"""Messages of others cannot steer the terminal of who reads them."""

from datetime import UTC, datetime

import pytest
from tailbound.api.conditions import ConditionType, Reason
from tailbound.cli import command
from tailbound.objects.printable import printable
from tailbound.reconcile import conditions
from tailbound.reconcile.condition_verdict import FALSE, ConditionVerdict
from tailbound.telemetry.events import event_body

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOSTILE, SHOWN = "out\x1b[2J\rof\x9b\u202ememory\n\tä", "out\\x1b[2J\\rof\\x9b\\u202ememory\n\tä"


def test_control_characters_become_escapes() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("plain: 99 ms, ü") == "plain: 99 ms, ü"


def test_conditions_and_events_hold_none() -> None:
    verdict = {ConditionType.READY: ConditionVerdict(FALSE, Reason.CRASH_LOOP, HOSTILE)}
    (ready,) = conditions.merge((), verdict, 1, NOW)
    assert ready.message == SHOWN
    event = event_body({}, "Warning", "CrashLoop", HOSTILE, instance="o", now=NOW, suffix="a")
    assert event["message"] == SHOWN


def test_the_command_prints_none(capsys: pytest.CaptureFixture[str]) -> None:
    command._print(HOSTILE)
    assert capsys.readouterr().out == f"{SHOWN}\n"
