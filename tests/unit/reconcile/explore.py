"""Runs the property machines for so many minutes: `make explore`, with examples that no run has seen."""

import sys
import time
import traceback
from collections import Counter
from typing import Final, cast

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.conftest import PROFILE
from tests.unit.reconcile.test_reconcile_shortage_simulated import FullNodes
from tests.unit.reconcile.test_reconcile_trials import Trials

MACHINES: Final = (Trials, FullNodes)
BATCH: Final = 20
"""Examples of one machine before the next one has its turn."""


def counted(machine: type[RuleBasedStateMachine], played: Counter[str]) -> type[RuleBasedStateMachine]:
    """What makes the machine, with every example counted under its name."""

    def made() -> RuleBasedStateMachine:
        played[machine.__name__] += 1
        return machine()

    # Hypothesis calls it, and asks nothing else of it where it is given settings.
    return cast("type[RuleBasedStateMachine]", made)


def explore(minutes: float) -> int:
    """Exit status: 1 if an example failed. The minutes may be overrun by one batch, and by its shrinking."""
    played: Counter[str] = Counter()
    failed = 0
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for machine in MACHINES:
            fresh = settings(machine.TestCase.settings, max_examples=BATCH)
            try:
                run_state_machine_as_test(counted(machine, played), settings=fresh)
            except Exception:
                failed += 1
                traceback.print_exc()
    counts = ", ".join(f"{name} {count}" for name, count in sorted(played.items()))
    sys.stdout.write(
        f"profile {PROFILE}: {sum(played.values())} examples ({counts}), {failed} batches failed\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(explore(float(sys.argv[1])))
