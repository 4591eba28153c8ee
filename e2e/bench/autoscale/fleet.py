"""A fleet of batching replicas behind one queue, simulated batch by batch. Seeded.

Requests wait in one line. A free replica takes a batch when it is full or its oldest request has waited for
the batching delay, and works on it for `base + per_row * rows` seconds, give or take 10 %. Replicas that are
asked for serve after the cold start; those that are given up finish their batch first. Every replica that was
asked for costs, whether it serves yet or not.
"""

import bisect
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HIGHEST: Final = 60
"""Most replicas that any policy may ask for."""
FIRST_DECISION: Final = 120
"""Seconds for which every policy only watches, so that its windows are filled."""
NOISE: Final = 0.1
"""Standard deviation of the logarithm of a batch's time."""
AFTERMATH: Final = 600
"""Seconds after the trace in which what is queued is still served."""
_STUCK: Final = 1e9


@dataclass(frozen=True)
class Server:
    """How one replica works, and what is promised. Seconds."""

    base: float = 0.20
    per_row: float = 0.05
    batch: int = 16
    target: float = 2.0
    delay: float = 0.05
    padded_to: int = 1
    """A batch takes as long as one whose rows are the next multiple of this."""

    def seconds(self, rows: int) -> float:
        """Mean time of a batch."""
        return self.base + self.per_row * (-rows // self.padded_to * -self.padded_to)

    @property
    def capacity(self) -> float:
        """Requests per second of one replica that works on full batches."""
        return self.batch / self.seconds(self.batch)


@dataclass(frozen=True)
class Faults:
    """What goes wrong in a run. Times in seconds from its start."""

    slower_from: float = 1e9
    slower_by: float = 1.0
    outage: tuple[int, int] = (0, 0)
    """From the first to before the second Prometheus reaches no target, and answers with nothing."""
    stuck: tuple[int, int] = (0, 0)
    """Every third replica made from the first to before the second never gets ready."""
    deaths: tuple[int, ...] = ()
    """At each of these a share of the ready replicas die, and others are made in their place."""
    dying: float = 1 / 3
    """That share."""


@dataclass
class Fleet:
    """What has happened so far, as the signals of a policy are read from it. Lists by second."""

    server: Server
    cold_start: float
    faults: Faults
    arrived: Sequence[int]
    """Number of requests that arrived before each second."""
    now: int = 0
    alive: dict[int, float] = field(default_factory=dict)
    """When each replica serves, or will."""
    finished: list[int] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    latencies: list[list[float]] = field(default_factory=list)
    batches: list[list[tuple[int, float]]] = field(default_factory=list)
    """Rows and seconds of those that ended."""
    made_at: dict[int, float] = field(default_factory=dict)
    in_flight: list[int] = field(default_factory=list)
    """At each second up to now."""
    serving: list[int] = field(default_factory=list)
    """Replicas that were ready, at each second up to now."""

    @property
    def requested(self) -> int:
        """Replicas that exist, ready or not."""
        return len(self.alive)

    @property
    def ready(self) -> int:
        """Replicas that serve."""
        now = self.now
        return sum(ready <= now for ready in self.alive.values())

    @property
    def blind(self) -> bool:
        """Whether no metric can be read now."""
        return self.faults.outage[0] <= self.now < self.faults.outage[1]


class Policy(Protocol):
    """Says how many replicas there shall be."""

    every: int
    """Seconds between two calls."""

    def replicas(self, fleet: Fleet) -> int | None:
        """None leaves them as they are."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one run came to."""

    late_pct: float
    late_minutes_pct: float
    """Percentage of the minutes in which the 99th percentile missed the target."""
    replica_hours: float
    p99: float
    peak: int
    changes: int
    starts: int
    """Replicas that the policy had made, those in place of dead ones not counted."""
    in_vain: int
    """Those of them that were given up before they served."""
    replicas: Floats
    """By second."""


@dataclass
class _Run:
    """One run, as it goes."""

    fleet: Fleet
    policy: Policy
    duration: int
    heap: list[tuple[float, int]]
    gone: set[int] = field(default_factory=set)
    made: int = 0
    starts: int = 0
    in_vain: int = 0
    counts: list[int] = field(default_factory=list)
    completed: int = 0
    deaths: list[int] = field(default_factory=list)

    def tick(self) -> None:
        """One second: count, let replicas die, ask the policy."""
        fleet = self.fleet
        now = fleet.now
        if now:
            self.completed += fleet.finished[now - 1]
        fleet.in_flight.append(fleet.arrived[now] - self.completed)
        fleet.serving.append(fleet.ready)
        if self.deaths and now >= self.deaths[0]:
            self.deaths.pop(0)
            self._kill()
        if now >= FIRST_DECISION and now % self.policy.every == 0:
            wanted = self.policy.replicas(fleet)
            if wanted is not None:
                self._set(max(1, min(HIGHEST, wanted)))
        self.counts.append(fleet.requested)
        fleet.now += 1

    def _make(self) -> None:
        fleet = self.fleet
        stuck = fleet.faults.stuck[0] <= fleet.now < fleet.faults.stuck[1] and self.made % 3 == 0
        ready = _STUCK if stuck else fleet.now + fleet.cold_start
        fleet.alive[self.made] = ready
        fleet.made_at[self.made] = fleet.now
        heapq.heappush(self.heap, (ready, self.made))
        self.made += 1

    def _remove(self, replica: int) -> None:
        del self.fleet.alive[replica]
        del self.fleet.made_at[replica]
        self.gone.add(replica)

    def _set(self, wanted: int) -> None:
        """Pending replicas go first, as in a ReplicaSet, then the newest."""
        alive = self.fleet.alive
        while len(alive) < wanted:
            self._make()
            self.starts += 1
        for replica in sorted(alive, key=lambda name: -alive[name])[: len(alive) - wanted]:
            self.in_vain += alive[replica] > self.fleet.now
            self._remove(replica)

    def _kill(self) -> None:
        ready = [name for name, at in self.fleet.alive.items() if at <= self.fleet.now]
        for replica in ready[: max(1, int(len(ready) * self.fleet.faults.dying))]:
            self._remove(replica)
            self._make()


def simulate(
    arrivals: Floats,
    duration: int,
    server: Server,
    policy: Policy,
    start: int,
    cold_start: float = 60.0,
    faults: Faults | None = None,
    seed: int = 1,
) -> Outcome:
    """Serve `arrivals` (sorted seconds) from `start` ready replicas."""
    end = duration + AFTERMATH
    fleet = Fleet(
        server, cold_start, faults or Faults(), np.searchsorted(arrivals, np.arange(end + 2)).tolist()
    )
    fleet.finished, fleet.busy = [0] * (end + 2), [0.0] * (end + 2)
    fleet.latencies = [[] for _ in range(end + 2)]
    fleet.batches = [[] for _ in range(end + 2)]
    fleet.alive = dict.fromkeys(range(start), 0.0)
    fleet.made_at = dict.fromkeys(range(start), -cold_start)
    run = _Run(fleet, policy, duration, [(0.0, name) for name in range(start)], made=start)
    run.deaths = list(fleet.faults.deaths)
    _serve(run, arrivals.tolist(), np.random.default_rng(seed), end)
    return _outcome(run, len(arrivals))


def _serve(run: _Run, arrivals: list[float], random: np.random.Generator, end: int) -> None:
    """The loop over batches. Its names are short-lived locals: it runs millions of times."""
    fleet, server, heap, gone = run.fleet, run.fleet.server, run.heap, run.gone
    noise = np.exp(random.normal(0, NOISE, 1 << 16)).tolist()
    size, delay = server.batch, server.delay
    takes = [server.seconds(rows) for rows in range(size + 1)]
    finished, busy, latencies, batches = fleet.finished, fleet.busy, fleet.latencies, fleet.batches
    slower_from, slower_by = fleet.faults.slower_from, fleet.faults.slower_by
    head, total, number, duration = 0, len(arrivals), 0, run.duration
    find: Callable[..., int] = bisect.bisect_right
    while head < total:
        free, replica = heap[0]
        if replica in gone:
            heapq.heappop(heap)
            gone.discard(replica)
            continue
        at = arrivals[head] + delay
        last = head + size - 1
        if last < total and arrivals[last] < at:
            at = arrivals[last]
        at = max(at, free)
        if fleet.now <= at and fleet.now <= duration:
            run.tick()
            continue
        if at >= end - 30:
            break
        stop = find(arrivals, at, head, min(total, head + size))
        rows = stop - head
        seconds = takes[rows] * noise[number & 65535] * (slower_by if at >= slower_from else 1.0)
        number += 1
        done = at + seconds
        busy[int(at)] += seconds
        second = int(done)
        finished[second] += rows
        latencies[second].extend([done - arrival for arrival in arrivals[head:stop]])
        batches[second].append((rows, seconds))
        head = stop
        heapq.heapreplace(heap, (done, replica))
    while fleet.now <= duration:
        run.tick()


def _outcome(run: _Run, requests: int) -> Outcome:
    target = run.fleet.server.target
    latencies = [np.array(second) for second in run.fleet.latencies]
    served = np.concatenate(latencies)
    minutes = [np.concatenate(latencies[at : at + 60]) for at in range(0, run.duration, 60)]
    judged = [minute for minute in minutes if len(minute) > 20]
    bad = sum(np.percentile(minute, 99) > target for minute in judged)
    late = int((served > target).sum()) + requests - len(served)
    replicas = np.array(run.counts, dtype=np.float64)
    return Outcome(
        late_pct=100 * late / max(1, requests),
        late_minutes_pct=100 * float(bad) / max(1, len(judged)),
        replica_hours=float(replicas.sum()) / 3600,
        p99=float(np.percentile(served, 99)) if len(served) else 0.0,
        peak=int(replicas.max()),
        changes=int((np.diff(replicas) != 0).sum()),
        starts=run.starts,
        in_vain=run.in_vain,
        replicas=replicas,
    )


@dataclass
class Plan:
    """Replicas by second, known beforehand."""

    plan: npt.NDArray[np.int64]
    every: int = 1

    def replicas(self, fleet: Fleet) -> int | None:
        """The number of replicas that is planned for now; the last one stays."""
        return int(self.plan[min(fleet.now, len(self.plan) - 1)])


def draw(rates: Floats, seed: int) -> Floats:
    """Arrival times: Poisson within each second."""
    random = np.random.default_rng(seed)
    counts = random.poisson(rates)
    return np.sort(np.repeat(np.arange(len(rates)), counts) + random.random(int(counts.sum())))
