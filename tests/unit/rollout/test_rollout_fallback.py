"""When pods wait for a node too long, which hardware class is next."""

from datetime import UTC, datetime, timedelta

import pytest
from tailbound.rollout.fallback import ClassPlacement, FallbackDecision, Move, Stay, Wait, Waiting, fall_back

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AFTER = timedelta(seconds=30)
WHY = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"


def decision(
    present: str,
    waited: int | None,
    serving: str | None = None,
    classes: str = "abc",
    running: str | None = None,
) -> FallbackDecision:
    waiting = None if waited is None else Waiting(NOW - timedelta(seconds=waited), WHY)
    return fall_back(ClassPlacement(tuple(classes), present, waiting, AFTER, running, serving), NOW)


def moved(to: str, present: str) -> Move:
    return Move(to, f"no pod found a node of HardwareClass {present}: {WHY}")


TABLE: dict[str, tuple[FallbackDecision, FallbackDecision]] = {
    "pods-have-nodes": (decision("a", None), Stay()),
    "another-class-has-a-node": (
        decision("b", None, running="a"),
        Move("a", "pods found a node of HardwareClass a first"),
    ),
    "too-early": (decision("a", 29), Wait(NOW + timedelta(seconds=1))),
    "next": (decision("a", 30), moved("b", "a")),
    "one-further": (decision("b", 31), moved("c", "b")),
    "behind-the-last-comes-the-first": (decision("c", 30), moved("a", "c")),
    "single": (decision("a", 300, classes="a"), Stay()),
    "the-first-one-serves": (decision("a", 300, "a"), Stay()),
    "the-second-one-serves": (decision("a", 30, "b"), moved("b", "a")),
    "no-further-than-what-serves": (decision("b", 30, "b"), moved("a", "b")),
    "what-serves-has-another-list": (decision("b", 30, "x"), moved("c", "b")),
    "worse-than-what-serves": (decision("c", 30, "a"), moved("a", "c")),
}


@pytest.mark.parametrize(("found", "wanted"), TABLE.values(), ids=TABLE)
def test_fallback_by_table(found: FallbackDecision, wanted: FallbackDecision) -> None:
    assert found == wanted
