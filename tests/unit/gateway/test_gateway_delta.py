"""The delta ADS conversation: order, acknowledgement, refusal, reconnection."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.scoped_route_pb2 import ScopedRouteConfiguration
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.api.traffic import AppliedRoute
from tailbound.gateway.configuration import Configuration
from tailbound.gateway.resources import ResourceType
from tailbound.traffic.model import Endpoint, Preview, Route, RouteBackend, ServiceKey

from tests.unit.gateway.fake_envoy import CLUSTER, ENDPOINTS, ROUTE, SCOPE, FakeEnvoy

POISON = 9999  # a port that Envoy refuses, in these tests
POISON_SECONDS = 13  # a timeout that Envoy refuses


def route(
    name: str,
    weights: dict[str, int] | None = None,
    *,
    hosts: tuple[str, ...] = (),
    generation: int = 1,
    traffic_generation: int = 1,
    port: int = 8080,
    seconds: int = 2,
    candidate: str | None = "",
) -> Route:
    """Without a preview unless a candidate is named, or that there is none."""
    preview = None
    if candidate != "":
        backend = (
            RouteBackend(candidate, 100, 100, (Endpoint("10.0.0.2", port),), None) if candidate else None
        )
        preview = Preview((f"{name}-preview.risk",), backend)
    return Route(
        service=ServiceKey("risk", name),
        created=datetime(2026, 1, 1, tzinfo=UTC),
        generation=generation,
        traffic_generation=traffic_generation,
        hosts=(f"{name}.risk", *hosts, *(preview.hosts if preview is not None else ())),
        denied_hosts=(),
        backends=tuple(
            RouteBackend(revision, weight, weight, (Endpoint("10.0.0.1", port),), None)
            for revision, weight in (weights or {f"{name}-r1": 100}).items()
        ),
        unavailable=None,
        timeout=timedelta(seconds=seconds),
        latency_target=None,
        preview=preview,
    )


def refuses_poison(type_: ResourceType, name: str, body: bytes) -> bool:
    if type_ is ENDPOINTS:
        return b"\x18\x8f\x4e" in body  # port_value 9999
    if type_ is ROUTE and name.endswith("/preview") and b"r9" in body:
        return True
    return type_ is ROUTE and b"13s" in body


def applied(envoy: FakeEnvoy, name: str) -> tuple[int, int] | None:
    found: AppliedRoute | None = envoy.session.applied.get(ServiceKey("risk", name))
    return None if found is None else (found.generation, found.traffic_generation)


def watch_preview(envoy: FakeEnvoy) -> set[str]:
    """Where the name of churn's preview leads, whenever Envoy has it."""
    seen: set[str] = set()
    take = envoy.take

    def spy(response: DeltaDiscoveryResponse) -> None:
        take(response)
        if "churn-preview.risk" in envoy.names(SCOPE):
            scope = ScopedRouteConfiguration.FromString(envoy.has[SCOPE]["churn-preview.risk"][1])
            seen.add(scope.route_configuration_name)

    envoy.take = spy  # type: ignore[method-assign]
    return seen


def expect_equal(envoy: FakeEnvoy) -> None:
    """Envoy has what the configuration says, and has never been in a bad state on the way."""
    wanted = {
        (type_, name): resource.version
        for type_ in ResourceType
        for name in envoy.configuration.names(type_)
        if (resource := envoy.configuration.get(type_, name)) is not None
    }
    assert envoy.versions() == wanted
    assert envoy.violations == []


def test_nothing_is_said_before_the_configuration_is_complete() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.settle()
    assert envoy.responses == 0
    assert not envoy.session.synced


def test_an_empty_configuration_is_an_answer() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update()
    assert envoy.session.synced


def test_first_configuration() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn"), route("fraud"))
    expect_equal(envoy)
    assert envoy.session.synced
    assert applied(envoy, "churn") == (1, 1)


def test_the_first_scopes_come_all_at_once() -> None:
    envoy = FakeEnvoy(Configuration())
    seen: list[set[str]] = []
    take = envoy.take

    def spy(response: object) -> None:
        take(response)
        seen.append(envoy.names(SCOPE))

    envoy.take = spy  # type: ignore[method-assign]
    envoy.update(*(route(f"s{number}") for number in range(20)))
    assert {len(names) for names in seen} == {0, 20}


@pytest.mark.parametrize("restarted", [None, False, True])
def test_the_name_of_a_preview_leads_to_its_own_route_only(restarted: bool | None) -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn"), route("fraud"))
    watched = watch_preview(envoy)
    envoy.announce(route("churn", candidate="churn-r2"))
    if restarted is not None:
        envoy.connect(restarted=restarted)
    envoy.settle()
    expect_equal(envoy)
    assert watched == {"risk/churn/preview"}
    assert envoy.session.synced


def test_a_change_is_not_applied_before_it_is_acknowledged() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn"))
    envoy.announce(route("churn", seconds=3, traffic_generation=2))
    assert applied(envoy, "churn") == (1, 1)
    envoy.settle()
    assert applied(envoy, "churn") == (1, 2)


def test_an_unchanged_projection_counts_as_acknowledged_at_once() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn"))
    responses = envoy.responses
    envoy.announce(route("churn", generation=5, traffic_generation=4))
    assert applied(envoy, "churn") == (5, 4)
    envoy.settle()
    assert envoy.responses == responses


def test_a_new_revision_replaces_the_old_one_in_order() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn", {"r1": 100}))
    envoy.update(route("churn", {"r1": 95, "r2": 5}))
    envoy.update(route("churn", {"r2": 100}))
    expect_equal(envoy)
    assert envoy.names(CLUSTER) == {"risk/churn/r2/http"}


def test_a_deleted_service_leaves_nothing() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn"), route("fraud"))
    envoy.update(gone=[ServiceKey("risk", "churn")])
    expect_equal(envoy)
    assert envoy.names(ROUTE) == {"risk/fraud"}
    assert applied(envoy, "churn") is None


def test_a_host_changes_hands() -> None:
    envoy = FakeEnvoy(Configuration())
    envoy.update(route("churn", hosts=("a.example.com",)), route("fraud"))
    envoy.update(route("churn"), route("fraud", hosts=("a.example.com",)))
    expect_equal(envoy)
    assert "a.example.com" in envoy.names(SCOPE)


class TestRefusal:
    """One bad service among many."""

    @pytest.mark.parametrize(
        "bad", [{"port": POISON}, {"seconds": POISON_SECONDS}], ids=["endpoints", "route"]
    )
    @pytest.mark.parametrize("neighbours", [0, 1, 2, 30])
    def test_the_culprit_alone_is_quarantined(self, bad: dict[str, int], neighbours: int) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        others = [f"s{number}" for number in range(neighbours)]
        envoy.update(route("churn"), *(route(name) for name in others))
        envoy.update(
            route("churn", generation=2, **bad),  # type: ignore[arg-type]
            *(route(name, generation=2, seconds=5) for name in others),
        )
        expect_equal(envoy)
        assert {refusal.service for refusal in envoy.refusals} == {ServiceKey("risk", "churn")}
        assert "bad: " in str(envoy.configuration.refusal(ServiceKey("risk", "churn")))
        assert [applied(envoy, name) for name in others] == [(2, 1)] * neighbours
        assert applied(envoy, "churn") == (1, 1)
        assert envoy.configuration.refusal(ServiceKey("risk", "s0")) is None

    def test_several_culprits_in_one_response(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(*(route(f"s{n}", seconds=POISON_SECONDS if n % 3 == 0 else 2) for n in range(20)))
        expect_equal(envoy)
        assert {refusal.service.name for refusal in envoy.refusals if refusal.service} == {
            f"s{n}" for n in range(0, 20, 3)
        }
        assert envoy.session.synced

    def test_without_a_good_state_a_stand_in_answers(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn", port=POISON), route("fraud"))
        expect_equal(envoy)
        assert "churn.risk" in envoy.names(SCOPE)
        assert b"is refused" in envoy.has[ROUTE]["risk/churn"][1]
        assert applied(envoy, "churn") is None

    @pytest.mark.parametrize(
        ("before", "newest", "answer"),
        [
            ("", "churn-r2", b"so that its new revision cannot be reached"),
            (None, "churn-r2", b"so that its new revision cannot be reached"),
            ("churn-r3", "churn-r2", b"so that its new revision cannot be reached"),
            ("churn-r2", "churn-r2", b"risk/churn/churn-r2/http"),
            ("", None, b"has no new revision on its way"),
            ("churn-r2", None, b"has no new revision on its way"),
        ],
    )
    def test_a_preview_in_what_is_refused_is_never_another_revision(
        self, before: str | None, newest: str | None, answer: bytes
    ) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn", candidate=before))
        watched = watch_preview(envoy)
        for generation in (2, 3):
            envoy.update(route("churn", candidate=newest, seconds=POISON_SECONDS, generation=generation))
            expect_equal(envoy)
            assert "churn-preview.risk" in envoy.names(SCOPE)
            assert answer in envoy.has[ROUTE]["risk/churn/preview"][1]
            assert b"risk/churn/churn-r1/http" in envoy.has[ROUTE]["risk/churn"][1]
            assert not any(b"churn-r3" in body for _, body in envoy.has[ROUTE].values())
            assert applied(envoy, "churn") == (1, 1)
        assert watched == {"risk/churn/preview"}
        envoy.update(route("churn", candidate=newest, seconds=3, generation=4))
        expect_equal(envoy)
        assert not any(b"is refused" in body for _, body in envoy.has[ROUTE].values())
        assert applied(envoy, "churn") == (4, 1)

    @pytest.mark.parametrize("served", [True, False], ids=["served-before", "new"])
    @pytest.mark.parametrize("offered", ["candidate", "answer"])
    def test_a_preview_that_is_refused_takes_nothing_away(self, served: bool, offered: str) -> None:
        """The candidate's route is refused, or whatever the preview is answered with."""
        envoy = FakeEnvoy(
            Configuration(),
            lambda type_, name, body: (
                type_ is ROUTE and name.endswith("/preview") and (offered == "answer" or b"r2" in body)
            ),
        )
        if served:
            envoy.update(route("churn"))
        envoy.update(route("churn", candidate="churn-r2", generation=2, traffic_generation=2))
        expect_equal(envoy)
        assert b"risk/churn/churn-r1/http" in envoy.has[ROUTE]["risk/churn"][1]
        assert applied(envoy, "churn") == (2, 2)
        assert "bad: " in str(envoy.configuration.refusal(ServiceKey("risk", "churn")))
        assert ("churn-preview.risk" in envoy.names(SCOPE)) is (offered == "candidate")

    def test_pods_are_followed_while_the_newest_state_is_refused(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn"))
        for port in (8081, 8082):
            envoy.update(route("churn", seconds=POISON_SECONDS, port=port, generation=2))
            expect_equal(envoy)
            assignment = ClusterLoadAssignment.FromString(envoy.has[ENDPOINTS]["risk/churn/churn-r1/http"][1])
            (pod,) = assignment.endpoints[0].lb_endpoints
            assert pod.endpoint.address.socket_address.port_value == port
            assert applied(envoy, "churn") == (1, 1)

    def test_a_preview_whose_candidate_is_refused_may_go(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn"))
        envoy.update(route("churn", candidate="churn-r2", seconds=POISON_SECONDS))
        envoy.update(route("churn", seconds=POISON_SECONDS))
        expect_equal(envoy)
        assert envoy.names(SCOPE) == {"churn.risk"}

    def test_the_same_content_is_not_offered_again(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn", seconds=POISON_SECONDS))
        refusals = len(envoy.refusals)
        envoy.update(route("churn", seconds=POISON_SECONDS, generation=2))
        envoy.connect(restarted=True)
        envoy.settle()
        expect_equal(envoy)
        assert len(envoy.refusals) == refusals

    def test_a_mended_service_recovers(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn", seconds=POISON_SECONDS))
        envoy.update(route("churn", generation=2))
        expect_equal(envoy)
        assert applied(envoy, "churn") == (2, 1)
        assert envoy.configuration.refusal(ServiceKey("risk", "churn")) is None

    def test_a_restarted_envoy_gets_the_last_good_state(self) -> None:
        envoy = FakeEnvoy(Configuration(), refuses_poison)
        envoy.update(route("churn"))
        good = envoy.versions()
        envoy.update(route("churn", seconds=POISON_SECONDS, generation=2))
        envoy.connect(restarted=True)
        envoy.settle()
        assert envoy.versions() == good
        assert applied(envoy, "churn") == (1, 1)


class TestReconnection:
    """A broken stream, and a restarted Envoy."""

    def test_after_a_break_only_differences_are_sent(self) -> None:
        envoy = FakeEnvoy(Configuration())
        envoy.update(route("churn"), route("fraud"))
        sent: list[str] = []
        take = envoy.take

        def spy(response: object) -> None:
            sent.extend(item.name for item in response.resources)  # type: ignore[attr-defined]
            take(response)

        envoy.take = spy  # type: ignore[method-assign]
        envoy.configuration.update({})
        envoy.connect()
        envoy.announce(route("churn", seconds=7))
        envoy.settle()
        assert sent == ["risk/churn"]
        assert envoy.session.synced
        assert applied(envoy, "fraud") == (1, 1)
        expect_equal(envoy)

    def test_what_was_deleted_during_a_break_goes(self) -> None:
        envoy = FakeEnvoy(Configuration())
        envoy.update(route("churn"), route("fraud"))
        fresh = Configuration()
        envoy.configuration = fresh
        envoy.connect()
        envoy.update(route("fraud"))
        expect_equal(envoy)
        assert envoy.names(CLUSTER) == {"risk/fraud/fraud-r1/http"}

    def test_a_restarted_envoy_gets_everything(self) -> None:
        envoy = FakeEnvoy(Configuration())
        envoy.update(route("churn"), route("fraud"))
        envoy.connect(restarted=True)
        assert applied(envoy, "churn") is None
        envoy.settle()
        expect_equal(envoy)
        assert applied(envoy, "churn") == (1, 1)

    def test_a_restarted_sidecar_says_nothing_until_it_knows_everything(self) -> None:
        envoy = FakeEnvoy(Configuration())
        envoy.update(route("churn"))
        held = envoy.versions()
        envoy.configuration = Configuration()
        envoy.connect()
        envoy.settle()
        assert envoy.versions() == held


NAMES = st.sampled_from(["churn", "fraud", "spam"])
ROUTES = st.builds(
    route,
    NAMES,
    st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 9), min_size=1),
    hosts=st.sampled_from([(), ("a.example.com",)]),
    port=st.sampled_from([8080, 8081, POISON]),
    seconds=st.sampled_from([2, 3, POISON_SECONDS]),
    candidate=st.sampled_from(["", None, "r2", "r9"]),
)
STEPS = st.lists(
    st.one_of(
        ROUTES,
        st.builds(lambda name: ServiceKey("risk", name), NAMES),
        st.sampled_from(["break", "restart", "settle"]),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_any_history_ends_equal_and_is_never_in_a_bad_state(steps: list[Route | ServiceKey | str]) -> None:
    envoy = FakeEnvoy(Configuration(), refuses_poison)
    envoy.update()
    owner: str | None = None
    served: set[ServiceKey] = set()
    for step in steps:
        if isinstance(step, Route):
            wants = "a.example.com" in step.hosts and owner in (None, step.service.name)
            if owner == step.service.name and not wants:
                owner = None
            owner = step.service.name if wants else owner
            hosts = [host for host in step.hosts if wants or host != "a.example.com"]
            envoy.announce(replace(step, hosts=tuple(hosts)))
        elif isinstance(step, ServiceKey):
            owner = None if owner == step.name else owner
            envoy.announce(gone=[step])
            served.discard(step)
        elif step == "settle":
            envoy.settle()
        else:
            envoy.connect(restarted=step == "restart")
        served |= envoy.session.applied.keys()
        stand_ins = {
            service for service in served if b"is refused" in envoy.has[ROUTE].get(str(service), ("", b""))[1]
        }
        assert not stand_ins, "what serves is never taken away"
    envoy.settle()
    expect_equal(envoy)
    for service in envoy.configuration.services():
        is_bad = envoy.configuration.refusal(service) is not None
        assert is_bad or service in envoy.session.applied
