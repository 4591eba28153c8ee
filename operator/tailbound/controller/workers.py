"""Workers: take keys off the queue, reconcile them, and put them back according to how it went."""

import asyncio
from collections.abc import Awaitable, Callable

from tailbound.controller.execute import NotLeaderError
from tailbound.controller.queue import KeyQueue
from tailbound.controller.reconciler import PassOutcome
from tailbound.kube.errors import Conflict, KubeError, NamespaceEnds, Terminal, Transient
from tailbound.kube.objects import Key
from tailbound.telemetry.logs import logger
from tailbound.telemetry.metrics import Metrics

_LOG = logger(__name__)
WORKERS = 8
ENDING_SECONDS = 30.0
"""Between two looks at a service whose namespace is being deleted, whatever changes there meanwhile."""
TOLD_AT = 4
"""Failures in a row after which the service gets an Event: its status says nothing of a pass that fails."""
TOLD_EVERY = 12
"""Further failures until the next one: about as many as there are in the hour that an Event is kept."""


class Workers:
    """Runs `reconcile` for queued keys. Keys may be added before it runs: they wait.

    `tell` is called with a key, and with why its passes fail, once that has lasted.
    """

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[PassOutcome]],
        metrics: Metrics,
        clock: Callable[[], float],
        tell: Callable[[Key, str], Awaitable[None]],
    ) -> None:
        self.queue = KeyQueue()
        self._tell = tell
        self._reconcile = reconcile
        self._metrics = metrics
        self._clock = clock
        self._wake = asyncio.Event()
        self._stopping = False
        self._ending: dict[Key, float] = {}
        """When to look again at each service whose namespace is being deleted."""

    def add(self, key: Key) -> None:
        """Reconcile a key as soon as possible. Call it from the event loop only."""
        self.queue.add(key)
        self._wake.set()

    def stop(self) -> None:
        """Take no further key; `run` returns when those under way are done."""
        self._stopping = True
        self._wake.set()

    async def run(self, count: int = WORKERS) -> None:
        """Work until `stop`. An ExceptionGroup with NotLeaderError ends it once leadership is lost."""
        slots = asyncio.Semaphore(count)
        async with asyncio.TaskGroup() as group:
            while not self._stopping:
                await slots.acquire()
                key = await self._next()
                if key is not None:
                    group.create_task(self._work(key, slots))

    async def _next(self) -> Key | None:
        while not self._stopping:
            key = self.queue.take(self._clock())
            if key is not None:
                return key
            self._wake.clear()
            due = self.queue.next_due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                    await self._wake.wait()
            except TimeoutError:
                continue
        return None

    async def _work(self, key: Key, slots: asyncio.Semaphore) -> None:
        started = self._clock()
        outcome = "error"
        try:
            outcome = "ending" if self._ends(key) else await self._one(key)
        finally:
            self.queue.done(key)
            self._metrics.reconcile_seconds.labels(outcome).observe(self._clock() - started)
            slots.release()
            self._wake.set()

    def _ends(self, key: Key) -> bool:
        """Whether the namespace is being deleted, and the key was looked at just now: it comes back later."""
        until = self._ending.get(key, 0.0)
        if self._clock() >= until:
            return False
        self.queue.add_at(key, until)
        return True

    # How the pass ended        | what happens to the key
    # --------------------------|--------------------------------------------------------------
    # the service is gone       | forgotten
    # well, or refused in part  | when it asks for it, else when something changes
    # Conflict                  | after its backoff; a watch event brings it back earlier
    # the namespace ends        | after ENDING_SECONDS, and not before; logged once
    # Transient                 | after its backoff, and not before the server allows
    # Terminal, or our own bug  | after its backoff; logged with what was refused
    # NotLeaderError            | nothing: this process is about to end
    #
    # A key with a backoff gets an Event as well, once it has failed several times in a row.
    async def _one(self, key: Key) -> str:
        names = {"namespace": key[0], "service": key[1]}
        try:
            outcome = await self._reconcile(key)
        except NotLeaderError:
            raise
        except Conflict as error:
            delay = self.queue.retry(key, self._clock())
            _LOG.info("decided on old facts", **names, error=str(error), retry_seconds=delay)
            return await self._failed(key, "conflict", error)
        except NamespaceEnds as error:
            if key not in self._ending:
                _LOG.info("the namespace is being deleted", **names, error=str(error))
            self._ending[key] = self._clock() + ENDING_SECONDS
            self.queue.add_at(key, self._ending[key])
            return "ending"
        except Transient as error:
            delay = self.queue.retry(key, self._clock(), error.retry_after_seconds or 0.0)
            _LOG.warning("not reconciled", **names, error=str(error), retry_seconds=delay)
            return await self._failed(key, "transient", error)
        except Terminal as error:
            delay = self.queue.retry(key, self._clock())
            _LOG.error("refused", **names, error=str(error), retry_seconds=delay)
            return await self._failed(key, "terminal", error)
        except Exception as error:
            # One service whose decision fails must not take the others down with it.
            delay = self.queue.retry(key, self._clock())
            _LOG.exception("reconciling failed", **names, retry_seconds=delay)
            return await self._failed(key, "error", error)
        return self._settle(key, outcome)

    async def _failed(self, key: Key, outcome: str, error: Exception) -> str:
        if self.queue.failures(key) % TOLD_EVERY == TOLD_AT:
            bug = "" if isinstance(error, KubeError) else "an error of Tailbound, see the operator's log: "
            await self._tell(key, f"{bug}{error or type(error).__name__}")
        return outcome

    def _settle(self, key: Key, outcome: PassOutcome) -> str:
        self._ending.pop(key, None)
        if outcome.gone:
            self.queue.forget(key)
            return "gone"
        self.queue.succeeded(key)
        if outcome.requeue_after_seconds is not None:
            self.queue.add_at(key, self._clock() + outcome.requeue_after_seconds)
        if outcome.obstructed:
            return "obstructed"
        return "changed" if outcome.wrote else "unchanged"
