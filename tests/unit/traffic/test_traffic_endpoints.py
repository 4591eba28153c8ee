"""Which pods of a revision take requests."""

from typing import Any

import pytest
from tailbound.traffic.endpoints import endpoints_by_revision

from tests.unit.traffic.traffic_objects import endpoints


@pytest.mark.parametrize(
    ("states", "ready", "draining"),
    [
        pytest.param(["ready", "ready"], ["10.0.0.1", "10.0.0.2"], [], id="ready pods"),
        pytest.param(["unsaid"], ["10.0.0.1"], [], id="absent conditions count as ready"),
        pytest.param(["ready", "starting"], ["10.0.0.1"], [], id="not ready"),
        pytest.param(["ready", "draining"], ["10.0.0.1"], ["10.0.0.2"], id="terminating, still serving"),
        pytest.param(["ready", "dying"], ["10.0.0.1"], [], id="terminating, not serving"),
        pytest.param(["ready and terminating"], [], ["10.0.0.1"], id="terminating wins over ready"),
        pytest.param([], [], [], id="no pods"),
    ],
)
def test_states(states: list[str], ready: list[str], draining: list[str]) -> None:
    found = endpoints_by_revision([endpoints("r1", states)])["r1"].http
    assert [endpoint.address for endpoint in found.ready] == ready
    assert [endpoint.address for endpoint in found.draining] == draining


@pytest.mark.parametrize(
    ("states", "usable"),
    [
        (["ready", "draining"], ["10.0.0.1"]),
        (["starting", "draining"], ["10.0.0.2"]),
        (["starting", "dying"], []),
    ],
    ids=["ready ones only", "draining ones if nothing is ready", "nobody"],
)
def test_usable(states: list[str], usable: list[str]) -> None:
    found = endpoints_by_revision([endpoints("r1", states)])["r1"].http
    assert [endpoint.address for endpoint in found.usable()] == usable


@pytest.mark.parametrize(
    ("slices", "http", "grpc"),
    [
        pytest.param([endpoints("r1", ["ready"])], [("10.0.0.1", 8080)], None, id="http only"),
        pytest.param(
            [endpoints("r1", ["ready"], ports={"http": 8080, "grpc": 9000})],
            [("10.0.0.1", 8080)],
            [("10.0.0.1", 9000)],
            id="both",
        ),
        pytest.param(
            [endpoints("r1", ["ready"]), endpoints("r1", ["ready"], first=2)],
            [("10.0.0.1", 8080), ("10.0.0.2", 8080)],
            None,
            id="two slices",
        ),
        pytest.param(
            [endpoints("r1", ["draining"]), endpoints("r1", ["ready"])],
            [("10.0.0.1", 8080)],
            None,
            id="one pod in two slices counts once",
        ),
        pytest.param(
            [endpoints("r1", ["ready"], family="IPv6"), endpoints("r1", ["ready"])],
            [("10.0.0.1", 8080)],
            None,
            id="dual stack: IPv4",
        ),
        pytest.param(
            [endpoints("r1", ["ready"], family="IPv6"), endpoints("r1", [])],
            [("fd00::1", 8080)],
            None,
            id="dual stack: IPv6 if only that has pods",
        ),
        pytest.param([endpoints("r1", ["ready"], ports={"metrics": 1})], [], None, id="no port named http"),
    ],
)
def test_ports_and_families(
    slices: list[Any], http: list[tuple[str, int]], grpc: list[tuple[str, int]] | None
) -> None:
    found = endpoints_by_revision(slices)["r1"]
    assert list(found.http.usable()) == http
    assert (None if found.grpc is None else list(found.grpc.usable())) == grpc


def test_slices_of_other_kinds_are_no_revision() -> None:
    unlabelled = {**endpoints("r1", ["ready"]), "metadata": {}}
    by_name = {**endpoints("r2", ["ready"]), "addressType": "FQDN"}
    assert endpoints_by_revision([unlabelled, by_name]) == {}
