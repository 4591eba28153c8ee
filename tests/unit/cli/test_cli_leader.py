"""When the commands say that no operator leads."""

from datetime import UTC, datetime, timedelta

import pytest
from tailbound.cli.leader import SILENT_AFTER, silence
from tailbound.objects.lease import Lease

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
WORKS, LATE, LOST = timedelta(seconds=2), SILENT_AFTER - timedelta(seconds=1), timedelta(minutes=7)


def lease(namespace: str, ago: timedelta | None) -> Lease:
    renewed = {} if ago is None else {"renewTime": (NOW - ago).isoformat().replace("+00:00", "Z")}
    return Lease({"metadata": {"name": "tailbound-operator", "namespace": namespace}, "spec": renewed})


@pytest.mark.parametrize(
    ("renewed", "names"),
    [
        ({}, ""),
        ({"a": WORKS}, ""),
        ({"a": LATE}, ""),
        ({"a": -LOST}, ""),
        ({"a": None}, ""),
        ({"a": LOST, "b": WORKS}, ""),
        ({"a": LOST, "b": None}, ""),
        ({"a": SILENT_AFTER}, "namespace a was last renewed 45s ago"),
        ({"a": 2 * LOST, "b": LOST}, "namespace b was last renewed 7m ago"),
    ],
)
def test_silence_of_all_installations_is_told(renewed: dict[str, timedelta | None], names: str) -> None:
    said = silence([lease(*each) for each in renewed.items()], NOW)
    assert (said is None) if not names else names in str(said)
