"""Routes from objects: shares, holding back, and what a bad service may not do to others."""

from collections.abc import Mapping
from typing import Any

import pytest
from tailbound.traffic.model import NoBackend, Projected, Route, ServiceKey
from tailbound.traffic.projection import Projector

from tests.unit.traffic.traffic_objects import endpoints, service

CHURN, FRAUD = ServiceKey("risk", "churn"), ServiceKey("risk", "fraud")


class World:
    """A projector and the slices that it looks at."""

    def __init__(self, *former: Route) -> None:
        self.slices: dict[ServiceKey, list[Any]] = {}
        self.projector = Projector("cluster.local", lambda key: self.slices.get(key, ()), former)

    def see(self, *objects: Any) -> Mapping[ServiceKey, Projected | None]:
        for obj in objects:
            self.projector.service_changed(obj)
        return self.projector.project()

    def pods(self, key: ServiceKey, *slices: Any) -> Mapping[ServiceKey, Projected | None]:
        self.slices[key] = list(slices)
        self.projector.slices_changed(key)
        return self.projector.project()


def route(changes: Mapping[ServiceKey, Projected | None], key: ServiceKey = CHURN) -> Route:
    projected = changes[key]
    assert projected is not None
    return projected.route


def shares(found: Route) -> dict[str, int]:
    return {backend.revision: backend.share for backend in found.backends}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param({"r1": ["ready"], "r2": ["ready"]}, {"r1": 95, "r2": 5}, id="all-ready"),
        pytest.param({"r1": ["ready"], "r2": ["starting"]}, {"r1": 95, "r2": 0}, id="the-small-one-is-not"),
        pytest.param({"r1": ["starting"], "r2": ["ready"]}, {"r1": 0, "r2": 5}, id="the-big-one-is-not"),
        pytest.param({"r1": ["draining"], "r2": ["ready"]}, {"r1": 0, "r2": 5}, id="ready-before-draining"),
        pytest.param({"r1": ["draining"], "r2": ["starting"]}, {"r1": 95, "r2": 0}, id="only-draining-ones"),
        pytest.param({"r1": ["starting"], "r2": []}, {"r1": 95, "r2": 5}, id="nobody-503-follows"),
        pytest.param({}, {"r1": 95, "r2": 5}, id="no-slices-yet"),
    ],
)
def test_shares(states: Mapping[str, list[str]], expected: dict[str, int]) -> None:
    world = World()
    world.slices[CHURN] = [endpoints(revision, of) for revision, of in states.items()]
    assert shares(route(world.see(service("churn", {"r1": 95, "r2": 5})))) == expected


def test_a_share_comes_back_with_its_pods() -> None:
    world = World()
    world.see(service("churn", {"r1": 95, "r2": 5}))
    assert shares(route(world.pods(CHURN, endpoints("r1", ["ready"])))) == {"r1": 95, "r2": 0}
    both = endpoints("r1", ["ready"]), endpoints("r2", ["ready"])
    assert shares(route(world.pods(CHURN, *both))) == {"r1": 95, "r2": 5}


def test_a_revision_of_weight_zero_is_kept_warm() -> None:
    world = World()
    world.slices[CHURN] = [endpoints("r1", ["ready"]), endpoints("r2", ["ready"])]
    found = route(world.see(service("churn", {"r1": 100, "r2": 0})))
    assert shares(found) == {"r1": 100, "r2": 0}
    assert all(backend.http for backend in found.backends)


class TestHolding:
    """New weights that arrive before the pods they were decided on."""

    def switched(self, *slices: Any) -> tuple[World, Route]:
        world = World()
        world.slices[CHURN] = [endpoints("r1", ["ready"])]
        world.see(service("churn", {"r1": 100}))
        world.slices[CHURN] = list(slices)
        return world, route(world.see(service("churn", {"r2": 100}, generation=2, traffic_generation=2)))

    def test_wait_for_the_first_ready_pod(self) -> None:
        world, held = self.switched(endpoints("r1", ["ready"]))
        assert (shares(held), held.traffic_generation) == ({"r1": 100}, 1)
        moved = route(world.pods(CHURN, endpoints("r1", ["ready"]), endpoints("r2", ["ready"])))
        assert (shares(moved), moved.traffic_generation) == ({"r2": 100}, 2)

    def test_do_not_wait_with_the_rest_of_the_service(self) -> None:
        _, held = self.switched(endpoints("r1", ["ready"]))
        assert held.generation == 2

    def test_do_not_wait_if_the_former_revision_is_gone_too(self) -> None:
        _, moved = self.switched()
        assert (shares(moved), moved.traffic_generation) == ({"r2": 100}, 2)

    def test_do_not_go_back_once_switched(self) -> None:
        world, _ = self.switched(endpoints("r1", ["ready"]), endpoints("r2", ["ready"]))
        later = route(world.pods(CHURN, endpoints("r1", ["ready"]), endpoints("r2", ["starting"])))
        assert (shares(later), later.traffic_generation) == ({"r2": 100}, 2)


class TestLostTraffic:
    """status.traffic is gone: a restored backup, or somebody's hand. The operator will write it again."""

    def lost(self, **object_: Any) -> tuple[World, Route]:
        world = World()
        world.slices[CHURN] = [endpoints("r1", ["ready"]), endpoints("r2", ["ready"])]
        world.see(service("churn", {"r1": 95, "r2": 5}, traffic_generation=7))
        return world, route(world.see(service("churn", **object_)))

    def test_keeps_the_former_share(self) -> None:
        _, held = self.lost(generation=2)
        assert (shares(held), held.traffic_generation) == ({"r1": 95, "r2": 5}, 7)
        assert (held.unavailable, held.generation) == (None, 2)

    def test_keeps_its_endpoints_up_to_date(self) -> None:
        world, _ = self.lost()
        assert shares(route(world.pods(CHURN, endpoints("r1", ["ready"])))) == {"r1": 95, "r2": 0}

    def test_keeps_the_share_of_a_former_life(self) -> None:
        _, held = self.lost()
        world = World(held)
        world.slices[CHURN] = [endpoints("r1", ["ready"])]
        assert shares(route(world.see(service("churn")))) == {"r1": 95, "r2": 0}

    @pytest.mark.parametrize("generation", [1, 7, 8])
    def test_ends_with_the_next_share(self, generation: int) -> None:
        world, _ = self.lost()
        found = route(world.see(service("churn", {"r2": 100}, traffic_generation=generation)))
        assert (shares(found), found.traffic_generation) == ({"r2": 100}, generation)

    def test_is_not_for_a_service_that_was_made_anew(self) -> None:
        _, found = self.lost(created="2026-02-01T00:00:00Z")
        assert (found.unavailable, found.backends) == (NoBackend.NOT_STARTED, ())


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (service("churn"), NoBackend.NOT_STARTED),
        (service("churn", {}), NoBackend.NOT_STARTED),
        (service("churn", stopped=True), NoBackend.STOPPED),
        (service("churn", {"r1": 100}, stopped=True), None),
    ],
    ids=["no traffic yet", "no backends", "stopped", "stopping: still serving what it was assigned"],
)
def test_why_nothing_serves(obj: Any, why: NoBackend | None) -> None:
    assert route(World().see(obj)).unavailable is why


class TestRejected:
    """A service whose newest state cannot be used."""

    BAD = service("churn", {"r1": 90}, generation=2, traffic_generation=2)

    def test_keeps_its_last_good_route_with_current_pods(self) -> None:
        world = World()
        world.slices[CHURN] = [endpoints("r1", ["ready"])]
        good = route(world.see(service("churn", {"r1": 100})))
        changes = world.see(self.BAD)
        assert route(changes) == good
        projected = changes[CHURN]
        assert projected is not None
        assert projected.rejection is not None
        assert (projected.rejection.generation, projected.rejection.traffic_generation) == (2, 2)
        moved = route(world.pods(CHURN, endpoints("r1", ["ready"], first=9)))
        assert [endpoint.address for endpoint in moved.backends[0].http] == ["10.0.0.9"]

    def test_keeps_the_route_of_a_former_life(self) -> None:
        world = World()
        world.slices[CHURN] = [endpoints("r1", ["ready"])]
        good = route(world.see(service("churn", {"r1": 100}, hosts=["a.example.com"])))
        reborn = World(good)
        reborn.slices = world.slices
        younger = service("fraud", created="2026-02-01T00:00:00Z", hosts=["a.example.com"])
        changes = reborn.see(self.BAD, younger)
        assert route(changes) == good
        assert route(changes, FRAUD).denied_hosts == ("a.example.com",)

    def test_without_a_good_one_its_names_still_answer(self) -> None:
        changes = World().see(self.BAD)
        assert route(changes).unavailable is NoBackend.REJECTED
        assert "churn.risk.svc" in route(changes).hosts

    def test_does_not_touch_its_neighbours(self) -> None:
        world = World()
        world.see(service("churn", {"r1": 100}), service("fraud", {"f1": 100}))
        assert world.see(self.BAD).keys() == {CHURN}

    def test_recovers(self) -> None:
        world = World()
        world.see(self.BAD)
        changes = world.see(service("churn", {"r1": 100}, generation=3, traffic_generation=3))
        projected = changes[CHURN]
        assert projected is not None
        assert (projected.rejection, projected.route.traffic_generation) == (None, 3)


def test_only_what_changed_is_projected() -> None:
    world = World()
    world.see(service("churn", {"r1": 100}), service("fraud", {"f1": 100}))
    assert world.projector.project() == {}
    assert world.pods(CHURN, endpoints("r1", ["ready"])).keys() == {CHURN}


def test_a_host_that_becomes_free_goes_to_no_service_that_the_operator_denied_it() -> None:
    world = World()
    denied = service("fraud", hosts=["a.example.com"], created="2026-02-01T00:00:00Z")
    denied["status"]["hosts"] = [{"host": "a.example.com", "state": "Taken", "owner": "risk/churn"}]
    world.see(service("churn", hosts=["a.example.com"]), denied)
    world.projector.service_gone(CHURN)
    changes = world.projector.project()
    assert changes[CHURN] is None
    world.see(denied)
    accepted = service("fraud", hosts=["a.example.com"], created="2026-02-01T00:00:00Z")
    for obj, answers in ((denied, False), (accepted, True)):
        found = route(world.see(obj), FRAUD)
        assert ("a.example.com" in found.hosts, found.denied_hosts == ()) == (answers, answers)


@pytest.mark.parametrize(
    ("rollout", "canary", "backend"),
    [
        pytest.param({"promotion": "manual"}, {"revision": "r2"}, "r2", id="a-candidate"),
        pytest.param({"promotion": "manual"}, None, None, id="no-candidate"),
        pytest.param({"promotion": "manual"}, {"revision": "r1"}, None, id="it-has-taken-over"),
        pytest.param({"promotion": "manual"}, {"revision": "R 2"}, None, id="its-name-is-no-name"),
        pytest.param({"promotion": "manual"}, "broken", None, id="somebody-broke-the-status"),
        pytest.param({}, {"revision": "r2"}, "", id="promoted-by-itself"),
        pytest.param({"strategy": "canary", "promotion": "manual"}, {"revision": "r2"}, "", id="a-canary"),
        pytest.param("broken", {"revision": "r2"}, "", id="somebody-broke-the-spec"),
    ],
)
def test_previews(rollout: Any, canary: Any, backend: str | None) -> None:
    """An empty name stands for no preview at all."""
    world = World()
    world.slices[CHURN] = [endpoints("r1", ["ready"]), endpoints("r2", ["ready"])]
    seen = service("churn", {"r1": 100}, rollout=rollout)
    seen["status"]["canary"] = canary
    found = route(world.see(seen))
    assert shares(found) == {"r1": 100}
    if backend == "":
        assert found.preview is None
        return
    assert found.preview is not None
    assert found.preview.hosts[0] == "churn-preview.risk"
    assert (found.preview.backend.revision if found.preview.backend else None) == backend


def test_a_preview_outlives_the_sidecar() -> None:
    world = World()
    world.slices[CHURN] = [endpoints("r1", ["ready"])]
    before = route(world.see(service("churn", {"r1": 100}, rollout={"promotion": "manual"})))
    again = World(before)
    again.slices[CHURN] = world.slices[CHURN]
    broken = {**service("churn", {"r1": 100}), "spec": {"timeout": "soon"}}
    assert route(again.see(broken)).preview == before.preview
