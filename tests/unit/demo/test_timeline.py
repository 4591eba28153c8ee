"""The demo believes a status only if it speaks about the newest spec."""

from typing import Any

import pytest

from e2e.demo.timeline import Moment


def moment(generation: int, observed: int, ready: str, **status: Any) -> Moment:
    conditions = [{"type": "Ready", "status": ready}]
    return Moment(
        at_seconds=0,
        service={
            "metadata": {"generation": generation},
            "status": {"observedGeneration": observed, "conditions": conditions, **status},
        },
    )


@pytest.mark.parametrize(
    ("generation", "observed", "ready", "expected"),
    [(2, 2, "True", True), (2, 1, "True", False), (2, 2, "Unknown", False), (2, 2, "False", False)],
)
def test_ready_means_the_newest_spec(generation: int, observed: int, ready: str, expected: bool) -> None:
    assert moment(generation, observed, ready).ready() is expected


def test_a_service_without_a_status_says_nothing() -> None:
    fresh = Moment(0, {"metadata": {"generation": 1}})
    assert not fresh.ready()
    assert fresh.stable() is None
    assert fresh.traffic_generation() == 0
    assert fresh.condition("Ready") == {}


def test_a_status_tells_revision_and_traffic() -> None:
    told = moment(1, 1, "True", stable={"revision": "a-r1-x"}, traffic={"generation": 3})
    assert told.stable() == "a-r1-x"
    assert told.traffic_generation() == 3
