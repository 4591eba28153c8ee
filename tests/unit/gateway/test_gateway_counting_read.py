"""Envoy's list of counters, read back; which of them are asked for."""

import re

import pytest
from tailbound.api.traffic import RequestClasses
from tailbound.gateway.counting import MOST_NAMED, counters_pattern, name_metric, read_counters
from tailbound.traffic.model import ServiceKey

CHURN, FRAUD = ServiceKey("risk", "churn"), ServiceKey("risk", "fraud")


def line(service: str, revision: str, class_: str, count: int, namespace: str = "risk") -> str:
    return (
        f"tailbound.requests.namespace.{namespace}.service.{service}"
        f".revision.{revision}.class.{class_}: {count}\n"
    )


def test_counters_are_sorted_out_by_service_and_revision() -> None:
    text = (
        line("churn", "churn-r1-a", "good", 5)
        + line("churn", "churn-r1-a", "timed_out", 3)
        + line("churn", "churn-r2-b", "slow", 1)
        + line("fraud", "fraud-r1-c", "abandoned", 2)
    )
    assert read_counters(text) == {
        CHURN: {"churn-r1-a": RequestClasses(good=5, timed_out=3), "churn-r2-b": RequestClasses(slow=1)},
        FRAUD: {"fraud-r1-c": RequestClasses(abandoned=2)},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "server.live: 1\n",
        line("churn", "churn-r1-a", "of_a_newer_release", 1),
        line("churn", "churn-r1-a", "good", 1).replace(": 1", ": No recorded values"),
        line("churn", "churn-r1-a", "good", 1).replace("tailbound.", "other.tailbound.", 1),
    ],
    ids=["nothing", "another", "a class unheard of", "no number", "not at the start"],
)
def test_what_is_not_ours_is_passed_over(text: str) -> None:
    assert read_counters(text) == {}


@pytest.mark.parametrize(
    ("namespace", "service", "matches"),
    [
        ("risk", "churn", True),
        ("risk", "fraud", True),
        ("risk", "churn-2", False),
        ("risk", "a-churn", False),
        ("evil", "churn", False),
    ],
)
def test_only_the_services_asked_for_match(namespace: str, service: str, matches: bool) -> None:
    name = line(service, "r1", "good", 1, namespace)
    assert bool(re.search(counters_pattern([FRAUD, CHURN]), name)) == matches


def test_many_services_are_asked_for_in_one_short_expression() -> None:
    many = [ServiceKey("n" * 63, f"{number:03}" + "s" * 60) for number in range(MOST_NAMED + 1)]
    pattern = counters_pattern(many)
    assert len(pattern) < 100
    assert re.search(pattern, line("churn", "r1", "good", 1))
    assert not re.search(pattern, "cluster.risk/churn/r1/http.upstream_rq_total: 1")
    assert len(counters_pattern(many[:MOST_NAMED])) < 16_384


def test_the_metric_has_its_own_name_outside_of_envoy() -> None:
    ours = '# TYPE envoy_tailbound_requests counter\nenvoy_tailbound_requests{class="good"} 1\n'
    theirs = "envoy_server_live{} 1\n"
    named = '# TYPE tailbound_requests_total counter\ntailbound_requests_total{class="good"} 1\n'
    told = name_metric(ours + theirs)
    assert told.startswith(named)
    assert told.endswith(theirs)
    assert name_metric(theirs) == theirs


def test_classes_that_were_never_counted_are_zero_for_each_revision_in_one_block() -> None:
    def sample(revision: str, name: str, number: int) -> str:
        return f'tailbound_requests_total{{namespace="risk",class="{name}",revision="{revision}"}} {number}\n'

    counted = sample("r1", "good", 5) + sample("r1", "failed", 2) + sample("r2", "slow", 1)
    told = name_metric(f"envoy_other 1\n{counted}envoy_more 2\n")
    assert told.startswith(f"envoy_other 1\n{counted}")
    assert told.endswith("envoy_more 2\n")
    zeros = [("r1", name) for name in ("slow", "timed_out", "shed", "abandoned", "other")]
    zeros += [("r2", name) for name in ("good", "timed_out", "shed", "failed", "abandoned", "other")]
    added = told.removeprefix(f"envoy_other 1\n{counted}").removesuffix("envoy_more 2\n")
    assert sorted(added.splitlines(keepends=True)) == sorted(sample(*each, 0) for each in zeros)
