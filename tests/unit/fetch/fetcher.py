"""A fetch of a misbehaving store's file, with everything it said."""

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tailbound.api.runtime_contract import FetchEnv, TerminationReason
from tailbound.fetch.addresses import AddressPolicy
from tailbound.fetch.dial import TimeOuts
from tailbound.fetch.download import FetchDependencies, Retries
from tailbound.fetch.failures import FetchFailedError
from tailbound.fetch.fetching import Access, FetchRequest, fetch

from tests.unit.fetch.faulty_store import FaultyStore

CONTENT = random.Random(7).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = random.Random(8).randbytes(3_000_000)
HALF = len(CONTENT) // 2
LOCALHOST = Access(AddressPolicy.from_env({FetchEnv.ALLOWED_HOSTS: "localhost"}))


@dataclass
class Fetcher:
    """A fetch of the store's file, with everything it said and every pause it made."""

    store: FaultyStore
    output: Path
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def world(self) -> FetchDependencies:
        return FetchDependencies(
            time_outs=TimeOuts(connect_seconds=2, stall_seconds=0.3),
            retries=Retries(attempts=3, first_pause_seconds=1),
            emit=lambda event, **fields: self.lines.append((event, fields)),
            sleep=self.pauses.append,
            jitter=lambda: 0.0,
        )

    def run(
        self,
        *,
        path: str = "/model.onnx",
        sha256: str = SHA256,
        world: FetchDependencies | None = None,
        access: Access = LOCALHOST,
    ) -> str:
        order = FetchRequest(self.store.url(path), sha256, self.output)
        return fetch(order, access, world or self.world).message

    def fails(
        self,
        reason: TerminationReason,
        *,
        path: str = "/model.onnx",
        sha256: str = SHA256,
        world: FetchDependencies | None = None,
        access: Access = LOCALHOST,
    ) -> str:
        with pytest.raises(FetchFailedError) as caught:
            self.run(path=path, sha256=sha256, world=world, access=access)
        assert caught.value.reason is reason
        return str(caught.value)

    def leftovers(self) -> set[str]:
        return {path.name for path in self.output.parent.iterdir()}
