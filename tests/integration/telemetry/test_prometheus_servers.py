"""Both generations of Prometheus, scraping for real: no request is made up, and none is lost."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from tailbound.api.analysis_metric import AnalysisMetric
from tailbound.controller.signals import QUERIES, SIGNALS, history_of
from tailbound.judge import scrapes
from tailbound.judge.counters import Classes, Reading
from tailbound.judge.evidence import Tally
from tailbound.judge.metric_evidence import Events, Watch, taken_in
from tailbound.judge.metrics import Metric, metric_of
from tailbound.judge.polls import Counted, Readings, Round, baseline, poll
from tailbound.objects.unknown import Unknown
from tailbound.telemetry.prometheus import Prometheus, Series

from tests.integration.telemetry.prometheus_servers import Pods, program, running, serving

SERVICE = ("risk", "churn")
STARTED = 1_764_300_000.0
LONGEST_SECONDS = 90
T = TypeVar("T")


@dataclass
class Server:
    """One Prometheus, and the gateways that it scrapes."""

    generation: str
    client: Prometheus
    pods: Pods

    def ask(self, expression: str) -> tuple[Series, ...] | Unknown:
        """The answer to a query."""
        return asyncio.run(self.client.query(expression))

    def until(self, what: str, probe: Callable[[], T | None]) -> T:
        """What the probe finds, once it finds anything."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            found = probe()
            if found is not None:
                return found
            time.sleep(0.2)
        raise AssertionError(f"{what}: not so within {LONGEST_SECONDS} s")

    def readings(self) -> dict[str, Reading | Unknown]:
        """Counters of every gateway."""
        scraped = self.ask(scrapes.expression([SERVICE]))
        assert not isinstance(scraped, Unknown), scraped
        return scrapes.readings(scraped, SERVICE, self.pods.texts)


@pytest.fixture(scope="module", params=["2", "3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory, pods = tmp_path_factory.mktemp(f"prometheus-{request.param}"), Pods()
    with serving(pods), running(program(request.param, directory), directory, pods) as url:
        client = Prometheus(url, timeout_seconds=30.0025)  # Prometheus reads whole numbers only
        yield Server(request.param, client, pods)
        client.close()


@dataclass
class Gateway:
    """One gateway, and what its /metrics says."""

    server: Server
    name: str
    start: float = STARTED
    counted: dict[tuple[str, str], int] = field(default_factory=dict)
    """Requests by revision and class."""

    def says(self, **counted: int) -> None:
        """Set what it counts from now on, by revision and class: canary_good=3."""
        self.counted = {(name.split("_", 1)[0], name.split("_", 1)[1]): n for name, n in counted.items()}
        lines = [f"tailbound_gateway_envoy_start_time_seconds {self.start}"]
        lines += [
            f'tailbound_requests_total{{namespace="risk",service="churn",revision="{revision}",'
            f'class="{class_}"}} {number}'
            for (revision, class_), number in self.counted.items()
        ]
        self.server.pods.texts[self.name] = "\n".join(lines) + "\n"

    def shows(self) -> bool | None:
        """Whether Prometheus has scraped just that."""
        reading = self.server.readings()[self.name]
        if isinstance(reading, Unknown):
            return None
        classes: dict[str, Classes] = {}
        for (revision, class_), number in self.counted.items():
            classes[revision] = classes.get(revision, Classes()) + Classes(**{class_: number})
        started = datetime.fromtimestamp(self.start, UTC).isoformat()
        # A series that has ended is still in the window, with nothing counted at the newest scrape.
        counted = {revision: held for revision, held in reading.classes.items() if held != Classes()}
        return True if (reading.start_time, counted) == (started, classes) else None


@dataclass
class Count:
    """What a rollout counts of all gateways."""

    server: Server
    readings: Readings

    def polled(self, *gateways: Gateway) -> Counted | Unknown:
        """One poll, once Prometheus has scraped what these gateways say."""
        for gateway in gateways:
            self.server.until(f"a scrape of {gateway.name}", gateway.shows)
        answers = self.server.readings()
        of = Round("canary", "stable", datetime.now(UTC))
        found = poll(self.readings, answers, answers.keys(), of)
        if isinstance(found, Counted):
            self.readings = found.readings
        return found

    def canary(self, *gateways: Gateway) -> Classes | str:
        """New requests of the canary, or why there is no telling."""
        found = self.polled(*gateways)
        return found.arms.candidate if isinstance(found, Counted) else found.reason


def begun(server: Server) -> tuple[Count, Gateway, Gateway]:
    """Two gateways that have counted before, and the count that begins now."""
    server.pods.texts.clear()
    one, other = Gateway(server, "gw-1"), Gateway(server, "gw-2")
    one.says(canary_good=10, stable_good=90)
    other.says(canary_good=5)
    for gateway in (one, other):
        server.until(f"a scrape of {gateway.name}", gateway.shows)
    answers = server.readings()
    start = baseline(answers, answers.keys(), Round("canary", "stable", datetime.now(UTC)))
    assert isinstance(start, Readings)
    return Count(server, start), one, other


def test_what_is_counted_is_what_the_gateways_served(server: Server) -> None:
    count, one, other = begun(server)
    assert count.canary() == Classes()
    one.says(canary_good=12, canary_slow=3, stable_good=95)
    other.says(canary_good=6)
    assert count.canary(one, other) == Classes(good=3, slow=3), "a slow series begins with its first burst"
    assert count.canary() == Classes(), "the same scrape again"


def test_a_gateway_that_starts_again_has_counted_from_zero(server: Server) -> None:
    count, one, other = begun(server)
    one.start += 90
    one.says(canary_good=2)
    assert count.canary(one, other) == Classes(good=2)


def test_a_step_back_is_no_data_and_no_reset(server: Server) -> None:
    count, one, other = begun(server)
    one.says(canary_good=7, stable_good=90)
    assert "gw-1 went down though its process did not restart" in str(count.canary(one, other))
    one.says(canary_good=11, stable_good=90)
    assert count.canary(one, other) == Classes(good=1)


def test_a_series_that_is_missing_is_no_data(server: Server) -> None:
    count, one, other = begun(server)
    other.says()
    assert "gw-2 went down" in str(count.canary(one, other))


def test_a_new_gateway_has_counted_from_zero(server: Server) -> None:
    count, one, other = begun(server)
    new = Gateway(server, "gw-3")
    new.says(canary_slow=4)
    assert count.canary(one, other, new) == Classes(slow=4)


def test_an_old_scrape_is_no_data_and_its_requests_are_counted_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrapes, "FRESH", timedelta(seconds=8))
    count, one, other = begun(server)
    server.pods.texts["gw-2"] = None
    server.until("the end of gw-2", lambda: isinstance(server.readings()["gw-2"], Unknown) or None)
    assert "gw-2 could not be read" in str(count.canary(one))
    assert scrapes.unread(server.readings()) == "Prometheus has no scrape of gw-2 within 8 s"
    other.says(canary_good=9)
    assert count.canary(one, other) == Classes(good=4)


def histogram(revision: str, counts: Mapping[str, int]) -> str:
    """Buckets in the text that a pod gives, their edges as most libraries write them."""
    buckets = (
        f'latency_bucket{{revision="{revision}",le="{edge}"}} {count}\n' for edge, count in counts.items()
    )
    total = f'{{revision="{revision}"}} {counts["+Inf"]}\n'
    return "".join((*buckets, f"latency_count{total}", f"latency_sum{total}"))


def measured(above: float) -> Metric:
    """The fraction of values above an edge, of both revisions."""
    fields = {"histogram": 'latency_bucket{revision="$revision"}', "above": above, "max": 0.1}
    spec = AnalysisMetric.model_validate({"name": "slow", "interval": "1s", **fields})
    return metric_of(
        spec, {"namespace": "risk", "service": "churn", "revision": "canary", "stable": "stable"}
    )


def test_a_histogram_is_read_whichever_way_its_edges_are_written(server: Server) -> None:
    server.pods.texts.clear()
    metric, now = measured(1), 1000.0
    known: Watch | None = None

    def scraped(canary: Mapping[str, int], stable: Mapping[str, int]) -> Mapping[str, tuple[Series, ...]]:
        both = histogram("canary", canary) + histogram("stable", stable)
        server.pods.texts["latencies"] = f"# TYPE latency histogram\n{both}"
        total = f'latency_bucket{{revision="canary",le="+Inf"}} == {canary["+Inf"]}'
        server.until("a scrape", lambda: server.ask(total) or None)
        answer = server.ask(metric.expression)
        assert not isinstance(answer, Unknown), answer
        return {metric.expression: answer}

    rounds = (
        ({"0.25": 5, "1": 8, "+Inf": 10}, {"0.25": 50, "1": 80, "+Inf": 90}),
        ({"0.25": 9, "1": 28, "+Inf": 40}, {"0.25": 90, "1": 180, "+Inf": 190}),
    )
    for canary, stable in rounds:
        answers, now = scraped(canary, stable), now + 60
        taken = taken_in(metric, known, answers, now, stable_serves=True)
        assert not taken.blind, taken.blind
        known = taken.watch
    assert isinstance(known, Events)
    assert (known.account.evidence.candidate, known.compared) == (Tally(30, 10), 100)
    edges = {series.labels["le"] for series in answers[metric.expression]}
    assert edges == {"0.25", {"2": "1", "3": "1.0"}[server.generation], "+Inf"}
    between = measured(0.5)
    answer = server.ask(between.expression)
    blind = taken_in(between, None, {between.expression: answer}, now, stable_serves=True).blind
    assert "no bucket of the histogram ends at 0.5: write one of its edges for above (0.25, 1, inf)" in blind


def failures(selected: str) -> Metric:
    """The fraction of failed requests; `selected` ends the query for them."""
    of = 'tailbound_requests_total{revision="$revision"'
    fields = {"bad": f"{of},{selected}", "total": f"{of}}}", "max": 0.1, "interval": "1s"}
    spec = AnalysisMetric.model_validate({"name": "failures", **fields})
    return metric_of(
        spec, {"namespace": "risk", "service": "churn", "revision": "canary", "stable": "stable"}
    )


def test_what_never_matched_and_what_is_no_number_are_named(server: Server) -> None:
    _, one, _ = begun(server)
    one.says(canary_good=12, canary_failed=3, stable_good=95)
    server.until("a scrape", one.shows)

    def blind(metric: Metric) -> str:
        answer = server.ask(metric.expression)
        return taken_in(metric, None, {metric.expression: answer}, 0.0, stable_serves=True).blind

    assert "the query for bad has matched no series of either revision" in blind(failures('class="fail"}'))
    assert not blind(failures('class="fail"} or vector(0)'))
    assert not blind(failures('class="failed"}'))
    spec = AnalysisMetric(name="nothing", query="vector(0) / vector(0)", max=0.5)
    nothing = metric_of(spec, dict.fromkeys(("namespace", "service", "revision", "stable"), "x"))
    assert "gives NaN" in blind(nothing)


def test_what_a_generation_cannot_parse_is_told_as_it_says_it(server: Server) -> None:
    """Names of any letters are new in Prometheus 3."""
    found = server.ask('{"requests.of.the.gateway",revision="canary"}')
    if server.generation == "3":
        assert found == ()
    else:
        assert isinstance(found, Unknown)
        assert "Prometheus refuses the query" in found.reason


def test_a_serving_pod_speaks_for_itself_and_for_no_gateway(server: Server) -> None:
    """It claims another's requests under every name that is believed of gateways, and too much at once."""
    forged = "".join(
        f'{metric}{{envoy_cluster_name="risk/victim/r1/http",namespace="risk",service="victim",'
        f'revision="r1",class="good",job="tailbound-gateways",pod="sizing"}} 1000000 {{}}\n'
        for metric in (
            "envoy_cluster_upstream_rq_total",
            "envoy_cluster_membership_total",
            "tailbound_requests_total",
            "tailbound_gateway_envoy_start_time_seconds",
            "tailbound_service_cost_per_hour",
        )
    ).replace(" {}", "")
    server.pods.servers["forger"] = f"own_errors_total 7\n{forged}"
    server.pods.servers["flood"] = "own_errors_total 8\n" + "# x\n" * 1_500_000
    server.pods.servers["labels"] = 'own_errors_total{a="' + "x" * 2000 + '"} 9\n'

    def scraped() -> bool | None:
        found = server.ask('up{job="tailbound-serving"}')
        assert not isinstance(found, Unknown), found
        return {each.labels["pod"] for each in found} >= server.pods.servers.keys() or None

    try:
        server.until("every serving pod was scraped", scraped)
        own = server.ask("own_errors_total")
        assert not isinstance(own, Unknown), own
        assert [(each.labels["pod"], each.values[-1].number) for each in own] == [("forger", 7)]
        assert server.ask('{service="victim"}') == server.ask('{exported_service="victim"}') == ()
        assert server.ask('{envoy_cluster_name=~"risk/victim/.*"}') == ()
    finally:
        server.pods.servers.clear()


def test_another_job_is_not_believed_about_gateways(server: Server) -> None:
    queries = (*QUERIES, history_of([SERVICE]), scrapes.expression([SERVICE]))
    selectors = [found for query in queries for found in re.findall(r"\{([^{}]*)\}", query)]
    assert len(selectors) > 10
    assert [each for each in selectors if 'job="tailbound-' not in each] == []


SIZED = (
    f"tailbound_gateway_envoy_start_time_seconds {STARTED}\n"
    + "".join(
        f'envoy_cluster_membership_total{{envoy_cluster_name="{name}/http"}} {pods}\n'
        f'envoy_cluster_upstream_rq_total{{envoy_cluster_name="{name}/http"}} 7\n'
        for name, pods in (("risk/churn/r1", 3), ("risk/churn/r2", 5), ("ads/churn/r2", 2))
    )
    + 'envoy_cluster_upstream_rq_total{envoy_cluster_name="ads/churn/r2/http",replica="b"} 7\n'
)
"""The metrics of a gateway for three revisions; one counter is there twice."""


def test_what_services_are_sized_by_is_asked_in_words_of_either_generation(server: Server) -> None:
    """Gateways give the load of a revision without batches as if it were alone, and of no other."""
    server.pods.texts.clear()
    server.pods.texts["sizing"] = SIZED
    server.pods.servers["batches"] = (
        'tailbound_runtime_batches_total{namespace="risk",service="churn",revision="r2"} 9\n'
    )

    def told(expressions: Iterable[str]) -> dict[tuple[str, str], dict[str, float]]:
        """What each revision is told to have, by namespace and revision."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for expression in expressions:
            answer = server.ask(expression)
            assert not isinstance(answer, Unknown), (expression, answer)
            for labels, number in ((each.labels, each.values[-1].number) for each in answer):
                if "signal" in labels:
                    found.setdefault((labels["namespace"], labels["revision"]), {})[labels["signal"]] = number
        return found

    def answers() -> dict[tuple[str, str], dict[str, float]] | None:
        found = told((*QUERIES, history_of([("risk", "churn"), ("risk", "a.b")])))
        rates = "arrivals 10" in found.get(("risk", "r1"), {}) and "batches" in found.get(("risk", "r2"), {})
        return found if rates else None

    try:
        found = server.until("what was scraped", answers)
        alone = told(f'label_replace({SIGNALS[name]}, "signal", "{name}", "", "")' for name in SIGNALS)
        assert alone["risk", "r1"] == found["risk", "r1"]
        assert alone["ads", "r2"] == found["ads", "r2"], "batches of another service of this name"
        load = {"replicas": 5, "fewest replicas": 5}
        assert alone["risk", "r2"] == found["risk", "r2"] | load, "the rest is the same beside batches"
        assert not load.keys() & found["risk", "r2"].keys()
        of_first = found["risk", "r1"]
        assert (of_first["replicas"], of_first["fewest replicas"], of_first["gateways"]) == (3, 3, 1)
        assert "copies" not in of_first
        assert found["ads", "r2"]["copies"] == 2, "counted twice"
    finally:
        server.pods.servers.clear()
