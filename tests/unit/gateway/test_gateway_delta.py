"""The delta ADS conversation: order, acknowledgement, refusal, reconnection."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound.gateway.configuration import Configuration
from tailbound.traffic.model import Route, ServiceKey

from tests.unit.gateway.delta_routes import (
    POISON,
    POISON_SECONDS,
    applied,
    expect_equal,
    refuses_poison,
    route,
    watch_preview,
)
from tests.unit.gateway.fake_envoy import CLUSTER, ROUTE, SCOPE, FakeEnvoy


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
