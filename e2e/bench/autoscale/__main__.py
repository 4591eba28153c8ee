"""Late requests and replica-hours of the product and of other rules: `python -m e2e.bench.autoscale`.

`--trace FILE` and `--scale X` take one workload from a file instead of those of `traces`. Prints tables and,
last, one JSON line; for every trace, as means over the seeds,

late_pct, x_oracle              requests over the target, and replica-hours over the oracle's, of the product
hpa70_late_pct, hpa70_x_oracle  the same of HPA at 0.7 of a capacity that it is told
mute_late_pct, mute_x_oracle    the same of the product, where the runtime tells nothing of its batches

under `faults` the product's and HPA's late requests in each scenario of things that go wrong, and under
`trials`, by row and policy, `[late %, replica-hours over the oracle's, starts, starts in vain, changes]`, of
`foresight` only the replica-hours: those of a rule that knows all arrivals but has to start its replicas.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from e2e.bench.autoscale import peers, traces, trials
from e2e.bench.autoscale.fleet import Faults, Outcome, Policy
from e2e.bench.autoscale.own import Own
from e2e.bench.autoscale.scenario import Scenario
from e2e.bench.autoscale.traces import Trace

_FIRST_SEED: Final = 11
_UNSEEN: Final = 101
"""First of the seeds that shapes and shocks are drawn with here, and were never looked at for tuning."""

OWN, HPA70, MUTE = "Tailbound", "HPA usage 0.7", "Tailbound, mute"
POLICIES: Final[dict[str, Callable[[], Policy]]] = {
    OWN: Own,
    MUTE: lambda: Own(tells_batches=False),
    HPA70: lambda: peers.Hpa(peers.usage(0.7)),
    "HPA busy 0.7": lambda: peers.Hpa(peers.busy(0.7)),
    "HPA P99": lambda: peers.Hpa(peers.latency, peers.Kind.VALUE),
    "Knative": peers.Kpa,
    "KEDA": peers.keda,
}


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


Report = tuple[str, dict[str, float]]
"""Lines to print, and the figures of the JSON line."""


def compare(trace: Trace) -> Report:
    """Every policy on one trace, over its seeds."""
    scenarios = [Scenario(trace, _FIRST_SEED + seed) for seed in range(trace.seeds)]
    first = scenarios[0]
    lines = [
        f"\n{trace.name}: {len(first.arrivals)} requests in {first.duration} s, "
        f"target {trace.server.target} s, "
        f"oracle {first.plan.min()} to {first.plan.max()} replicas, {trace.seeds} seeds",
        f"  {'':16}{'late %':>8}{'minutes %':>11}{'hours':>8}{'x oracle':>10}"
        f"{'P99 s':>8}{'peak':>6}{'changes':>9}",
        _row("oracle", [first.ideal()], [first.hours])[0],
    ]
    figures: dict[str, float] = {}
    for name, policy in POLICIES.items():
        outcomes = [scenario.run(policy()) for scenario in scenarios]
        line, late, times = _row(name, outcomes, [scenario.hours for scenario in scenarios])
        lines.append(line)
        prefix = {OWN: "", HPA70: "hpa70_", MUTE: "mute_"}.get(name)
        if prefix is not None:
            figures |= {f"{prefix}late_pct": round(late, 4), f"{prefix}x_oracle": round(times, 3)}
    return "\n".join(lines), figures


def _row(name: str, outcomes: list[Outcome], oracle_hours: list[float]) -> tuple[str, float, float]:
    """The line of one policy, with the late requests and the hours that are in it."""
    late = float(np.mean([outcome.late_pct for outcome in outcomes]))
    times = float(
        np.mean([one.replica_hours / hours for one, hours in zip(outcomes, oracle_hours, strict=True)])
    )
    minutes = float(np.mean([outcome.late_minutes_pct for outcome in outcomes]))
    hours = float(np.mean([outcome.replica_hours for outcome in outcomes]))
    p99 = float(np.mean([outcome.p99 for outcome in outcomes]))
    peak = max(outcome.peak for outcome in outcomes)
    changes = float(np.mean([outcome.changes for outcome in outcomes]))
    line = f"  {name:16}{late:8.3f}{minutes:11.1f}{hours:8.2f}{times:10.3f}{p99:8.2f}{peak:6d}{changes:9.0f}"
    return line, late, times


def trouble(calm: Trace, bursty: Trace) -> dict[str, dict[str, float]]:
    """What goes wrong: the product and HPA at 0.7, once each."""
    slower = replace(calm, server=replace(calm.server, target=calm.server.target * 1.25))
    middle, seed = len(calm.rates) // 3, _FIRST_SEED
    rows = {
        "batches 1.35x slower": Scenario(slower, seed, faults=Faults(slower_from=middle, slower_by=1.35)),
        "metrics lost 12 min": Scenario(calm, seed, faults=Faults(outage=(middle, middle + 720))),
        "pods stuck": Scenario(bursty, seed, faults=Faults(stuck=(middle, middle + 900))),
        "pods dying": Scenario(calm, seed, faults=Faults(deaths=(middle, 2 * middle))),
        "spike": Scenario(_with_spike(calm), seed),
        "cold start 30 s": Scenario(bursty, seed, 30.0),
        "cold start 120 s": Scenario(bursty, seed, 120.0),
        "cold start 180 s": Scenario(bursty, seed, 180.0),
        "calm, 180 s": Scenario(calm, seed, 180.0),
    }
    say(f"\nwhen things go wrong ({calm.name}, {bursty.name})")
    say(
        f"  {'':24}{OWN:>24}{HPA70:>24}\n"
        f"  {'':24}{'late %':>12}{'x oracle':>12}{'late %':>12}{'x oracle':>12}"
    )
    figures = {}
    for name, scenario in rows.items():
        outcomes = [scenario.run(POLICIES[policy]()) for policy in (OWN, HPA70)]
        cells = [f"{one.late_pct:12.3f}{one.replica_hours / scenario.hours:12.3f}" for one in outcomes]
        say(f"  {name:24}{''.join(cells)}")
        figures[name] = {
            "late_pct": round(outcomes[0].late_pct, 4),
            "hpa70_late_pct": round(outcomes[1].late_pct, 4),
        }
    return figures


def _with_spike(trace: Trace) -> Trace:
    """Twice the traffic for two minutes, out of nowhere."""
    rates = trace.rates.copy()
    middle = len(rates) // 2
    rates[middle : middle + 120] *= 2
    return replace(trace, rates=rates)


def unseen(pool: ProcessPoolExecutor) -> dict[str, dict[str, list[float]]]:
    """The rows that no rule was tuned on: the product, HPA at 0.7, and the floor."""
    say(f"\nunseen, {trials.SEEDS} seeds: late %, x oracle, starts, in vain, changes")
    say("  " + " " * 20 + "".join(f"{name:>32}" for name in (OWN, HPA70, "known at once")) + "  foresight")
    figures: dict[str, dict[str, list[float]]] = {}
    for name, means in zip(trials.TRIALS, pool.map(_means, trials.TRIALS), strict=True):
        cells = [
            f"{means[policy][0]:10.3f}{means[policy][1]:7.3f}"
            + "".join(f"{n:5.0f}" for n in means[policy][2:])
            for policy in ("own", "hpa70", "floor")
        ]
        say(f"  {name:20}{''.join(cells)}{means['foresight'][0]:11.3f}")
        figures[name] = means
    return figures


def _means(name: str) -> dict[str, list[float]]:
    """One row by policy, as means over its seeds."""
    runs: dict[str, list[list[float]]] = {"own": [], "hpa70": [], "floor": [], "foresight": []}
    for seed in range(_UNSEEN, _UNSEEN + trials.SEEDS):
        trial = trials.drawn(name, seed)
        scenario = trial.scenario(name, seed)
        for policy, rule in (
            ("own", Own(tells_batches=trial.tells_batches)),
            ("hpa70", POLICIES[HPA70]()),
            ("floor", trials.Known(trial.rates)),
        ):
            runs[policy].append(_summary(scenario, scenario.run(rule)))
        runs["foresight"].append([scenario.paid_hours / scenario.hours])
    return {policy: np.mean(rows, axis=0).round(4).tolist() for policy, rows in runs.items()}


def _summary(scenario: Scenario, one: Outcome) -> list[float]:
    return [one.late_pct, one.replica_hours / scenario.hours, one.starts, one.in_vain, one.changes]


def main(arguments: list[str]) -> int:
    """Run everything, or one file's trace."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.autoscale", description=__doc__)
    parser.add_argument("--trace", type=Path, help="rates by second, or requests of the Azure LLM format")
    parser.add_argument("--scale", type=float, default=1.0, help="what its rates are multiplied with")
    options = parser.parse_args(arguments)
    if options.trace:
        trace = traces.read(options.trace, options.scale)
        report, figures = compare(trace)
        say(report)
        say(json.dumps({"bench": "autoscale", "traces": {trace.name: figures}}))
        return 0
    place = traces.folder()
    workloads = traces.recorded(place) if place else traces.drawn(1)
    calm, bursty = (workloads[1], workloads[0]) if place else (workloads[1], workloads[2])
    found: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor() as pool:
        for trace, (report, figures) in zip(workloads, pool.map(compare, workloads), strict=True):
            say(report)
            found[trace.name] = figures
        faults = trouble(calm, bursty)
        say(json.dumps({"bench": "autoscale", "traces": found, "faults": faults, "trials": unseen(pool)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
