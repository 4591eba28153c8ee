"""Which runs are so short that they happen on the event loop, and how a long one that does is stopped.

| a request | its run |
|---|---|
| is of an engine that computes in threads of its own, or stops no run | in the inference thread |
| may share its run, or is large | in the inference thread |
| the last runs took longer than SHORT_SECONDS | in the inference thread |
| that thread has a run that goes on for longer than SHORT_SECONDS | in the inference thread, after it |
| a run on the loop had to be stopped a short while ago | in the inference thread |
| otherwise | on the loop; one that is found to be long is stopped, and done again in the thread |

| a run on the loop | it is |
|---|---|
| has computed for MOST_SECONDS / 4 since it was first seen, or is on a device and goes on | stopped; rest |
| goes on for MOST_WAIT_SECONDS | stopped: other processes hold it up, and the next one may be short |

A rest is LEAST_REST_SECONDS, and doubles with each that follows within MOST_REST_SECONDS.

On the CPU, time is that of the thread, not of the clock: what holds up one run says nothing about the next.
"""

import threading
import time
from typing import Final

from tailbound_runtime.batch import Batching
from tailbound_runtime.engine import Run
from tailbound_runtime.signature import InferRequest

SHORT_SECONDS: Final = 0.0004
MOST_SECONDS: Final = 0.02
MOST_WAIT_SECONDS: Final = 0.045
LEAST_REST_SECONDS: Final = 1.0
MOST_REST_SECONDS: Final = 60.0
MOST_BYTES: Final = 64 * 2**10
STEP: Final = 1.25  # of the typical time towards each run's, which leads to about the median
_IDLE_SECONDS: Final = 1.0  # without a run, until the watching thread sleeps


class Inline:
    """Knows the last runs, and watches the one on the loop, in whose thread it is made.

    `begins` and `ends` are the loop's; any thread may use the rest.

    time: the clock that tells how long a run takes, in seconds
    """

    def __init__(self, batching: Batching, inlines: bool, on_device: bool, seconds: float) -> None:
        """inlines, on_device: as of the engine; `seconds` is what a run is expected to take."""
        self._possible = inlines and not batching.shares
        self._typical = seconds
        self._on_cpu = inlines and not on_device
        self.time = time.thread_time if self._on_cpu else time.perf_counter
        self._stopped_at = self._not_before = -MOST_REST_SECONDS
        self._rest_seconds = LEAST_REST_SECONDS
        self._run = Run()  # of one run after the other, until one is stopped
        self._doubts = False
        self._began: float | None = None  # the run of now, in `time`, where there are doubts
        self._now: tuple[Run, float] | None = None
        self._last = 0.0
        self._used = threading.Event()
        self._closed = threading.Event()
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        if self._possible:
            threading.Thread(target=self._watch, name="inline-watch", daemon=True).start()

    def is_open(self, now: float) -> bool:
        """Whether any run may happen on the loop, at a time of `perf_counter`."""
        return self._possible and self._typical < SHORT_SECONDS and now >= self._not_before

    def allows(self, request: InferRequest, now: float) -> bool:
        """Whether the run of this request may happen on the loop, at a time of `perf_counter`."""
        if not self.is_open(now):
            return False
        size = 0
        for array in request.inputs.values():
            size += array.nbytes
        return size <= MOST_BYTES

    def begins(self, now: float) -> Run:
        """A run on the loop begins, at a time of `perf_counter`; what may stop it."""
        if self._run.stopped:
            self._run = Run()
        self._last = now
        self._now = (self._run, now)
        if not self._used.is_set():
            self._used.set()
        self._began = self.time() if self._doubts else None
        return self._run

    def ends(self, seconds: float) -> None:
        """Count a run that ended, or was stopped, after `seconds` of the clock.

        Where that is short, so is the time of the thread, which is dear to ask for. Otherwise it is asked for
        with the next run.
        """
        self._now = None
        if self._began is not None:
            seconds = self.time() - self._began
        elif seconds >= SHORT_SECONDS:
            self._doubts = True
            return
        self._doubts = seconds >= SHORT_SECONDS
        self.ran(seconds)

    def close(self) -> None:
        """End the watching thread, once there are no more runs."""
        self._closed.set()
        self._used.set()

    def ran(self, seconds: float) -> None:
        """Count a run that took `seconds` of `time`, wherever it happened."""
        self._typical *= STEP if seconds > self._typical else 1 / STEP

    def _watch(self) -> None:
        seen, computed = None, 0.0
        while self._used.wait() and not self._closed.is_set():
            time.sleep(MOST_SECONDS / 2)
            now, current = time.perf_counter(), self._now
            if current is not None and current is not seen:
                seen, computed = current, time.clock_gettime(self._clock)
            elif current is not None:
                if not self._on_cpu or time.clock_gettime(self._clock) - computed > MOST_SECONDS / 4:
                    self._rest(now)
                    current[0].stop()
                elif now - current[1] > MOST_WAIT_SECONDS:
                    current[0].stop()
            elif now - self._last > _IDLE_SECONDS:
                self._used.clear()
                if self._closed.is_set():  # since it was looked at: the event is not set again
                    return

    def _rest(self, now: float) -> None:
        again = now - self._stopped_at < MOST_REST_SECONDS
        self._rest_seconds = min(2 * self._rest_seconds, MOST_REST_SECONDS) if again else LEAST_REST_SECONDS
        self._stopped_at, self._not_before = now, now + self._rest_seconds
