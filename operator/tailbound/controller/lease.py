"""Leader election by one Lease.

Times in the Lease are for people only. A candidate counts on its own monotonic clock how long the Lease has
not changed; the leader counts on its own how long ago it began its last successful write. The leader's limit
is the shorter one, so two processes cannot both think that they lead, whatever their clocks say.

|      | leader without renewal                   | candidate                                       |
|------|------------------------------------------|-------------------------------------------------|
| 0 s  | begins the write that was its last       | sees the Lease change, a little later           |
| 10 s | `holds()` turns False, the process exits |                                                 |
| 15 s | its last request has timed out           | may write itself in, guarded by resourceVersion |
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailbound.kube.errors import Conflict, KubeError
from tailbound.kube.protocol import KubeClient
from tailbound.kube.resources import LEASES
from tailbound.objects.fields import Object, child
from tailbound.objects.lease import Lease
from tailbound.objects.metadata import KubernetesObject
from tailbound.telemetry.logs import logger

_LOG = logger(__name__)


class LeadershipLost(Exception):  # noqa: N818 - an outcome that ends the process
    """The Lease could not be renewed in time, or another replica holds it: stop at once."""


@dataclass(frozen=True)
class LeaseTimes:
    """Seconds. A request must time out within `retry`, and `renew_deadline` plus it within `duration`."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Elector:
    """One candidate. `cluster` must bound its requests well below `times.retry`."""

    def __init__(
        self,
        cluster: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        times: LeaseTimes | None = None,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._times = times or LeaseTimes()
        self._sleep = sleep
        self._lease: Object | None = None
        self._seen_version = ""
        self._seen_at = clock()
        self._renewed_at: float | None = None

    def holds(self) -> bool:
        """Whether this process leads now. To be asked before every write."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._times.renew_deadline

    @property
    def lease_age_seconds(self) -> float:
        """Time since the Lease was last seen to change, or since the start.

        Above its duration no operator leads.
        """
        return self._clock() - self._seen_at

    async def acquire(self) -> None:
        """Wait until this process leads. Errors of the API server are waited out."""
        while not await self._attempt():
            await self._sleep(self._times.retry)
        _LOG.info("leading", lease=self._name, identity=self._identity)

    async def keep(self) -> None:
        """Renew until cancelled. Raises LeadershipLost at the renew deadline or for another holder."""
        while True:
            await self._sleep(self._times.retry if self._fresh() else min(1.0, self._times.retry))
            renewed = await self._attempt()
            if not renewed and self._held_by_other():
                self._renewed_at = None
                raise LeadershipLost(f"Lease {self._name} is held by {self._holder()}")
            if not self.holds():
                self._renewed_at = None
                raise LeadershipLost(
                    f"Lease {self._name} was not renewed for {self._times.renew_deadline:g} s"
                )

    async def release(self) -> None:
        """Give the Lease back after a clean stop, so that the next leader need not wait. Best effort."""
        if self._renewed_at is None or self._lease is None:
            return
        self._renewed_at = None
        try:
            # A renewal that was under way when we were stopped may have been stored unheard: look first.
            self._observe(await self._cluster.get(LEASES, self._namespace, self._name))
            if self._lease is not None and self._holder() == self._identity:
                await self._cluster.replace(LEASES, self._body(self._lease, holder=""))
        except KubeError as error:
            _LOG.warning("lease not released", error=str(error))

    def _fresh(self) -> bool:
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._times.retry * 2

    async def _attempt(self) -> bool:
        """Write the Lease if it is ours, free or abandoned. True if it is ours now."""
        try:
            # One request is enough for a leader that knows the Lease as it wrote it.
            return (self._renewed_at is not None and await self._renew()) or await self._look_and_write()
        except KubeError as error:
            _LOG.warning("lease not reached", error=str(error))
            return False

    async def _renew(self) -> bool:
        try:
            await self._write()
        except Conflict:
            return False
        return True

    async def _look_and_write(self) -> bool:
        self._observe(await self._cluster.get(LEASES, self._namespace, self._name))
        if not self._may_write():
            return False
        try:
            await self._write()
        except Conflict:
            return False  # another replica was faster; the next look tells which
        return True

    async def _write(self) -> None:
        started = self._clock()
        body = self._body(self._lease, self._identity)
        request = self._cluster.insert if self._lease is None else self._cluster.replace
        self._observe(await request(LEASES, body))
        self._renewed_at = started

    def _observe(self, lease: Object | None) -> None:
        version = "" if lease is None else KubernetesObject(lease).resource_version
        if version != self._seen_version:
            self._seen_version = version
            self._seen_at = self._clock()
        self._lease = lease

    # The Lease               | may we write?
    # ------------------------|--------------------------------------------------
    # does not exist          | yes
    # has no holder           | yes: it was released
    # is ours                 | yes: renewal, or the process before us in this pod
    # is another's, changed   | no, until it has not changed for `duration`
    def _may_write(self) -> bool:
        if self._lease is None or self._holder() in ("", self._identity):
            return True
        return self._clock() - self._seen_at > self._times.duration

    def _held_by_other(self) -> bool:
        return self._lease is not None and self._holder() not in ("", self._identity)

    def _holder(self) -> str:
        return Lease(self._lease or {}).holder_identity

    def _body(self, lease: Object | None, holder: str) -> Object:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = Lease(lease or {})
        changed = old.holder_identity != holder
        transitions = old.lease_transitions + (1 if changed and holder else 0)
        meta: dict[str, Any] = {"namespace": self._namespace, "name": self._name}
        if lease is not None:
            meta = {**child(lease, "metadata")}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": int(self._times.duration),
                "acquireTime": now if changed else old.acquire_time or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
