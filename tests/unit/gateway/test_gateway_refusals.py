"""What Envoy refuses: the culprit alone is kept back, and what served before goes on."""

import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from tailbound.gateway.configuration import Configuration
from tailbound.traffic.model import ServiceKey

from tests.unit.gateway.delta_routes import (
    POISON,
    POISON_SECONDS,
    applied,
    expect_equal,
    refuses_poison,
    route,
    watch_preview,
)
from tests.unit.gateway.fake_envoy import ENDPOINTS, ROUTE, SCOPE, FakeEnvoy


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
            ("", None, b"has no new revision now"),
            ("churn-r2", None, b"has no new revision now"),
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
