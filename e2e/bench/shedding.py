"""`python -m e2e.bench.shedding`: late and refused requests after a shock, with waiting and with shedding.

Simulated on the model server's own queue and rules, without a model: pods that each work on batches of up to
16, which take 0.2 s and 0.05 s a request, give or take 10 %; a bound of 2 s on the latency; least-request
balancing between two pods drawn at random. The fleet is known beforehand, so that shedding is all that
differs: pods at 70 % load, and further ones 85 s after the shock, as if a scaler had asked for them soon.

| shock | what happens |
|---|---|
| step | twice the requests from one moment to the next |
| death | half of the pods are gone, with what waits in them |
| drift | every batch takes 1.35 times as long, and the bound is 2.5 s |
| calm, busy | nothing, at 70 % and at 85 % load |
| short | 120 % load, and no further pod ever |

Prints a table and, last, one JSON line: by shock and rule, the percentage of requests that were late or
refused (bad), and of those that were refused.
"""

import heapq
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
from tailbound_runtime.batch import Batching, Mode
from tailbound_runtime.queue import Job, Queue
from tailbound_runtime.shedding import Bound, Shedding, WouldBeLateError
from tailbound_runtime.signature import InferRequest

BATCHING: Final = Batching(Mode.DYNAMIC, 16, (), 0.05)
BASE, PER_ROW, NOISE = 0.2, 0.05, 0.1
CAPACITY: Final = BATCHING.max_size / (BASE + PER_ROW * BATCHING.max_size)
PODS: Final = 6
SECONDS, SHOCK, MORE = 1800, 600, 685
SEEDS: Final = (1, 2)
_REQUEST: Final = InferRequest(None, {"x": np.zeros((1, 1), np.float32)}, ("y",), 1)


@dataclass(frozen=True)
class Shock:
    """What a run is made of. Loads are shares of the capacity of the pods at the beginning."""

    load: float = 0.7
    load_after: float = 0.7
    pods: tuple[tuple[float, int], ...] = ((0, PODS),)
    """From when on there are how many."""
    slower: float = 1.0
    bound: float = 2.0


SHOCKS: Final[Mapping[str, Shock]] = {
    "step": Shock(load_after=1.4, pods=((0, PODS), (MORE, 2 * PODS))),
    "death": Shock(pods=((0, PODS), (SHOCK, PODS // 2), (MORE, PODS))),
    "drift": Shock(pods=((0, PODS), (MORE, PODS + 3)), slower=1.35, bound=2.5),
    "calm": Shock(),
    "busy": Shock(load=0.85, load_after=0.85),
    "short": Shock(load=1.2, load_after=1.2),
}


@dataclass
class _Pod:
    queue: Queue = field(default_factory=lambda: Queue(BATCHING))
    inside: int = 0
    running: list[Job] = field(default_factory=list)
    gone: bool = False

    def __post_init__(self) -> None:
        self.rules = Shedding(self.queue, BATCHING)


@dataclass
class Outcome:
    """Requests of one run."""

    in_time: int = 0
    late: int = 0
    refused: int = 0

    def bad_pct(self) -> float:
        """Late and refused ones."""
        return 100 * (self.late + self.refused) / self._all

    def refused_pct(self) -> float:
        """Refused ones."""
        return 100 * self.refused / self._all

    @property
    def _all(self) -> int:
        return self.in_time + self.late + self.refused


class _Run:
    def __init__(self, shock: Shock, sheds: bool, seed: int) -> None:
        self.shock, self.sheds, self.random = shock, sheds, random.Random(seed)
        self.outcome, self.pods, self.order = Outcome(), list[_Pod](), count()
        self.events: list[tuple[float, int, str, Any]] = []
        for at, pods in shock.pods:
            self._at(at, "pods", pods)

    def _at(self, at: float, kind: str, what: Any) -> None:
        heapq.heappush(self.events, (at, next(self.order), kind, what))

    def serve(self, arrivals: Iterator[float]) -> Outcome:
        """All of them, to the end."""
        arriving = next(arrivals, None)
        while arriving is not None or self.events:
            if arriving is not None and (not self.events or arriving < self.events[0][0]):
                self._arrives(arriving)
                arriving = next(arrivals, None)
            else:
                at, _, kind, what = heapq.heappop(self.events)
                getattr(self, f"_{kind}")(at, what)
        return self.outcome

    def _arrives(self, now: float) -> None:
        pod = min(self.random.choices(self.pods, k=2), key=lambda pod: pod.inside)
        bound = Bound(now, self.shock.bound) if self.sheds else None
        try:
            late_at = pod.rules.late_at(_REQUEST, bound, now)
        except WouldBeLateError:
            self.outcome.refused += 1
            return
        pod.queue.put(Job(_REQUEST, now, late_at))
        pod.inside += 1
        if not pod.running:
            self._next(now, pod)

    def _pods(self, now: float, wanted: int) -> None:
        for pod in self.pods[wanted:]:
            self.outcome.late += pod.inside
            pod.gone = True
        self.pods = [*self.pods[:wanted], *(_Pod() for _ in range(wanted - len(self.pods)))]

    def _next(self, now: float, pod: _Pod) -> None:
        if pod.running or pod.gone:
            return
        given_up = pod.rules.give_up(now)
        pod.inside -= len(given_up)
        self.outcome.refused += len(given_up)
        pod.running = pod.queue.take(now, pod.rules.line())
        if pod.running:
            rows = len(pod.running)
            pod.rules.begins(rows, now)
            slower = self.shock.slower if now >= SHOCK else 1.0
            seconds = (BASE + PER_ROW * rows) * slower * self.random.lognormvariate(0, NOISE)
            self._at(now + seconds, "done", (pod, seconds))
        elif (due := pod.queue.due(now, pod.rules.line())) is not None:
            self._at(max(due, now + 1e-6), "next", pod)

    def _done(self, now: float, what: tuple[_Pod, float]) -> None:
        pod, seconds = what
        if pod.gone:
            return
        late = sum(now - job.arrived > self.shock.bound for job in pod.running)
        self.outcome.late += late
        self.outcome.in_time += len(pod.running) - late
        pod.inside -= len(pod.running)
        pod.rules.ran(len(pod.running), seconds)
        pod.rules.ends()
        pod.running = []
        self._next(now, pod)


def simulate(shock: Shock, sheds: bool, seed: int) -> Outcome:
    """One run. The same seed draws the same arrivals for both rules."""
    draw = np.random.default_rng(seed)
    rates = np.where(np.arange(SECONDS) < SHOCK, shock.load, shock.load_after) * PODS * CAPACITY
    counts = draw.poisson(rates)
    times = np.sort(np.repeat(np.arange(SECONDS), counts) + draw.random(int(counts.sum())))
    return _Run(shock, sheds, seed).serve(iter(times.tolist()))


def main() -> None:
    """Every shock with both rules, as means over the seeds."""
    figures: dict[str, dict[str, float]] = {}
    print(f"{'':8}{'waiting':>16}{'shedding':>16}{'of these refused':>20}")
    for name, shock in SHOCKS.items():
        waits, sheds = ([simulate(shock, rule, seed) for seed in SEEDS] for rule in (False, True))
        row = {
            "queue_bad_pct": float(np.mean([each.bad_pct() for each in waits])),
            "shed_bad_pct": float(np.mean([each.bad_pct() for each in sheds])),
            "shed_refused_pct": float(np.mean([each.refused_pct() for each in sheds])),
        }
        figures[name] = {key: round(value, 2) for key, value in row.items()}
        queue, shed, refused = row.values()
        print(f"{name:8}{queue:14.2f} %{shed:14.2f} %{refused:18.2f} %", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
