"""Which service to reconcile next: a deduplicating queue of keys with delays and backoff.

It holds no clock and waits for nothing: `now` is a parameter, in monotonic seconds. `workers` waits for it.
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass

from tailbound.kube.objects import Key

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 300.0
# Retries of all keys together: a fault that hits every service must not turn into a storm of requests.
RETRIES_PER_SECOND = 10.0
RETRY_BURST = 100.0


@dataclass
class TokenBucket:
    """Hands out reservations: how long to wait until one more retry is within the rate."""

    per_second: float
    burst: float
    tokens: float
    at: float = 0.0

    def reserve(self, now: float) -> float:
        """Seconds to wait. The token is taken now, so that later callers wait longer."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.per_second) - 1
        self.at = now
        return max(0.0, -self.tokens / self.per_second)


class KeyQueue:
    """A key is in it once, however often it was added, and is never handed to two workers at a time.

    A key that is added while a worker has it comes back when the worker is done. Keys that no worker had yet
    go first: each of many new services gets its pods before a look at what came of the others'.
    """

    def __init__(self, bucket: TokenBucket | None = None) -> None:
        self._bucket = bucket or TokenBucket(RETRIES_PER_SECOND, RETRY_BURST, RETRY_BURST)
        self._new: OrderedDict[Key, None] = OrderedDict()
        self._ready: OrderedDict[Key, None] = OrderedDict()
        self._known: set[Key] = set()
        self._taken: dict[Key, bool] = {}  # True: added again meanwhile
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []  # may hold stale entries; _due is the truth
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        """Keys that wait for a worker now; delayed ones are not counted."""
        return len(self._new) + len(self._ready)

    def has_new(self) -> bool:
        """Whether a key waits that no worker had yet."""
        return bool(self._new)

    def add(self, key: Key) -> None:
        """Reconcile as soon as a worker is free."""
        self._due.pop(key, None)
        if key in self._taken:
            self._taken[key] = True
        else:
            (self._ready if key in self._known else self._new)[key] = None

    def add_at(self, key: Key, when: float) -> None:
        """Reconcile at `when`, or earlier if something earlier is asked for."""
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._heap, (when, key))

    def retry(self, key: Key, now: float, at_least_seconds: float = 0.0) -> float:
        """Reconcile again after the key's backoff, doubled with every call; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is bounded: a key may fail for days.
        backoff = min(FIRST_BACKOFF_SECONDS * (1 << min(failures, 16)), LAST_BACKOFF_SECONDS)
        delay = max(backoff, at_least_seconds, self._bucket.reserve(now))
        self.add_at(key, now + delay)
        return delay

    def failures(self, key: Key) -> int:
        """How often in a row a retry was asked for."""
        return self._failures.get(key, 0)

    def succeeded(self, key: Key) -> None:
        """Start the key's backoff from the beginning."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """The service is gone: drop what is known about it."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._known.discard(key)

    def take(self, now: float) -> Key | None:
        """The next key, which is this worker's until `done`; None if none is due."""
        self._wake(now)
        waiting = self._new or self._ready
        if not waiting:
            return None
        key, _ = waiting.popitem(last=False)
        self._known.add(key)
        self._taken[key] = False
        return key

    def done(self, key: Key) -> None:
        """The worker has finished with the key."""
        if self._taken.pop(key):
            self._ready[key] = None

    def next_due(self) -> float | None:
        """When the next delayed key is due; None if none is delayed."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _wake(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, key = heapq.heappop(self._heap)
            self.add(key)
