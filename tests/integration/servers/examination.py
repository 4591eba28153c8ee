"""What is tried with a real server: it is ready once it answers, batches, and loses nothing in a drain."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.integration.servers.drain import Drained, stopped_under_load
from tests.integration.servers.real import BUILD, RealServer, Running, running

AT_ONCE: Final = 12
ROUNDS: Final = 3
LOAD_SECONDS: Final = 8
"""What a model takes to load: the first call of a server that is ready does not wait for it."""


@dataclass(frozen=True)
class Result:
    """What one server did. Calls that failed count as lost."""

    package: str
    calls: int
    """Answered rightly at once, and how many rows the largest batch had."""
    largest_batch: int
    held_answered: int
    held_lost: int
    cut_lost: int
    """Lost without the hold: none would mean that the drain is not tried at all."""

    def written(self) -> dict[str, str | int]:
        """The fields by their names."""
        return asdict(self)


def batched(server: Running) -> Counter[int]:
    """Calls at once: how many were in a batch of each size."""
    server.call()
    with ThreadPoolExecutor(AT_ONCE) as clients:
        return Counter(clients.map(lambda _: server.call(), range(ROUNDS * AT_ONCE)))


def examine(server: RealServer, directory: Path) -> Result:
    """Start the server twice: it ends under load with the hold, and without."""
    with running(server, directory / "held", LOAD_SECONDS) as started:
        # Both take longer on a busy machine; the first alone would wait for the model.
        waited = _seconds(started) - _seconds(started)
        assert waited < LOAD_SECONDS / 2, f"ready {waited:.1f} s before its model answers"
        sizes = batched(started)
        held = stopped_under_load(started, held=True)
    assert held.status == server.exit_status, (held, (directory / "held" / "log").read_text()[-2000:])
    cut = dropped(server, directory / "cut")
    return Result(
        package=server.pinned(BUILD / server.name),
        calls=sizes.total(),
        largest_batch=max(sizes),
        held_answered=held.answered,
        held_lost=held.lost.total(),
        cut_lost=cut.lost.total(),
    )


def _seconds(server: Running) -> float:
    """How long one call takes."""
    begun = time.monotonic()
    server.call()
    return time.monotonic() - begun


def dropped(server: RealServer, directory: Path) -> Drained:
    """What a stop without the hold costs."""
    with running(server, directory) as started:
        return stopped_under_load(started, held=False)
