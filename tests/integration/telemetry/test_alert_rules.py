"""The alert rules, evaluated by Prometheus' own unit tests over simulated hours."""

import json
import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tailbound.api.names import GATEWAYS_JOB, OPERATOR_JOB, REQUESTS_METRIC, SLA_METRIC

from e2e.cluster import binaries
from tests.integration.chart.helm import CHART, ROOT

RULES: Final = CHART / "files" / "prometheus" / "rules.yaml"
SCRAPE_SECONDS: Final = 10
ALERT: Final = "TailboundSLAMissed"
HOURS: Final = 1.5
_FIVE: Final = f'ALERTS{{alertname="{ALERT}",window="5m"}}'
_HOUR: Final = f'ALERTS{{alertname="{ALERT}",window="1h"}}'
_ANY: Final = f'ALERTS{{alertname="{ALERT}"}}'

Test = dict[str, Any]
Misses = Callable[[int], float]
"""The ratio of requests that miss the target, by the seconds since the beginning."""


def groups(*names: str) -> list[dict[str, Any]]:
    """Rule groups of the chart."""
    found = yaml.safe_load(RULES.read_text())["groups"]
    return [group for group in found if group["name"] in names]


def evaluate(directory: Path, rules: Sequence[dict[str, Any]], seconds: int, tests: Iterable[Test]) -> None:
    """Run tests of rules that are evaluated every so many seconds. Fails with what promtool says."""
    (directory / "rules.yaml").write_text(json.dumps({"groups": rules}))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{seconds}s", "tests": list(tests)}
    (directory / "tests.yaml").write_text(json.dumps(document))
    command = [str(binaries.program("promtool")), "test", "rules", "tests.yaml"]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
    assert not result.returncode, result.stdout + result.stderr


def fires(query: str, minutes: float, labels: str | None) -> Test:
    """An expectation: whether a series of these labels is there then."""
    samples = [{"labels": labels, "value": 1}] if labels else []
    return {"expr": query, "eval_time": f"{int(minutes * 60)}s", "exp_samples": samples}


def never(every: int, hours: float = HOURS) -> list[Test]:
    """No alert of the SLA fires, asked each so many minutes."""
    return [fires(_ANY, minute, None) for minute in range(every, int(hours * 60), every)]


def unit(name: str, series: list[dict[str, str]], expected: list[Test], period: int = SCRAPE_SECONDS) -> Test:
    """One test: input series with a sample each so many seconds, and what is to follow from them."""
    return {"name": name, "interval": f"{period}s", "input_series": series, "promql_expr_test": expected}


@dataclass(frozen=True)
class Traffic:
    """Requests of one service; `good` and `bad` are the classes that they are counted in."""

    per_second: float
    misses: Misses
    bad: str = "slow"
    good: str = "good"
    seed: int = 0
    burst: int = 1
    """Requests that come together and share their fate."""

    def series(self, hours: float) -> list[dict[str, str]]:
        """The counters of one gateway."""
        draw = random.Random(self.seed)
        totals = {self.good: 0, self.bad: 0}
        values: dict[str, list[str]] = {name: [] for name in totals}
        for step in range(int(hours * 3600 / SCRAPE_SECONDS)):
            expected = self.per_second * SCRAPE_SECONDS / self.burst
            bursts = int(expected) + (draw.random() < expected % 1)
            for _ in range(bursts):
                missed = draw.random() < self.misses(step * SCRAPE_SECONDS)
                totals[self.bad if missed else self.good] += self.burst
            for name, total in totals.items():
                values[name].append(str(total))
        labels = f'job="{GATEWAYS_JOB}",namespace="n",service="s",revision="r"'
        return [
            {"series": f'{REQUESTS_METRIC}{{{labels},class="{name}"}}', "values": " ".join(numbers)}
            for name, numbers in values.items()
        ]


def objective(name: str, ratio: float, hours: float) -> dict[str, str]:
    """The ratio that may miss, as a gateway exports it."""
    labels = f'job="{GATEWAYS_JOB}",namespace="n",service="s",objective="{name}"'
    return {"series": f"{SLA_METRIC}{{{labels}}}", "values": f"{ratio}x{int(hours * 3600 / SCRAPE_SECONDS)}"}


def alert(window: str, objective: str = "latency") -> str:
    """The alert's series."""
    severity = "warning" if window == "1d" else "critical"
    return (
        f'ALERTS{{alertname="{ALERT}",alertstate="firing",namespace="n",objective="{objective}",service="s",'
        f'severity="{severity}",window="{window}"}}'
    )


def since(minute: float, after: float, before: float = 0.0, until: float = 1e9) -> Misses:
    """`before` until that minute, then `after`, and `before` again from minute `until` on."""
    return lambda second: after if minute * 60 <= second < until * 60 else before


CASES: Final = {
    "outage": (
        Traffic(20, since(30, 1, 0.002, until=50)),
        [
            fires(_ANY, 32, None),
            fires(_FIVE, 35, alert("5m")),
            fires(_FIVE, 50, alert("5m")),
            fires(_ANY, 56, None),
        ],
    ),
    "outage with few requests": (
        Traffic(0.1, since(30, 1)),
        [fires(_ANY, 32, None), fires(_FIVE, 37, alert("5m"))],
    ),
    "a third is slow": (
        Traffic(20, since(10, 0.3)),
        [fires(_FIVE, 80, None), fires(_HOUR, 15, None), fires(_HOUR, 60, alert("1h"))],
    ),
    "as slow as allowed": (Traffic(20, lambda _: 0.01), never(3)),
    "as slow as allowed, in bursts": (Traffic(20, lambda _: 0.01, burst=60), never(3)),
    "one bad minute": (Traffic(20, since(30, 1, until=31)), never(1)),
    "two bad requests": (Traffic(1 / 60, since(20, 1, until=22)), never(1)),
    "failed requests miss no latency target": (Traffic(20, since(20, 1), bad="failed"), never(3)),
    "refused requests do": (Traffic(20, since(20, 1), bad="shed"), [fires(_FIVE, 26, alert("5m"))]),
}


def test_a_latency_target(tmp_path: Path) -> None:
    target = objective("latency", 0.01, HOURS)
    tests = [
        unit(name, [*traffic.series(HOURS), target], expected) for name, (traffic, expected) in CASES.items()
    ]
    evaluate(tmp_path, groups("tailbound-sla"), 30, tests)


def test_an_error_rate(tmp_path: Path) -> None:
    failing, target = Traffic(20, since(20, 1, 0.01), bad="failed"), objective("errors", 0.05, HOURS)
    firing = [fires(_ANY, 20, None), fires(_FIVE, 26, alert("5m", "errors"))]
    evaluate(
        tmp_path,
        groups("tailbound-sla"),
        30,
        [
            unit("beyond the target", [*failing.series(HOURS), target], firing),
            unit("without a target", failing.series(HOURS), never(3)),
            unit("late, not failed", [*Traffic(20, since(20, 1)).series(HOURS), target], never(3)),
        ],
    )


def periods(hours: float, missed: Callable[[float], float]) -> list[dict[str, str]]:
    """What the rules of 30 s have recorded, with ten observations each; `missed` of ten by the hour."""
    steps = int(hours * 120)
    recorded = {
        "observations:30s": f"10x{steps}",
        "missed:30s": " ".join(f"{10 * missed(step / 120):g}" for step in range(steps)),
        "allowed_ratio": f"0.01x{steps}",
        "limit:burn6": f"0.06x{steps}",
        "miss_ratio:30m": " ".join(f"{missed(step / 120):g}" for step in range(steps)),
    }
    labels = 'namespace="n",service="s",objective="latency"'
    return [
        {"series": f"tailbound_sla:{name}{{{labels}}}", "values": values} for name, values in recorded.items()
    ]


def test_what_is_missed_for_hours(tmp_path: Path) -> None:
    six, day = f'ALERTS{{alertname="{ALERT}",window="6h"}}', f'ALERTS{{alertname="{ALERT}",window="1d"}}'
    tenth = periods(12, lambda hour: 0.1 if 4 <= hour < 9 else 0.0)
    slightly = periods(26, lambda _: 0.015)
    evaluate(
        tmp_path,
        groups("tailbound-sla-days"),
        120,
        [
            unit(
                "a tenth for hours",
                tenth,
                [fires(six, 60 * 5, None), fires(six, 60 * 8.9, alert("6h")), fires(_ANY, 60 * 11.5, None)],
                period=30,
            ),
            unit(
                "slightly too many for a day",
                slightly,
                [fires(_ANY, 60, None), fires(six, 60 * 25, None), fires(day, 60 * 25, alert("1d"))],
                period=30,
            ),
            unit("as allowed for a day", periods(26, lambda _: 0.01), never(60, hours=26), period=30),
        ],
    )


def test_tailbound_itself(tmp_path: Path) -> None:
    """Each alert fires for its cause only, and all of them say what to look at."""
    healthy = {
        f'tailbound_gateway_envoy_up{{job="{GATEWAYS_JOB}",pod="g"}}': 1,
        f'tailbound_gateway_synced{{job="{GATEWAYS_JOB}",pod="g"}}': 1,
        f'tailbound_gateway_services_rejected{{job="{GATEWAYS_JOB}",pod="g"}}': 0,
        f'up{{job="{OPERATOR_JOB}"}}': 1,
        f'tailbound_operator_lease_age_seconds{{job="{OPERATOR_JOB}"}}': 2,
        f'tailbound_operator_services{{job="{OPERATOR_JOB}",condition="Stalled",status="False"}}': 5,
        f'tailbound_operator_services{{job="{OPERATOR_JOB}",condition="MetricsStale",status="False"}}': 5,
    }
    broken: dict[str, dict[str, float | None]] = {
        "TailboundGatewaysDown": {key: None for key in healthy if GATEWAYS_JOB in key},
        "TailboundGatewayNotConfigured": {key: 0 for key in healthy if "synced" in key},
        "TailboundRouteRejected": {key: 2 for key in healthy if "rejected" in key},
        "TailboundOperatorDown": {key: None for key in healthy if OPERATOR_JOB in key},
        "TailboundNoLeader": {key: 300 for key in healthy if "lease" in key},
        "TailboundServicesStalled": {key.replace("False", "True"): 1 for key in healthy if "Stalled" in key},
        "TailboundMetricsStale": {
            key.replace("False", "True"): 1 for key in healthy if "MetricsStale" in key
        },
    }
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    tests = []
    for alertname, changes in {"": {}, **broken}.items():
        gauges = {key: value for key, value in {**healthy, **changes}.items() if value is not None}
        series = [{"series": key, "values": f"{value}x40"} for key, value in gauges.items()]
        expected = [fires(firing, 19, f'{{alertname="{alertname}"}}' if alertname else None)]
        tests.append(unit(alertname or "healthy", series, expected, period=30))
    evaluate(tmp_path, groups("tailbound-operation"), 30, tests)
    rules = [rule for group in groups("tailbound-operation") for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == broken.keys()


def test_every_alert_is_documented() -> None:
    documented = (ROOT / "docs" / "alerts.md").read_text()
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert not [rule["alert"] for rule in rules if "alert" in rule and f"`{rule['alert']}`" not in documented]
