"""A service that fell back returns to a preferred class when there is room, and does not flap."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from tailbound.api.hardware import LONGEST_MESSAGE
from tailbound.api.names import FALLBACK_ANNOTATION

from tests.support.simulated.objects import hardware_class, service
from tests.support.simulated.simulator import Simulator

GPU = {"resources": [{"name": "nvidia.com/gpu", "count": 1}]}
HARDWARE = {"class": ["fast", "slow"], "fallbackAfter": "30s", "return": "whenRoom", "returnAfter": "10m"}
MINUTE = timedelta(minutes=1)


def offer(simulator: Simulator, room: int | None, *, full: bool = False, waiting: int = 0) -> None:
    """The status of the preferred class, and whether its pods find nodes."""
    fast = hardware_class("fast", default=False, **GPU)
    fast["status"] = {"waiting": waiting} if room is None else {"room": room, "waiting": waiting}
    slow = hardware_class("slow", default=False, nodeSelector={"kind": "cpu"})
    simulator.hardware_classes = {"fast": fast, "slow": slow}
    simulator.full_classes = {"fast"} if full else set()


def fallen_back(**fields: Any) -> Simulator:
    simulator = Simulator(service=service(**{"hardware": HARDWARE, **fields}))
    offer(simulator, 0, full=True)
    live(simulator, 3 * MINUTE)
    assert hardware(simulator)["class"] == "slow"
    return simulator


def live(simulator: Simulator, time: timedelta) -> None:
    """Time passes, with a look whenever the operator asks for one."""
    end = simulator.now + time
    while simulator.now < end:
        simulator.work()
        plan = simulator.reconcile()
        if not plan.writes and plan.status is None and plan.requeue_after is not None:
            simulator.now += min(plan.requeue_after, end - simulator.now)
        elif not plan.writes and plan.status is None:
            return


def hardware(simulator: Simulator) -> dict[str, Any]:
    found: dict[str, Any] = simulator.service["status"]["hardware"]
    return found


def revisions(simulator: Simulator) -> list[str]:
    return [name.split("-")[1] for name in simulator.names("ControllerRevision")]


@pytest.mark.parametrize("room", [1, None], ids=["counted", "unknown"])
def test_the_service_returns_once_there_has_been_room_for_the_time(room: int | None) -> None:
    simulator = fallen_back()
    assert "there is no room for its 1 pods in HardwareClass fast" in hardware(simulator)["return"]
    offer(simulator, room)
    live(simulator, 8 * MINUTE)
    assert hardware(simulator)["class"] == "slow"
    assert "begins at" in hardware(simulator)["return"]
    assert revisions(simulator) == ["r1"]
    live(simulator, 5 * MINUTE)
    assert hardware(simulator) == {"class": "fast"}
    assert simulator.condition("Ready") == ("True", "Serving")
    assert simulator.condition("Promoted") == ("True", "Promoted")
    assert revisions(simulator) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("room", "waiting", "returns"), [(2, 1, True), (1, 1, False), (0, 2, False), (None, 1, False)]
)
def test_a_pod_that_waits_for_whatever_reason_keeps_its_own_place_and_no_other(
    room: int | None, waiting: int, returns: bool
) -> None:
    simulator = fallen_back()
    offer(simulator, room, waiting=waiting)
    live(simulator, 20 * MINUTE)
    assert hardware(simulator)["class"] == ("fast" if returns else "slow")


def test_room_for_too_few_pods_is_no_news_whatever_it_is() -> None:
    simulator = fallen_back(scaling={"min": 3})
    live(simulator, 2 * MINUTE)
    offer(simulator, 2, full=True)
    plan = simulator.reconcile()
    assert (plan.status, plan.writes) == (None, ())


def test_a_message_is_no_longer_than_a_status_can_have_it() -> None:
    simulator = fallen_back()
    simulator.hardware_classes = {
        name: hardware_class(name, default=False) for name in ("slow", *(f"class-{n}" * 9 for n in range(30)))
    }
    simulator.reconcile()
    assert len(hardware(simulator)["return"]) == LONGEST_MESSAGE
    (record,) = simulator.of("ControllerRevision")
    stored = json.loads(record["metadata"]["annotations"][FALLBACK_ANNOTATION])
    record["metadata"]["annotations"][FALLBACK_ANNOTATION] = json.dumps({**stored, "why": "x" * 2000})
    simulator.reconcile()
    assert len(hardware(simulator)["message"]) == LONGEST_MESSAGE


def test_a_return_without_room_after_all_is_given_up_and_tried_again_after_a_longer_time() -> None:
    simulator = fallen_back()
    offer(simulator, 1, full=True)
    began = simulator.now
    live(simulator, 14 * MINUTE)
    assert revisions(simulator) == ["r1", "r2"]
    assert hardware(simulator)["class"] == "slow"
    assert simulator.serving() == [simulator.names("ControllerRevision")[0]]
    assert simulator.condition("Ready") == ("True", "Serving")
    assert "returns that did not last: 1" in hardware(simulator)["return"]
    assert "(the last one, churn-r2-" in hardware(simulator)["return"]
    assert "had no room for 30s: " in hardware(simulator)["return"]
    live(simulator, 300 * MINUTE)
    assert [name for name in revisions(simulator) if name != "r1"] == ["r6"], "10, 20, 40, 80 and 160 minutes"
    again = datetime.fromisoformat(hardware(simulator)["return"].split("begins at ")[1].split(": ")[0])
    assert again - began > timedelta(hours=5)
    simulator.service["status"] = {}
    live(simulator, 2 * MINUTE)
    assert "did not last: 5" in hardware(simulator)["return"], "a lost status forgets no failure"
    offer(simulator, 1)
    live(simulator, timedelta(days=1))
    assert hardware(simulator) == {"class": "fast"}


def test_pods_are_not_stopped_for_a_return_and_an_edit_takes_its_place() -> None:
    simulator = fallen_back(rollout={"strategy": "recreate"})
    offer(simulator, 1)
    live(simulator, 60 * MINUTE)
    assert "strategy recreate ends all pods first" in hardware(simulator)["return"]
    simulator.edit(hardware={**HARDWARE, "return": "manual", "returnAfter": None}, rollout={})
    live(simulator, 60 * MINUTE)
    assert "return" not in hardware(simulator)
    assert revisions(simulator) == ["r1"]
