"""The parts of the installation that scenarios disturb or need whole, as locks between processes.

Scenarios that disturb run side by side where no one disturbs what another disturbs or needs.
"""

import fcntl
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

OPERATOR: Final = "operator"
# A scenario that kills a gateway disturbs this part; one that counts failed requests needs it.
GATEWAYS: Final = "gateways"
PROMETHEUS: Final = "prometheus"
EVERYTHING: Final = (OPERATOR, GATEWAYS, PROMETHEUS)


@contextmanager
def reserved(folder: Path, disturbed: Collection[str], needed: Collection[str]) -> Iterator[None]:
    """Waits until no scenario with the same folder needs a disturbed part, or disturbs a part of either kind.

    It stays so during the block. Parts are locked in one order, so that no two scenarios wait for each other.
    """
    with ExitStack() as locks:
        for part in sorted({*disturbed, *needed}):
            file = locks.enter_context((folder / f"{part}.lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX if part in disturbed else fcntl.LOCK_SH)
        yield
