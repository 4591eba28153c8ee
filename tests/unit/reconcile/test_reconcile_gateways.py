"""What the gateways' reports come to."""

import pytest
from tailbound.api.conditions import Reason
from tailbound.api.traffic import AppliedRoute, Observed, RejectedRoute, ServiceObservation
from tailbound.reconcile.gateways import Wanted, applied
from tailbound.reconcile.model import Unread

from tests.unit.reconcile.gateways import START

WANTED = Wanted("risk/churn", generation=3, traffic_generation=7)


def says(
    routed: tuple[int, int] | None, rejected: tuple[int, int] | None = None, denied: tuple[str, ...] = ()
) -> Observed:
    def route(pair: tuple[int, int]) -> dict[str, int]:
        return {"generation": pair[0], "traffic_generation": pair[1]}

    state = ServiceObservation(
        applied=AppliedRoute(**route(routed)) if routed else None,
        rejected=RejectedRoute(**route(rejected), message="bad regex") if rejected else None,
        denied_hosts=denied,
    )
    return Observed(envoy_start_time=START, synced=True, services={"risk/churn": state})


DONE, BEHIND = says((3, 7)), says((3, 6))
ELSEWHERE = Observed(envoy_start_time=START, synced=True, services={"risk/other": ServiceObservation()})
CASES = {
    "none": ({}, Reason.NO_GATEWAY, False, "no gateway pod is Ready"),
    "all done": ({"a": DONE, "b": DONE}, Reason.ACKNOWLEDGED, True, "every gateway pod"),
    "one behind": ({"a": DONE, "b": BEHIND}, Reason.WAITING_FOR_GATEWAY, False, "gateway pod b has not"),
    "first of two behind": (
        {"b": BEHIND, "a": BEHIND},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "gateway pod a has not",
    ),
    "one unread": (
        {"a": DONE, "b": Unread("timed out")},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "b could not be read: timed",
    ),
    "one without the service": (
        {"a": DONE, "b": ELSEWHERE},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "gateway pod b has not",
    ),
    "spec is newer, traffic is applied": ({"a": says((2, 7))}, Reason.WAITING_FOR_GATEWAY, True, "a has not"),
    "newest refused": (
        {"a": says((3, 6), (3, 7))},
        Reason.ROUTE_REJECTED,
        False,
        "a refused the route: bad regex",
    ),
    "an older one refused": ({"a": says((3, 7), (2, 7))}, Reason.ACKNOWLEDGED, True, "every gateway pod"),
    "refused by one, behind in another": (
        {"a": BEHIND, "b": says((3, 6), (3, 7))},
        Reason.ROUTE_REJECTED,
        False,
        "gateway pod b refused",
    ),
    "host denied": (
        {"a": says((3, 7), None, ("b.example", "a.example"))},
        Reason.HOST_CONFLICT,
        True,
        "a.example, b.example",
    ),
    "host denied here, behind there": (
        {"a": says((3, 7), None, ("a.example",)), "b": BEHIND},
        Reason.WAITING_FOR_GATEWAY,
        False,
        "gateway pod b",
    ),
}


@pytest.mark.parametrize(("gateways", "reason", "acknowledged", "words"), CASES.values(), ids=CASES)
def test_applied(
    gateways: dict[str, Observed | Unread], reason: Reason, acknowledged: bool, words: str
) -> None:
    found = applied(gateways, WANTED)
    assert (found.reason, found.acknowledged) == (reason, acknowledged)
    assert words in found.message
