"""False rollbacks and detection of the canary verdict and of other rules: `python -m e2e.bench.rollout`.

Prints tables and, last, one JSON line:

false_rollback_max   largest share of healthy canaries rolled back, over all healthy scenarios and settings
                     but those of the last step, of episodes and of gauges, which are apart
false_rollback_upper the upper end of that share's interval
last_step_max        the same share with all requests on the canary
episodes_max         the same share where single pods are slow for a while
gauges_max           the same share for values that look back, read more often than that
found_min            smallest share of bad canaries rolled back, over all settings
floor_ratio_5pct     mean requests of the absolute test alone at 5 % slow, over the information floor; exact
median_2pct          median canary requests until a canary of 2 % slow is rolled back
flagger_median_2pct  the same of Flagger, tuned to at most `ALPHA` false rollbacks at the edge of the SLA

and on a cluster of our own

seconds_to_zero_weight  median from a canary's first slow request to its last in any gateway; see cluster.py
"""

import json
import sys
from collections.abc import Callable
from math import inf, log

import numpy as np
from tailbound.api.rollout import AnalysisPolicy
from tailbound.judge.evidence import OVERSHOOT_CREDIT
from tailbound.judge.verdict import ALPHA, LATE_SHARE, Objective, error_objective, latency_objective
from tailbound.rollout.forecast import Traffic as Arrivals

from e2e.bench.rollout import cluster, gauges, peers, rule
from e2e.bench.rollout.exact import Boundary, floor, stopping
from e2e.bench.rollout.promotion import pace
from e2e.bench.rollout.scenarios import (
    BARELY_WORSE,
    HEALTHY,
    LATE,
    SEED,
    UNHEALTHY,
    Counts,
    Scenario,
    Traffic,
)
from e2e.bench.rollout.settings import GOALS, SETTINGS, Group, Setting
from e2e.bench.rollout.shares import Share
from e2e.bench.rollout.trials import POLL_SECONDS, Result, run

RUNS = 300
COMPARED_RUNS = 150
"""Runs of each row with the rules of other projects."""
TUNING_RUNS = 5000
OBJECTIVES = 2
"""Latency and errors share alpha, as they do in a service that promises both."""
P99 = latency_objective(0.99)

Rule = Callable[[Traffic], Counts]
"""By rollout, the number of canary requests until rollback; `rule.NEVER` without one."""


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def requests_at(traffic: Traffic, polls: Counts) -> Counts:
    """Canary requests up to and including each rollout's poll."""
    total = traffic.canary.cumsum(axis=1)
    return np.where(polls == rule.NEVER, rule.NEVER, np.take_along_axis(total, polls[:, None], axis=1)[:, 0])


def own(policy: AnalysisPolicy) -> Rule:
    """The product's rule under one policy."""
    return lambda traffic: requests_at(traffic, rule.verdicts(traffic, P99, policy, OBJECTIVES).rolled_back)


def by_windows(decide: Callable[[Traffic], peers.Decisions]) -> Rule:
    """A rule that looks once per window."""

    def requests(traffic: Traffic) -> Counts:
        windows = decide(traffic).rolled_back
        polls = np.where(windows == rule.NEVER, rule.NEVER, (windows + 1) * traffic.window - 1)
        return requests_at(traffic, polls)

    return requests


def rules(edge: Traffic) -> dict[str, Rule]:
    """All rules by name. The tuned ones are tuned on canaries at the edge of the SLA."""
    threshold, limit = (tune(edge, P99.allowed, ALPHA) for tune in (peers.tuned_flagger, peers.tuned_argo))
    say(f"tuned to {ALPHA:.0%} at the SLA's edge: Flagger threshold {threshold}, Argo failureLimit {limit}")
    return {
        "tailbound": own(AnalysisPolicy.BOTH),
        "absolute": own(AnalysisPolicy.ABSOLUTE),
        "relative": own(AnalysisPolicy.RELATIVE),
        "flagger 5": by_windows(lambda traffic: peers.flagger(traffic, P99.allowed, 5)),
        "flagger tuned": by_windows(lambda traffic: peers.flagger(traffic, P99.allowed, threshold)),
        "argo 3": by_windows(lambda traffic: peers.argo(traffic, P99.allowed, 3)),
        "argo tuned": by_windows(lambda traffic: peers.argo(traffic, P99.allowed, limit)),
        "kayenta": by_windows(peers.kayenta),
    }


def false_rollbacks(every: dict[str, Rule]) -> Share:
    """Prints the share of healthy canaries that each rule rolls back; returns the product's largest."""
    say("\nhealthy canaries: share rolled back; share that the product ever held; interval of the product's")
    say(f"{'':42}" + "".join(f"{name:>14}" for name in every) + f"{'held':>8}")
    worst = Share(0, COMPARED_RUNS)
    for scenario in HEALTHY:
        traffic = scenario.traffic(COMPARED_RUNS)
        shares = {name: float((decide(traffic) != rule.NEVER).mean()) for name, decide in every.items()}
        held = (rule.verdicts(traffic, P99, AnalysisPolicy.BOTH, OBJECTIVES).held != rule.NEVER).mean()
        columns = "".join(f"{share:14.3f}" for share in shares.values())
        own_share = Share(round(shares["tailbound"] * COMPARED_RUNS), COMPARED_RUNS)
        say(f"{scenario.name:42}{columns}{held:8.3f}  {own_share}")
        worst = _largest([worst, own_share])
    return worst


def settings() -> dict[Setting, Share]:
    """Prints what becomes of canaries in traffic that is not many independent requests."""
    say("\nother traffic, seeds of its own: share rolled back [interval], median seconds, held, steps passed")
    found = {}
    for setting in SETTINGS:
        results = [run(setting.trial, seed) for seed in range(RUNS)]
        ends = [each.rolled_back for each in results if each.rolled_back is not None]
        found[setting] = share = Share(len(ends), RUNS)
        begins = next(step.poll for step in setting.trial.steps if step.weight)
        after = f"{(np.median(ends) + 1 - begins) * POLL_SECONDS:.0f}" if ends else "-"
        held = np.mean([each.held is not None for each in results])
        wanted = GOALS.get(setting.group)
        goal = "" if wanted is None else f"goal {'all' if not setting.healthy else f'{wanted:g} at most'}"
        passed = " ".join(f"{each:.2f}" for each in _passed(results))
        say(f"{setting.group:12}{setting.trial.name:44}{share}{after:>7}{held:6.2f}  {passed:20}{goal}")
    return found


def _passed(results: list[Result]) -> list[float]:
    """Share that passed each step."""
    return [
        float(np.mean([each is not None for each in of_step]))
        for of_step in zip(*(result.passed for result in results), strict=True)
    ]


def gauge_values() -> dict[str, Share]:
    """Prints what becomes of canaries at the bound of a metric whose values tell of five minutes each."""
    say("\nvalues of the last five minutes, read every 30 s for half a day: share rolled back")
    found = {}
    for query in (gauges.RANGE, gauges.GAUGE):
        found[query] = Share(sum(gauges.rolled_back(query, seed) for seed in range(RUNS)), RUNS)
        say(f"    {query:60}{found[query]}")
    return found


def median(requests: Counts, share: float = 0.5) -> float:
    """The median, or another quantile, of all canaries; one that is never rolled back is infinitely late."""
    return float(np.quantile(np.where(requests == rule.NEVER, inf, requests), share, method="higher"))


def detection(every: dict[str, Rule], scenarios: tuple[Scenario, ...]) -> dict[tuple[str, str], float]:
    """Prints how surely and how soon each rule finds bad canaries; medians by scenario and rule."""
    say("\nbad canaries: share rolled back [interval], canary requests in the median and for nine of ten")
    medians = {}
    for scenario in scenarios:
        traffic = scenario.traffic(COMPARED_RUNS)
        say(scenario.name)
        for name, decide in every.items():
            requests = decide(traffic)
            medians[scenario.name, name] = median(requests)
            share = Share(int((requests != rule.NEVER).sum()), len(requests))
            say(f"    {name:14}{share}{median(requests):9g}{median(requests, 0.9):9g}")
    return medians


def floor_ratio() -> float:
    """Prints exact mean requests at 5 % slow over the floor at `ALPHA`; returns that of the test alone."""
    say("\nabsolute test, exact: mean requests at 5 % slow, over the floor; false rollbacks at 1 % slow")
    lowest = floor(ALPHA, P99.allowed, 0.05)
    shares = {
        "alone": 1.0,
        "alpha split in two": 1 / OBJECTIVES,
        "with late onset too": (1 - LATE_SHARE) / OBJECTIVES,
    }
    ratios = {}
    for name, share in shares.items():
        threshold = log(1 / (ALPHA * share)) - OVERSHOOT_CREDIT
        boundary = Boundary.of(P99.allowed, threshold, 4000)
        found, edge = stopping(boundary, 0.05), stopping(boundary, P99.allowed)
        ratios[name] = found.mean / lowest
        wrong = edge.chance + edge.open_ended
        say(f"    {name:22}{found.mean:8.1f}{ratios[name]:8.3f}{wrong:10.5f} of {ALPHA * share:.5f}")
    return ratios["alone"]


def promotion() -> None:
    """Prints how long a healthy canary takes at three rates of requests."""
    say("\nhealthy canary (.02 % errors of .1 % allowed, .3 % slow of 1 %) through 5, 25 and 50 %")
    plain = Objective(error_objective(0.001).measure, 0.001, 0.002)
    for name, objective in (("unacceptable 1 %", error_objective(0.001)), ("unacceptable .2 %", plain)):
        for per_second in (5, 50, 500):
            found = pace((P99, objective), Arrivals(per_second, slow=0.003, failed=0.0002))
            say(
                f"    errors {name:18}{per_second:4} requests/s: median {found.median / 60:7.1f} min, "
                f"nine of ten within {found.p90 / 60:7.1f} min ({found.requests:.0f} requests in step 1)"
            )


def _largest(shares: list[Share]) -> Share:
    return max(shares, key=lambda share: share.value)


def main() -> int:
    """Run all of it."""
    say(
        f"each row has runs of its own, {COMPARED_RUNS} beside other rules and else {RUNS}, "
        f"drawn with the seed {SEED} and the name of the row"
    )
    every = rules(HEALTHY[0].traffic(TUNING_RUNS))
    worst, found, values = false_rollbacks(every), settings(), gauge_values()
    medians = detection(every, (*UNHEALTHY, BARELY_WORSE, LATE))
    ratio = floor_ratio()
    promotion()
    two_percent = UNHEALTHY[0].name
    healthy = {each: share for each, share in found.items() if each.healthy}
    apart = (Group.LAST_STEP, Group.EPISODES)
    worst = _largest([worst, *(share for each, share in healthy.items() if each.group not in apart)])
    last, slow = (
        _largest([share for each, share in healthy.items() if each.group is group]) for group in apart
    )
    document: dict[str, object] = {
        "bench": "rollout",
        "false_rollback_max": worst.value,
        "false_rollback_upper": round(worst.interval[1], 4),
        "last_step_max": last.value,
        "episodes_max": slow.value,
        "gauges_max": values[gauges.RANGE].value,
        "found_min": min(share.value for each, share in found.items() if not each.healthy),
        "floor_ratio_5pct": round(ratio, 3),
        "median_2pct": medians[two_percent, "tailbound"],
        "flagger_median_2pct": medians[two_percent, "flagger tuned"],
    }
    if cluster.there():
        document |= cluster.summary(cluster.measure())
    say(json.dumps(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
